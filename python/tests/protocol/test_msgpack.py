"""The msgpack reader, by the format's own tables."""

from __future__ import annotations

import pytest

from protocol.msgpack import MAX_DEPTH, FormatError, Reader, Value, decode, encode


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("c0", None),
        ("c2", False),
        ("c3", True),
        ("00", 0),
        ("7f", 127),
        ("cc80", 128),
        ("ccff", 255),
        ("cd0100", 256),
        ("cdffff", 65535),
        ("ce00010000", 65536),
        ("ceffffffff", 2**32 - 1),
        ("cf0000000100000000", 2**32),
        ("cfffffffffffffffff", 2**64 - 1),
        ("ff", -1),
        ("e0", -32),
        ("d0df", -33),
        ("d080", -128),
        ("d1ff7f", -129),
        ("d18000", -32768),
        ("d2ffff7fff", -32769),
        ("d280000000", -(2**31)),
        ("d3ffffffff7fffffff", -(2**31) - 1),
        ("d38000000000000000", -(2**63)),
        ("ca3f000000", 0.5),
        ("cb3fb999999999999a", 0.1),
        ("a0", ""),
        ("a3e282ac", "€"),
        ("d920" + "61" * 32, "a" * 32),
        ("da0100" + "61" * 256, "a" * 256),
        ("db00010000" + "61" * 65536, "a" * 65536),
        ("c400", b""),
        ("c403010203", b"\1\2\3"),
        ("c50100" + "00" * 256, bytes(256)),
        ("c600010000" + "00" * 65536, bytes(65536)),
        ("90", []),
        ("93010203", [1, 2, 3]),
        ("dc0010" + "00" * 16, [0] * 16),
        ("dd00010000" + "00" * 65536, [0] * 65536),
        ("80", {}),
        ("82a16101a1629102", {"a": 1, "b": [2]}),
        ("de0010" + "".join(f"a1{i:02x}c0" for i in range(16)), dict.fromkeys(map(chr, range(16)))),
    ],
)
def test_values(text: str, want: Value) -> None:
    got = decode(bytes.fromhex(text))
    assert got == want
    assert type(got) is type(want)


@pytest.mark.parametrize(
    "text", ["cdffff", "d38000000000000000", "a3e282ac", "c403010203", "82a16101a1629102", "cb3fb999999999999a"]
)
def test_every_cut_is_seen(text: str) -> None:
    whole = bytes.fromhex(text)
    for n in range(len(whole)):
        with pytest.raises(FormatError):
            decode(whole[:n])
    with pytest.raises(FormatError):
        decode(whole + b"\0")


@pytest.mark.parametrize(
    "text",
    [
        "cc7f",
        "cd00ff",
        "ce0000ffff",
        "cf00000000ffffffff",
        "d07f",
        "d0e0",
        "d1ff80",
        "d10080",
        "d2ffff8000",
        "d200008000",
        "d3ffffffff80000000",
        "d30000000080000000",
        "d91f" + "61" * 31,
        "da00ff" + "61" * 255,
        "db0000ffff" + "61" * 65535,
        "c500ff" + "00" * 255,
        "c60000ffff" + "00" * 65535,
        "dc000f" + "00" * 15,
        "dd0000ffff" + "00" * 65535,
        "de0001a161c0",
        "df00000001a161c0",
    ],
)
def test_longer_forms_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match="shorter form"):
        decode(bytes.fromhex(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "wanted"),
        ("c1", "type 0xc1"),
        ("d40100", "type 0xd4"),
        ("c70101ff", "type 0xc7"),
        ("a1ff", "UTF-8"),
        ("82a161c0a161c0", "twice"),
        ("81c0c0", "key"),
        ("81c2c0", "key"),
        ("8101c0", "key"),
        ("ddffffffff", "array of 4294967295"),
        ("dfffffffff", "map of 4294967295"),
        ("dbffffffff", "wanted"),
        ("c6ffffffff", "wanted"),
        ("91" * 40 + "c0", "deeper"),
    ],
)
def test_hostile_bytes(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode(bytes.fromhex(text))


@pytest.mark.parametrize(
    "value",
    [
        0,
        127,
        128,
        255,
        256,
        65535,
        65536,
        2**32 - 1,
        2**32,
        2**64 - 1,
        -1,
        -32,
        -33,
        -128,
        -129,
        -32768,
        -32769,
        -(2**31),
        -(2**31) - 1,
        -(2**63),
        False,
        True,
        *("ö" * n for n in (0, 15, 16, 127, 128, 32767, 32768)),
        *([7] * n for n in (0, 15, 16, 65535, 65536)),
        *({str(i): i for i in range(n)} for n in (0, 15, 16, 65535, 65536)),
        {"z": [{"a": "b"}, -5], "a": True},
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:12]}",
)
def test_encode_is_read_back_by_the_strict_reader(value: Value) -> None:
    raw = encode(value)
    got = decode(raw)
    assert got == value
    assert type(got) is type(value)
    reader = Reader(raw)
    reader.skip()
    assert reader.at == len(raw)


@pytest.mark.parametrize("value", [None, 0.5, b"x", 2**64, -(2**63) - 1, [None], {"a": {"b": 0.5}}])
def test_encode_has_no_form_for(value: Value) -> None:
    with pytest.raises(FormatError):
        encode(value)


def test_depth() -> None:
    assert decode(b"\x91" * (MAX_DEPTH - 1) + b"\x90") is not None
    for text in (b"\x91" * MAX_DEPTH + b"\x90", b"\x81\xa1a" * MAX_DEPTH + b"\x80", b"\x91" * 100_000 + b"\x90"):
        with pytest.raises(FormatError, match="deeper"):
            decode(text)
        with pytest.raises(FormatError, match="deeper"):
            Reader(text).skip()


@pytest.mark.parametrize(
    "text",
    (
        "c0 c2 ca00000000 cb0000000000000000 c403ffffff d40100 d801" + "00" * 16 + " c70201ffff c8000001 "
        "c90000000101ff a2ffff 82c0c090c2 dc000101 de0001c0c0 d90161 d07f"
    ).split(),
)
def test_skip(text: str) -> None:
    whole = bytes.fromhex(text)
    reader = Reader(whole + b"\x05", strict=False)
    reader.skip()
    assert reader.value() == 5
    for n in range(len(whole)):
        with pytest.raises(FormatError):
            Reader(whole[:n], strict=False).skip()


@pytest.mark.parametrize("text", ["c1", "dfffffffff", "ddffffffff", "c9ffffffff00", "91c1"])
def test_skip_refuses(text: str) -> None:
    with pytest.raises(FormatError):
        Reader(bytes.fromhex(text), strict=False).skip()
