"""Batches that have arrived."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, overload

from sheaf._control import Session
from sheaf._entry import Entry
from sheaf._index import Index, Row
from sheaf.errors import (
    MountError,
    ProtocolError,
    SheafError,
    from_code,
    from_errno,
)

__all__ = ["Batch", "Item"]

# madvise(2): map the pages now. Unlike touching them, it answers a page that can't be read with EFAULT and not
# with SIGBUS. Python has no name for it yet.
_MADV_POPULATE_READ = 22
_POPULATE_STEP = 4 << 20  # bytes; madvise keeps other threads waiting


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One entry of a batch that has arrived.

    ``data`` is a read-only view of the payload's bytes, without a copy; it stays good after the batch is closed.
    An entry that failed has ``error`` set and empty ``data``. ``checksum`` is the xxh3-64 (seed 0) of the payload.
    """

    index: int
    entry: Entry
    data: memoryview
    error: SheafError | None
    checksum: int


class Lease:
    """The right to a batch in the mount, given back once: by hand, or with the last who holds this."""

    def __init__(self, session: Session, id_: str) -> None:
        self.session = session
        self.id = id_
        self._finalizer = weakref.finalize(self, _give_back, session, id_)
        self._finalizer.atexit = False

    @property
    def released(self) -> bool:
        """Whether it was given back."""
        return not self._finalizer.alive

    def release(self) -> None:
        """Give it back; again does nothing."""
        self._finalizer()


def _give_back(session: Session, id_: str) -> None:
    # A forked child has no part in its parent's batch. The command makes it gone when this returns; closing the
    # session alone would do it a moment later.
    if session.pid == os.getpid() and not session.closed:
        with contextlib.suppress(OSError):
            session.send({"op": "release", "id": id_})
        session.close()


class Paths:
    """Where the mount shows a batch."""

    def __init__(self, mount: str, id_: str) -> None:
        self.control = os.path.join(mount, ".sheaf", "control")
        self.folder = os.path.join(mount, ".sheaf", "batch", id_)

    def read(self, name: str) -> bytes:
        """All of one file; raises a `SheafError`."""
        path = os.path.join(self.folder, name)
        try:
            with open(path, "rb", buffering=0) as f:
                return f.readall()
        except OSError as err:
            raise from_errno(err.errno or errno.EIO, f"{path}: {err.strerror}") from err


class Batch(Sequence[Item]):
    """A batch that has arrived: a sequence of `Item` in the order of the request.

    Payloads are read-only views of one mapping of the mount's file, made without a copy; with ``copy`` they lie in
    this process's memory. Close it, or leave its ``with`` block, when the mount may forget the batch; views taken
    before stay good, and hold its bytes on disk (with ``copy``: in memory) until they go.

    The mapping is read once, here. If the system takes pages back for lack of memory and the mount has died by
    the time they are touched again, the system ends the process (SIGBUS): where that matters, use ``copy``.
    """

    def __init__(
        self, lease: Lease, paths: Paths, entries: tuple[Entry, ...], messages: dict[int, str], copy: bool
    ) -> None:
        self._lease = lease
        self._entries = entries
        self._messages = messages
        self._index = Index(paths.read("index"))
        if len(self._index) != len(self._entries):
            raise ProtocolError(f"an index of {len(self._index)} entries for a batch of {len(self._entries)}")
        self._map: mmap.mmap | None = None
        self._data = self._open_data(os.path.join(paths.folder, "data"), copy)
        self._closed = False

    def _open_data(self, path: str, copy: bool) -> memoryview:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                if size == 0:  # which can't be mapped
                    return memoryview(b"")
                if copy:
                    return _read_all(fd, size)
                # Private, as every kernel can map a FUSE file so; nothing is written, so nothing is copied.
                self._map = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
            finally:
                os.close(fd)
            _populate(self._map, size)
        except OSError as err:
            if isinstance(err, SheafError):
                raise
            raise from_errno(err.errno or errno.EIO, f"{path}: {err.strerror}") from err
        return memoryview(self._map)

    @property
    def id(self) -> str:
        """The batch's name below ``.sheaf/batch``, where it is until it is closed."""
        return self._lease.id

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was asked for, in order."""
        return self._entries

    @property
    def data(self) -> memoryview:
        """All payloads, one after the other, read-only. An entry's place in it is in `row`."""
        self._check()
        return self._data[:]

    @property
    def nbytes(self) -> int:
        """Bytes of all payloads together."""
        self._check()
        return self._data.nbytes

    @property
    def closed(self) -> bool:
        """Whether the batch was closed."""
        return self._closed

    def row(self, index: int) -> tuple[int, int]:
        """Offset and length, in bytes, of entry ``index``'s payload in `data`; length 0 for one that failed."""
        self._check()
        row = self._index[self._position(index)]
        return row.offset, row.length

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = self._position(index)
        self._check()
        return self._item(i, self._index[i])

    def __iter__(self) -> Iterator[Item]:
        for i, row in enumerate(self._index):
            self._check()
            yield self._item(i, row)

    def _position(self, index: int) -> int:
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(f"item {index} of a batch of {len(self)}")
        return i

    def _item(self, i: int, row: Row) -> Item:
        entry = self._entries[i]
        if row.status:
            failure = from_code(row.status, self._messages.get(i, ""), errno=row.errno, index=i, entry=entry)
            return Item(i, entry, memoryview(b""), failure, 0)
        end = row.offset + row.length
        if end > len(self._data):
            raise ProtocolError(f"it ends at byte {end} of data that has {len(self._data)}", index=i, entry=entry)
        return Item(i, entry, self._data[row.offset : end], None, row.checksum)

    def _check(self) -> None:
        if self._closed:
            raise ValueError("the batch is closed")

    def __repr__(self) -> str:
        return f"<sheaf.Batch {self.id} of {len(self)} entries{', closed' if self._closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a batch belongs to its process: pickle the Client and the entries")

    def __enter__(self) -> Batch:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the batch in the mount. May be called again. Items taken before stay good.

        In a forked child it only unmaps the child's copy.
        """
        if self._closed:
            return
        self._closed = True
        self._lease.release()
        # A view that is still out keeps the mapping; it goes with the last of them.
        with contextlib.suppress(BufferError):
            self._data.release()
            if self._map is not None:
                self._map.close()
        self._data, self._map = memoryview(b""), None


def _read_all(fd: int, size: int) -> memoryview:
    buf = bytearray(size)
    view = memoryview(buf)
    got = 0
    while got < size:
        n = os.readv(fd, [view[got:]])
        if n == 0:
            raise ProtocolError(f"data ends after {got} of {size} bytes")
        got += n
    return view.toreadonly()


def _populate(mapping: mmap.mmap, size: int) -> None:
    """Bring all pages in, so that a mount which dies or fails now is an exception."""
    try:
        for at in range(0, size, _POPULATE_STEP):
            mapping.madvise(_MADV_POPULATE_READ, at, min(_POPULATE_STEP, size - at))
    except OSError as err:
        if err.errno == errno.EINVAL:  # a kernel before 5.14
            return
        if err.errno == errno.EFAULT:
            raise MountError("the mount could not read the batch's data", errno=errno.EIO) from err
        raise
