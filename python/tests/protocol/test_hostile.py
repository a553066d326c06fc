"""Bytes that a reader must refuse, and bytes that it must not mind."""

from __future__ import annotations

import pytest

from protocol.frames import TruncatedError, frames, join, make, split
from protocol.messages import (
    MAX_HEADER,
    MAX_PAYLOAD,
    UnknownMessageError,
    Values,
    check_canonical,
    decode_header,
)
from protocol.msgpack import FormatError, Value, encode


def framed(header: bytes, payload: bytes = b"") -> bytes:
    return len(header).to_bytes(4, "big") + header + payload


def header(*pairs: tuple[str, bytes]) -> bytes:
    """A map of ready-made values; a key may come twice."""
    return bytes([0x80 | len(pairs)]) + b"".join(encode(key) + value for key, value in pairs)


def t(number: int) -> tuple[str, bytes]:
    return "t", encode(number)


GET = (t(31), ("bucket", encode("b")), ("objname", encode("o")))


@pytest.mark.parametrize("length", [0, MAX_HEADER + 1, 2**32 - 1])
def test_header_lengths(length: int) -> None:
    """Refused by the length alone: nothing more is waited for."""
    with pytest.raises(FormatError, match="header of") as caught:
        split(length.to_bytes(4, "big"))
    assert not isinstance(caught.value, TruncatedError)


def test_the_longest_header_and_payload() -> None:
    pad = MAX_HEADER - len(header(t(38), ("z", b"\xc6" + bytes(4))))
    longest = header(t(38), ("z", b"\xc6" + pad.to_bytes(4, "big") + bytes(pad)))
    assert len(longest) == MAX_HEADER
    frame, _ = split(framed(longest))
    assert frame.message().kind.name == "Data"
    frame, _ = split(make("Data", payload=bytes(MAX_PAYLOAD)))
    assert frame.message().payload == MAX_PAYLOAD
    with pytest.raises(FormatError, match="payload"):
        make("Data", payload=bytes(MAX_PAYLOAD + 1))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x80", "first key"),
        (b"\x91\x01", "not a map"),
        (b"\xa1t", "not a map"),
        (b"\xc0", "not a map"),
        (header(("p", b"\1"), t(38)), "first key"),
        (header(("bucket", encode("b")), t(31)), "first key"),
        (header(("t", encode("38"))), "not uint"),
        (header(("t", b"\xff")), "not 0 to"),
        (header(("t", b"\xc0")), "not uint"),
        (header(("t", b"\xcb" + bytes(8))), "not uint"),
        (header(t(38), ("p", encode(MAX_PAYLOAD + 1))), "not 0 to"),
        (header(t(38), ("p", b"\xff")), "not 0 to"),
        (header(t(38), ("p", b"\xcf" + b"\xff" * 8)), "not 0 to"),
        (header(t(38), ("p", b"\xc3")), "not uint"),
        (b"\xdf\xff\xff\xff\xff", "map of"),
        (b"\x82\xa1t", "wanted|map of"),
    ],
)
def test_a_frame_is_refused(raw: bytes, words: str) -> None:
    """By what is needed to find its end."""
    with pytest.raises(FormatError, match=words):
        split(framed(raw, bytes(16)))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (header(*GET) + b"\xc0", "after the map"),
        (header(*GET) + header(*GET), "after the map"),
        (header(t(38), ("z", b"\1"), ("p", b"\1")), "first keys"),
        (header(*GET, ("z", b"\x91" * 40 + b"\xc0")), "deeper"),
        (header(*GET, ("z", b"\x91" * 100_000 + b"\xc0")), "deeper"),
        (header(*GET, ("z", b"\xc1")), "type 0xc1"),
        (header(*GET, ("z", b"\xdd\xff\xff\xff\xff")), "array of"),
        (header(*GET, ("z", b"\xdb\xff\xff\xff\xff")), "wanted"),
        (header(*GET, ("archpath", b"\xa1\xff")), "UTF-8"),
        (header(*GET, ("archpath", b"\xc4\1a")), "not str"),
        (header(*GET, ("archpath", b"\xc0")), "not str"),
        (header(*GET, ("archpath", b"\1")), "not str"),
        (header(*GET, ("fwd", b"\1")), "not bool"),
        (header(*GET, ("length", encode("1"))), "not int"),
        (header(*GET, ("length", b"\xca" + bytes(4))), "not int"),
        (header(*GET, ("length", encode(2**63))), "not"),
        (header(*GET, ("length", b"\xd4\1\1")), "type 0xd4"),
        (header(t(41), ("in", encode({}))), "not an array"),
        (header(t(41), ("in", encode([1]))), "not a map"),
        (header(t(41), ("in", b"\xdd\xff\xff\xff\xff")), "array of"),
        (header(t(41), ("in", encode([{"objname": "o"}] * 513))), "more than 512"),
        (header(t(46), ("meta", encode([{"z": 1}] * 513))), "more than 512"),
        (header(t(1), ("version", b"\1"), ("caps", encode(["c"] * 65))), "more than 64"),
        (header(t(1), ("version", b"\1"), ("caps", encode(["c" * 65]))), "more than 64"),
        (header(t(1), ("version", b"\1"), ("caps", encode([1]))), "not str"),
        (header(t(11), ("nodes", encode([{"name": f"{i:05}"} for i in range(4097)]))), "more than 4096"),
        (header(t(2), ("code", b"\1"), ("msg", encode("m" * 4097))), "more than 4096"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_header_is_refused(raw: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode_header(raw)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Get", {"bucket": "b"}),
        ("Get", {"objname": "o"}),
        ("Get", {"bucket": "b", "objname": "o" * 1025}),
        ("Get", {"bucket": "b", "objname": "a/../b"}),
        ("Get", {"bucket": "b", "objname": "./b"}),
        ("Get", {"bucket": "b", "objname": "a\0"}),
        ("Get", {"bucket": "b", "objname": "o", "archpath": "/m"}),
        ("Get", {"bucket": "b", "objname": "o", "archpath": "m" * 4097}),
        ("Get", {"bucket": "b", "objname": "o", "start": 5}),
        ("Get", {"bucket": "b", "objname": "o", "start": -1, "length": 1}),
        ("Get", {"bucket": "b", "objname": "o", "length": -2}),
        ("BucketCreate", {}),
        ("BucketCreate", {"name": ".b"}),
        ("BucketCreate", {"name": "b" * 64}),
        ("BucketCreate", {"name": "ö"}),
        ("List", {"bucket": "b", "limit": 10_001}),
        ("List", {"bucket": "b", "delimiter": "-"}),
        ("Batch", {"n": 1}),
        ("Batch", {"id": "b"}),
        ("Batch", {"id": "b", "n": 65_537}),
        ("Batch", {"id": "b" * 65, "n": 1}),
        ("Batch", {"id": "b/", "n": 1}),
        ("Batch", {"id": "b", "n": 1, "output_format": "zip"}),
        ("Batch", {"id": "b", "n": 1, "max_soft_errors": -2}),
        ("Batch", {"id": "b", "n": 1, "coloc": 3}),
        ("Map", {"nodes": [{"name": "b"}, {"name": "a"}]}),
        ("EntryMeta", {"meta": [{"z": 1, "code": 1}]}),
        ("Status", {"bucket": "b"}),
    ],
)
def test_a_message_is_refused(name: str, values: Values) -> None:
    with pytest.raises(FormatError):
        make(name, values)


@pytest.mark.parametrize("number", [0, 3, 48, 2**64 - 1])
def test_an_unknown_message_can_be_passed_over(number: int) -> None:
    """Its frame can be split off all the same, so a node can answer it with NotSupported."""
    stream = framed(header(t(number), ("p", b"\2"), ("z", b"\xc0")), b"ab") + make("Status")
    first, second = frames(stream)
    with pytest.raises(UnknownMessageError):
        first.message()
    assert first.payload == b"ab"
    assert second.message().kind.name == "Status"


@pytest.mark.parametrize(
    "value",
    (
        "c0 c2 ca3f800000 cb3ff0000000000000 c402ffff d40100 c70301ffffff a1ff 92c0c4017f 82c0c0c2c2 81a174a170 "
        "cf0000000000000001 dd00000001c0 " + "91" * 12 + "01"
    ).split(),
)
def test_unknown_keys_are_skipped(value: str) -> None:
    raw = bytes.fromhex(value)
    inner = b"\xa2in\x91" + b"\x82" + encode("new") + raw + encode("objname") + encode("o")
    assert decode_header(b"\x82\xa1t\x29" + inner).values == {"in": [{"objname": "o"}]}
    got = decode_header(header(t(31), ("new", raw), *GET[1:], ("also", raw)))
    assert got.values == {"bucket": "b", "objname": "o"}


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    raw = header(*GET, ("objname", encode("last")))
    assert decode_header(raw).values["objname"] == "last"
    with pytest.raises(FormatError, match="twice"):
        check_canonical(raw)


def test_fields_come_in_any_order() -> None:
    values: dict[str, Value] = {"objname": "o", "fwd": True, "bucket": "b"}
    frame, _ = split(join(31, values))
    assert frame.message().values == values
    with pytest.raises(FormatError, match="order"):
        check_canonical(frame.header)


@pytest.mark.parametrize(
    "raw",
    [
        header(*GET, ("archpath", encode(""))),
        header(*GET, ("start", b"\0")),
        header(*GET, ("fwd", b"\xc2")),
        header(t(38), ("p", b"\0")),
        header(t(41), ("in", b"\x90")),
        header(t(41), ("in", encode([{"i": 0, "objname": "o"}]))),
        header(*GET, ("new", b"\1")),
        header(*GET, ("start", b"\xcc\1"), ("length", b"\1")),
        header(t(31), ("bucket", b"\xd9\1b"), ("objname", encode("o"))),
        header(t(31), ("p", b"\1"), *GET[1:]),
    ],
)
def test_what_a_writer_may_not_write(raw: bytes) -> None:
    with pytest.raises(FormatError):
        check_canonical(raw)
