"""Frames on a stream: taking bytes apart into them, and making them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from protocol.messages import BY_NAME, MAX_HEADER, MAX_PAYLOAD, Field, Header, Values, decode_header, read_lead
from protocol.msgpack import FormatError, Reader, Value, encode


class TruncatedError(FormatError):
    """The stream ends within a frame."""


@dataclass(frozen=True)
class Frame:
    """One frame's bytes."""

    header: bytes
    payload: bytes

    def message(self) -> Header:
        return decode_header(self.header)


def split(stream: bytes, at: int = 0) -> tuple[Frame, int]:
    """The frame at ``at`` and where the next one begins."""

    def take(n: int) -> bytes:
        nonlocal at
        if n > len(stream) - at:
            raise TruncatedError(f"{n} bytes wanted at byte {at}, {len(stream) - at} are left")
        at += n
        return stream[at - n : at]

    length = int.from_bytes(take(4), "big")
    if not 1 <= length <= MAX_HEADER:
        raise FormatError(f"a header of {length} bytes")
    header = take(length)
    _, payload, _ = read_lead(Reader(header, strict=False))
    return Frame(header, take(payload)), at


def frames(stream: bytes) -> Iterator[Frame]:
    """All frames of a stream that ended."""
    at = 0
    while at < len(stream):
        frame, at = split(stream, at)
        yield frame


def join(number: int, values: Mapping[str, Value], payload: bytes = b"") -> bytes:
    """The frame with these fields, in this order; empty ones aren't written."""
    if len(payload) > MAX_PAYLOAD:
        raise FormatError(f"a payload of {len(payload)} bytes")
    header: Values = {"t": number}
    if payload:
        header["p"] = len(payload)
    header.update(_written(values))
    raw = encode(header)
    if len(raw) > MAX_HEADER:
        raise FormatError(f"a header of {len(raw)} bytes")
    return len(raw).to_bytes(4, "big") + raw + payload


def make(name: str, values: Mapping[str, Value] | None = None, payload: bytes = b"") -> bytes:
    """The frame of a message by its name: fields checked, and in the order of the tables."""
    kind = BY_NAME[name]
    values = values or {}
    if unknown := values.keys() - kind.body.fields.keys():
        raise FormatError(f"{name} has no {sorted(unknown)}")
    if payload and not kind.payload:
        raise FormatError(f"{name} with a payload")
    ordered = _ordered(values, kind.body.fields)
    kind.body.finish(_written(ordered), name)
    return join(kind.number, ordered, payload)


def _written(values: Mapping[str, Value]) -> Values:
    out: Values = {}
    for key, value in values.items():
        if value in (0, "", []):  # False equals 0
            continue
        if isinstance(value, list):
            value = [_written(item) if isinstance(item, dict) else item for item in value]
        out[key] = value
    return out


def _ordered(values: Mapping[str, Value], fields: Mapping[str, Field]) -> Values:
    out: Values = {}
    for name, field in fields.items():
        if name not in values:
            continue
        value = values[name]
        of = getattr(getattr(field, "of", None), "fields", None)
        if of is not None and isinstance(value, list):
            value = [_ordered(item, of) if isinstance(item, dict) else item for item in value]
        out[name] = value
    return out
