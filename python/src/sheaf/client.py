"""The client: where a program meets the mount."""

from __future__ import annotations

import errno
import os
import stat
import uuid
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import ClassVar, Literal

from sheaf._control import Pause, Session, deadline_of, left
from sheaf._entry import Entry, EntryLike, parse, parse_all, to_json
from sheaf.batch import Batch, Lease
from sheaf.errors import MountError, TimeoutError, from_errno
from sheaf.pending import PendingBatch

__all__ = ["Client"]

# A batch lives as long as its session does, so its time to live should never end it first. This is the longest
# that the mount takes, in seconds.
_TTL = 86_400


class Client:
    """Batches from a Sheaf mount.

    It may be shared between threads, pickled, and used in a child process however that was started: whatever it
    holds open belongs to one process, and another one begins with nothing.
    """

    _session_type: ClassVar[type[Session]] = Session

    def __init__(self, mount: str | os.PathLike[str] = "/mnt/sheaf") -> None:
        """Check that ``mount`` is the root of a Sheaf mount; raises `MountError` when it isn't or is dead."""
        self.mount = os.path.abspath(os.fspath(mount))
        """The mount's path, absolute."""
        self._start()
        self.version()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._closed = False
        self._leases: weakref.WeakValueDictionary[str, Lease] = weakref.WeakValueDictionary()

    def __getstate__(self) -> dict[str, object]:
        return {"mount": self.mount}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.mount = str(state["mount"])
        self._start()

    def __repr__(self) -> str:
        return f"sheaf.Client({self.mount!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release every batch of this client in this process; those running fail with `CanceledError`.

        Items already taken stay good. May be called again.
        """
        self._closed = True
        if self._pid == os.getpid():
            for ref in self._leases.valuerefs():
                if (lease := ref()) is not None:
                    lease.release()

    def version(self) -> str:
        """The mount's version, one line. Raises `MountError` when this is no Sheaf mount or a dead one."""
        path = os.path.join(self.mount, ".sheaf", "version")
        try:
            with open(path, encoding="utf-8") as f:
                return f.readline().strip()
        except (FileNotFoundError, NotADirectoryError) as err:
            raise MountError(f"{self.mount} is not a Sheaf mount: it has no .sheaf/version", errno=err.errno) from err
        except OSError as err:
            raise from_errno(err.errno or errno.EIO, f"{path}: {err.strerror}") from err

    def submit(
        self,
        entries: Iterable[EntryLike],
        *,
        bucket: str | None = None,
        on_error: Literal["raise", "return"] = "raise",
        timeout: float | None = None,
        max_soft_errors: int | None = None,
        coloc: int = 0,
        strm: bool = True,
        copy: bool = False,
        id: str | None = None,
    ) -> PendingBatch:
        """Begin a batch and return at once; the arguments are those of `batch`.

        ``timeout`` counts for the batch itself, here: it fails with `TimeoutError` when it takes longer. It also
        bounds how long this waits while the mount holds all the batches it can (256), which without it may be
        for ever.
        """
        if on_error not in ("raise", "return"):
            raise ValueError(f'on_error is "raise" or "return", not {on_error!r}')
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is a number of seconds above 0, not {timeout!r}")
        if max_soft_errors is not None and on_error != "return":
            raise ValueError('max_soft_errors is for on_error="return"')
        if self._pid != os.getpid():
            self._start()
        if self._closed:
            raise ValueError("the client is closed")
        parsed = parse_all(entries, bucket)
        name = id if id is not None else f"py-{uuid.uuid4().hex}"
        manifest: dict[str, object] = {
            "id": name,
            "bind": True,
            "ttl": _TTL,
            "in": [to_json(e, bucket or "") for e in parsed],
        }
        if bucket:
            manifest["bucket"] = bucket
        if on_error == "return":
            manifest["coer"] = True
            manifest["max_soft_errors"] = -1 if max_soft_errors is None else max_soft_errors
        if coloc:
            manifest["coloc"] = coloc
        if not strm:
            manifest["strm"] = False
        if timeout is not None:
            manifest["timeout"] = timeout
        lease = Lease(self._send(manifest, timeout), name)
        self._leases[name] = lease
        return PendingBatch(lease, self.mount, parsed, in_memory=copy)

    def _send(self, manifest: dict[str, object], timeout: float | None) -> Session:
        """Submit in a session of its own. A manifest that found no room is sent whole again, in a new one."""
        deadline = deadline_of(timeout)
        pause = Pause(deadline)
        while True:
            session = self._session_type(os.path.join(self.mount, ".sheaf", "control"))
            try:
                session.send(manifest, block=deadline is None, explain=True)
                return session
            except BlockingIOError:
                session.close()
                if not pause.sleep():
                    raise TimeoutError(f"the mount had no room for a batch for {timeout} s") from None
            except BaseException:
                session.close()
                raise

    def batch(
        self,
        entries: Iterable[EntryLike],
        *,
        bucket: str | None = None,
        on_error: Literal["raise", "return"] = "raise",
        timeout: float | None = None,
        max_soft_errors: int | None = None,
        coloc: int = 0,
        strm: bool = True,
        copy: bool = False,
        id: str | None = None,
    ) -> Batch:
        """Bring a batch: its items come in the order of ``entries``, duplicates included.

        Args:
            entries: 1 to 65536 of
                strings: ``"bucket/object"`` or ``"bucket/shard.tar@/member"``; when ``bucket`` is given, ``"object"``
                or ``"shard.tar@/member"`` in it, and slashes belong to the name;
                mappings with the fields of `Entry`;
                `Entry` objects.
            bucket: for entries that name none.
            on_error: "raise": the first entry that fails fails the batch. "return": an entry that is missing, damaged
                or out of reach is an item with ``error`` set and no bytes; what concerns the whole batch (a bucket
                that doesn't exist, a bad request) is raised still.
            timeout: seconds for the whole; None: the cluster's default (10 minutes).
            max_soft_errors: with "return": how many entries may fail before the batch does; None: any number.
            coloc: 0: any node assembles the batch; 1: the one that owns most entries; 2: also, entries of one shard
                are read together.
            strm: False: no byte is sent before the sizes and errors of all entries are known.
            copy: the bytes are read into memory and not mapped.
            id: the batch's name below ``.sheaf/batch``, 1 to 64 of ``A-Za-z0-9._-``; None: one that is free.

        Raises:
            ValueError: no entries, or an option that can't be.
            InvalidArgumentError: the mount refuses the request; the message is the mount's. Also a ValueError.
            TooManyEntriesError: split it.
            AlreadyExistsError: ``id`` is in use.
            NotFoundError, RangeError, ChecksumError, ...: an entry failed; ``index`` and ``entry`` say which.
            TimeoutError: ``timeout`` has passed; the batch is given up.
            UnavailableError, TooManyRequestsError: the cluster can't serve now; ``retryable`` is true.
            MountError: the mount died.
        """
        deadline = deadline_of(timeout)
        pending = self.submit(
            entries,
            bucket=bucket,
            on_error=on_error,
            timeout=timeout,
            max_soft_errors=max_soft_errors,
            coloc=coloc,
            strm=strm,
            copy=copy,
            id=id,
        )
        try:
            return pending.result(None if deadline is None else max(0.0, left(deadline)))
        except BaseException:
            pending.release()
            raise

    def get(self, entry: EntryLike, *, bucket: str | None = None, timeout: float | None = None) -> bytes:
        """All bytes of one object, member or range, written as for `batch`.

        It reads the file that the mount shows, which the system may have in memory; only what has no file, fails, or
        has a ``timeout`` is asked for as a batch of one, whose errors this raises.
        """
        parsed = parse(entry, bucket)
        if timeout is None and (found := self._read_file(parsed)) is not None:
            return found
        with self.batch([parsed], timeout=timeout) as one:
            return bytes(one[0].data)

    def _read_file(self, entry: Entry) -> bytes | None:
        """The bytes as the mount's file has them; None when that can't be told from here."""
        path = _file_of(entry)
        if path is None:
            return None
        try:
            fd = os.open(os.path.join(self.mount, path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                info = os.fstat(fd)
                start, length = entry.start, entry.length
                if length == -1 or (start, length) == (0, 0):
                    length = info.st_size - start
                if not stat.S_ISREG(info.st_mode) or start < 0 or length < 0 or start + length > info.st_size:
                    return None
                if start > 0 and entry.length == 0:
                    return None
                return _pread_all(fd, length, start)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return None


def _file_of(entry: Entry) -> str | None:
    """The path below the mount of an entry's file; None for a name that no file can have."""
    if not entry.archpath and ".tar@/" in entry.objname:
        return None  # the file of that name is a member
    if entry.provider or not entry.bucket[:1].isalnum():
        return None
    path = f"{entry.bucket}/{entry.objname}"
    if entry.archpath:
        path += f"@/{entry.archpath}"
    for part in path.split("/"):
        if part in ("", ".", "..") or len(part.encode("utf-8", "surrogatepass")) > 255:
            return None
    return path


def _pread_all(fd: int, length: int, start: int) -> bytes | None:
    """``length`` bytes from ``start``; None when the file ends before."""
    first = os.pread(fd, length, start)
    if len(first) == length:
        return first
    parts = [first]
    got = len(first)
    while got < length:
        part = os.pread(fd, length - got, start + got)
        if not part:
            return None
        parts.append(part)
        got += len(part)
    return b"".join(parts)
