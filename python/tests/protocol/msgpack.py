"""A reader of msgpack and a writer of the one form that the protocol allows.

The reader is strict unless told otherwise: every value in its shortest form, nothing twice, nothing after the end.
https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from __future__ import annotations

import struct
from typing import TypeAlias

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[str, Value] | None"

MAX_DEPTH = 16  # arrays and maps within each other, the outermost counted
MAX_UINT = 2**64 - 1
MIN_INT = -(2**63)

_UINTS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_INTS = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_STRS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BINS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_EXTS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXEXTS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class FormatError(ValueError):
    """The bytes are not msgpack, or not in the one form that the protocol allows."""


def decode(buf: bytes) -> Value:
    """Decode exactly one value."""
    reader = Reader(buf)
    value = reader.value()
    if reader.at != len(buf):
        raise FormatError(f"{len(buf) - reader.at} bytes after the value")
    return value


def encode(value: Value) -> bytes:
    """The canonical form: shortest everywhere, the keys of a map in its order; only types that the protocol has."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return _encode_int(value)
    if isinstance(value, str):
        raw = value.encode("utf-8")
        return _encode_length(len(raw), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + raw
    if isinstance(value, list):
        return _encode_length(len(value), 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(map(encode, value))
    if isinstance(value, dict):
        head = _encode_length(len(value), 0x80, 16, (None, 0xDE, 0xDF))
        return head + b"".join(encode(key) + encode(item) for key, item in value.items())
    raise FormatError(f"the protocol has no {type(value).__name__}")


def _encode_int(n: int) -> bytes:
    if not MIN_INT <= n <= MAX_UINT:
        raise FormatError(f"{n} has more than 64 bits")
    if -0x20 <= n <= 0x7F:
        return (n & 0xFF).to_bytes(1, "big")
    for tag, width in (_UINTS if n > 0 else _INTS).items():
        try:
            return bytes([tag]) + n.to_bytes(width, "big", signed=n < 0)
        except OverflowError:
            continue
    raise AssertionError(n)


def _encode_length(n: int, fix: int, under: int, tags: tuple[int | None, int, int]) -> bytes:
    if n < under:
        return bytes([fix | n])
    for tag, width in zip(tags, (1, 2, 4), strict=True):
        if tag is not None and n < 1 << (8 * width):
            return bytes([tag]) + n.to_bytes(width, "big")
    raise FormatError(f"a length of {n}")


class Reader:
    """Values one after the other, from ``at``.

    With ``strict`` false it takes what the protocol's readers take: longer forms, and of a key that comes twice
    the last one.
    """

    def __init__(self, buf: bytes, at: int = 0, *, strict: bool = True) -> None:
        self.buf = buf
        self.at = at
        self.strict = strict

    def value(self, depth: int = 0) -> Value:
        """The next value; raises `FormatError`."""
        tag = self._take(1)[0]
        if tag <= 0x7F:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag <= 0x8F:
            return self._map(tag & 0x0F, depth)
        if tag <= 0x9F:
            return self._array(tag & 0x0F, depth)
        if tag <= 0xBF:
            return self._str(tag & 0x1F)
        if tag == 0xC0:
            return None
        if tag in (0xC2, 0xC3):
            return tag == 0xC3
        if tag in (0xCA, 0xCB):
            return self._float(tag)
        if tag in _UINTS or tag in _INTS:
            return self._int(tag)
        if tag in _STRS:
            return self._str(self._length(_STRS[tag], 32))
        if tag in _BINS:
            return self._take(self._length(_BINS[tag], 0))
        if tag in _ARRAYS:
            return self._array(self._length(_ARRAYS[tag], 16), depth)
        if tag in _MAPS:
            return self._map(self._length(_MAPS[tag], 16), depth)
        raise FormatError(f"type {tag:#04x} at byte {self.at - 1}")

    def skip(self, depth: int = 0) -> None:
        """Pass over the next value, of whatever type, without building it."""
        tag = self._take(1)[0]
        if tag <= 0x7F or tag >= 0xE0 or tag in (0xC0, 0xC2, 0xC3):
            return
        if tag in (0xCA, 0xCB):
            self._take(4 if tag == 0xCA else 8)
        elif tag in _UINTS or tag in _INTS:
            self._take(_UINTS.get(tag) or _INTS[tag])
        elif 0xA0 <= tag <= 0xBF:
            self._take(tag & 0x1F)
        elif tag in _STRS or tag in _BINS:
            self._take(self._plain_length(_STRS.get(tag) or _BINS[tag]))
        elif tag in _EXTS:
            self._take(self._plain_length(_EXTS[tag]) + 1)
        elif tag in _FIXEXTS:
            self._take(_FIXEXTS[tag] + 1)
        elif tag == 0xC1:
            raise FormatError(f"type {tag:#04x} at byte {self.at - 1}")
        else:
            self.at -= 1
            n = 2 * self.map_length(depth) if tag <= 0x8F or tag in _MAPS else self.array_length(depth)
            for _ in range(n):
                self.skip(depth + 1)

    def array_length(self, depth: int) -> int:
        """The head of an array; its values follow."""
        tag = self._take(1)[0]
        if 0x90 <= tag <= 0x9F:
            return self._count("an array", tag & 0x0F, 1, depth)
        if tag in _ARRAYS:
            return self._count("an array", self._length(_ARRAYS[tag], 16), 1, depth)
        raise FormatError(f"type {tag:#04x} at byte {self.at - 1}, not an array")

    def map_length(self, depth: int) -> int:
        """The head of a map; its keys and values follow."""
        tag = self._take(1)[0]
        if 0x80 <= tag <= 0x8F:
            return self._count("a map", tag & 0x0F, 2, depth)
        if tag in _MAPS:
            return self._count("a map", self._length(_MAPS[tag], 16), 2, depth)
        raise FormatError(f"type {tag:#04x} at byte {self.at - 1}, not a map")

    def peek(self) -> int:
        """The next byte, which stays."""
        tag = self._take(1)[0]
        self.at -= 1
        return tag

    def _count(self, what: str, n: int, each: int, depth: int) -> int:
        """Check a count, before anything is allocated for it."""
        if depth >= MAX_DEPTH:
            raise FormatError(f"deeper than {MAX_DEPTH} at byte {self.at}")
        if each * n > len(self.buf) - self.at:
            raise FormatError(f"{what} of {n} in {len(self.buf) - self.at} bytes")
        return n

    def _plain_length(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _take(self, n: int) -> bytes:
        if n > len(self.buf) - self.at:
            raise FormatError(f"{n} bytes wanted at byte {self.at}, {len(self.buf) - self.at} are left")
        self.at += n
        return self.buf[self.at - n : self.at]

    def _int(self, tag: int) -> int:
        width = _UINTS.get(tag) or _INTS[tag]
        n = int.from_bytes(self._take(width), "big", signed=tag in _INTS)
        if tag in _UINTS:
            least = 0x80 if width == 1 else 1 << (4 * width)
            short = n >= least
        else:
            most = -0x21 if width == 1 else -(1 << (4 * width - 1)) - 1
            short = n <= most
        if self.strict and not short:
            raise FormatError(f"{n} in {width} bytes, which has a shorter form")
        return n

    def _float(self, tag: int) -> float:
        form = ">f" if tag == 0xCA else ">d"
        (x,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return float(x)

    def _length(self, width: int, shorter: int) -> int:
        """A length of ``width`` bytes; lengths under ``shorter`` have a form without any."""
        n = int.from_bytes(self._take(width), "big")
        least = 1 << (4 * width) if width > 1 else 0
        if width == 2 and shorter == 16:  # arrays and maps have no form of one byte
            least = 0
        if self.strict and n < max(least, shorter):
            raise FormatError(f"a length of {n} in {width} bytes, which has a shorter form")
        return n

    def _str(self, n: int) -> str:
        raw = self._take(n)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as err:
            raise FormatError(f"a string that isn't UTF-8: {raw[:40]!r}") from err

    def _array(self, n: int, depth: int) -> list[Value]:
        self._count("an array", n, 1, depth)
        return [self.value(depth + 1) for _ in range(n)]

    def _map(self, n: int, depth: int) -> dict[str, Value]:
        self._count("a map", n, 2, depth)
        out: dict[str, Value] = {}
        for _ in range(n):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                raise FormatError(f"a key that is {type(key).__name__}")
            if self.strict and key in out:
                raise FormatError(f"key {key!r} twice")
            out[key] = self.value(depth + 1)
        return out
