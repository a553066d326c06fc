"""The index of a batch: a header and one row an entry (docs/mount.md, "A batch's files")."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from sheaf.errors import ProtocolError

MAGIC = b"SHEAFIX1"
HEADER = struct.Struct("<8sIIQ40x")
ROW = struct.Struct("<QQQII")


class Row(NamedTuple):
    """One entry: where its payload lies in ``data``.

    ``offset`` and ``length`` are bytes, ``checksum`` is the xxh3-64 (seed 0) of the payload, ``status`` is 0 or
    the error code, ``errno`` the same as an errno of this machine.
    """

    offset: int
    length: int
    checksum: int
    status: int
    errno: int


class Index:
    """A whole index, decoded row by row when asked.

    A later version may have a longer header or longer rows, whose rest is passed over.
    """

    def __init__(self, buf: bytes) -> None:
        """Check the header and the size; raises `ProtocolError` for an index that is cut or isn't one."""
        if len(buf) < HEADER.size:
            raise ProtocolError(f"the index ends inside its header, after {len(buf)} bytes")
        magic, self._first, self._stride, self._n = HEADER.unpack_from(buf)
        if magic != MAGIC:
            raise ProtocolError(f"not an index: it begins with {magic!r}")
        if self._first < HEADER.size or self._stride < ROW.size:
            raise ProtocolError(f"an index with a header of {self._first} bytes and rows of {self._stride}")
        if len(buf) != self._first + self._stride * self._n:
            raise ProtocolError(f"an index of {self._n} entries that has {len(buf)} bytes")
        self._buf = buf

    def __len__(self) -> int:
        return int(self._n)

    def __getitem__(self, i: int) -> Row:
        if not 0 <= i < self._n:
            raise IndexError(i)
        return Row._make(ROW.unpack_from(self._buf, self._first + i * self._stride))

    def __iter__(self) -> Iterator[Row]:
        for at in range(self._first, len(self._buf), self._stride):
            yield Row._make(ROW.unpack_from(self._buf, at))
