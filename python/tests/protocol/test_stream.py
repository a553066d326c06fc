"""Whole answers, made with the encoder and read with the reference client."""

from __future__ import annotations

import pytest
import xxhash

from protocol.frames import make, split
from protocol.messages import MAX_PAYLOAD
from protocol.msgpack import Value
from protocol.reference import Answer, AnswerError, CallError, Entry, RedirectError, read_batch, read_object

BIG = bytes(i * 7 & 0xFF for i in range(2 * MAX_PAYLOAD + 1000))
BODIES = [b"first", BIG, b"", None, b"after a void piece", b"last"]
N = len(BODIES)


def accepted(n: int = N) -> bytes:
    return make("Accepted", {"id": "batch-1", "dt": "n2", "n": n})


def entry(i: int, data: bytes, piece: int = MAX_PAYLOAD) -> list[bytes]:
    """The chunks of one entry."""
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)] or [b""]
    out = []
    for k, part in enumerate(pieces):
        values: dict[str, Value] = {"i": i}
        if k == 0:
            values |= {"z": len(data), "v": 100 + i}
        if k == len(pieces) - 1:
            values |= {"x": xxhash.xxh3_64_intdigest(data), "e": True}
        out.append(make("Chunk", values, part))
    return out


def failed(i: int, code: int = 1) -> bytes:
    return make("EntryError", {"i": i, "code": code, "op": "get", "bucket": "b", "objname": f"o{i}", "msg": "gone"})


def end(entries: int = N, failures: int = 1, size: int | None = None) -> bytes:
    size = sum(len(body or b"") for body in BODIES) if size is None else size
    return make("End", {"entries": entries, "failed": failures, "bytes": size})


def answer() -> list[bytes]:
    """A batch of six: one of three chunks, an empty one, a placeholder after a piece."""
    out = [accepted()]
    for i, body in enumerate(BODIES):
        if body is None:
            out += [make("Chunk", {"i": i, "z": 50, "v": 3}, b"a piece that is void"), failed(i, 20)]
        else:
            out += entry(i, body)
    return [*out, end()]


def read(parts: list[bytes], *, n: int = N, nostrm: bool = False, coer: bool = True) -> Answer:
    return read_batch(b"".join(parts), batch="batch-1", n=n, nostrm=nostrm, coer=coer)


def test_batch() -> None:
    got = read(answer())
    assert got.dt == "n2"
    assert len(answer()) == 1 + 1 + 3 + 1 + 2 + 1 + 1 + 1
    assert got.entries == [
        Entry(code=20) if body is None else Entry(body, version=100 + i) for i, body in enumerate(BODIES)
    ]


def test_an_empty_entry_is_one_chunk_without_payload() -> None:
    (chunk,) = entry(9, b"")
    frame, _ = split(chunk)
    assert frame.payload == b""
    assert frame.message().values == {"i": 9, "v": 109, "x": 0x2D06800538D394C2, "e": True}


def test_metadata_first() -> None:
    metas: list[Value] = [
        {"i": i, "code": 20, "msg": "gone", "node": "n3"} if body is None else {"i": i, "z": len(body), "v": 100 + i}
        for i, body in enumerate(BODIES)
    ]
    split_meta = [make("EntryMeta", {"meta": metas[:4]}), make("EntryMeta", {"meta": metas[4:]})]
    first, *rest = answer()
    got = read([first, *split_meta, *rest], nostrm=True)
    assert [meta.get("z", 0) for meta in got.meta] == [len(body or b"") for body in BODIES]
    assert got.meta[3] == {"i": 3, "code": 20, "msg": "gone", "node": "n3"}
    for wrong in (
        [first, split_meta[0], *rest],
        [first, split_meta[1], split_meta[0], *rest],
        [first, rest[0], *split_meta, *rest[1:]],
        [first, *split_meta, split_meta[1], *rest],
    ):
        with pytest.raises(AnswerError):
            read(wrong, nostrm=True)
    with pytest.raises(AnswerError, match="out of place"):
        read([first, *split_meta, *rest])


def test_a_truncated_stream_is_an_error_wherever_it_ends() -> None:
    small = [accepted(3), *entry(0, b"abcdef", 2), failed(1), *entry(2, b""), end(3, 1, 6)]
    whole = b"".join(small)
    assert len(read(small, n=3).entries) == 3
    for n in range(len(whole)):
        with pytest.raises(AnswerError):
            read([whole[:n]], n=3)
    parts = answer()
    for n in range(len(parts)):
        with pytest.raises(AnswerError, match="without End"):
            read(parts[:n])


def test_what_is_wrong_is_seen() -> None:
    one, two = entry(0, b"abc", 2)
    good = [accepted(2), one, two, *entry(1, b"z"), end(2, 0, 4)]
    assert [e.data for e in read(good, n=2).entries] == [b"abc", b"z"]
    last = good[3]
    wrong: dict[str, list[bytes]] = {
        "fewer bytes than z": [
            good[0],
            make("Chunk", {"z": 4, "v": 1, "x": xxhash.xxh3_64_intdigest(b"abc"), "e": True}, b"abc"),
            last,
            good[4],
        ],
        "more bytes than z": [
            good[0],
            make("Chunk", {"z": 2, "v": 1, "x": xxhash.xxh3_64_intdigest(b"abc"), "e": True}, b"abc"),
            last,
            good[4],
        ],
        "the wrong order": [good[0], last, one, two, good[4]],
        "mixed": [good[0], one, last, two, good[4]],
        "a lost chunk": [good[0], two, last, good[4]],
        "no last chunk": [good[0], one, last, good[4]],
        "an entry twice": [*good[:3], one, two, last, good[4]],
        "an entry too many": [*good[:4], *entry(2, b""), good[4]],
        "a lost entry": [*good[:3], end(2, 0, 4)],
        "no Accepted": good[1:],
        "Accepted twice": [good[0], *good],
        "another batch": [make("Accepted", {"id": "batch-2", "n": 2}), *good[1:]],
        "another n": [accepted(3), *good[1:]],
        "a frame after End": [*good, good[4]],
        "another count": [*good[:4], end(1, 0, 4)],
        "failures that weren't": [*good[:4], end(2, 1, 4)],
        "fewer bytes": [*good[:4], end(2, 0, 3)],
        "Data": [good[0], make("Data", payload=b"abc"), *good[1:]],
        "garbage": [*good[:4], b"\0\0\0\1\xc1"],
    }
    for what, parts in wrong.items():
        with pytest.raises(AnswerError):
            pytest.fail(f"{what}: {read(parts, n=2)}")


def test_every_flipped_bit_of_data_is_seen() -> None:
    parts = [accepted(1), *entry(0, b"abcdefgh"), end(1, 0, 8)]
    stream = bytearray(b"".join(parts))
    at = stream.index(b"abcdefgh")
    for bit in range(64):
        stream[at + bit // 8] ^= 1 << bit % 8
        with pytest.raises(AnswerError, match="checksum"):
            read([bytes(stream)], n=1)
        stream[at + bit // 8] ^= 1 << bit % 8


def test_without_coer_the_first_failure_ends_the_batch() -> None:
    aborted = make("End", {"code": 1, "op": "entry 1", "objname": "o1", "entries": 1, "bytes": 1})
    with pytest.raises(CallError) as caught:
        read([accepted(3), *entry(0, b"a"), aborted], n=3, coer=False)
    assert (caught.value.code, caught.value.op) == (1, "entry 1")
    with pytest.raises(AnswerError, match="wasn't asked for"):
        read([accepted(1), failed(0), end(1, 1, 0)], n=1, coer=False)
    with pytest.raises(AnswerError, match="wasn't asked for"):
        read([accepted(1), failed(0, 13), end(1, 1, 0)], n=1)


def test_redirect() -> None:
    parts = [make("Redirect", {"name": "n3", "addr": "10.0.0.3:7070"}), make("End")]
    with pytest.raises(RedirectError, match=r"10\.0\.0\.3:7070"):
        read(parts)
    with pytest.raises(AnswerError, match="without End"):
        read(parts[:1])


def test_get() -> None:
    data = b"some bytes"
    found = make("Object", {"name": "o", "size": 10, "version": 4, "sum": xxhash.xxh3_64_intdigest(data)})
    pieces = [make("Data", payload=data[:4]), make("Data", payload=data[4:])]
    trailer = make("End", {"bytes": 10, "sum": xxhash.xxh3_64_intdigest(data)})
    whole = b"".join([found, *pieces, trailer])
    values, got = read_object(whole)
    assert (values["version"], got) == (4, data)
    for n in range(len(whole)):
        with pytest.raises(AnswerError):
            read_object(whole[:n])
    for parts in ([found, *pieces[::-1], trailer], [found, pieces[0], trailer], [*pieces, found, trailer]):
        with pytest.raises(AnswerError):
            read_object(b"".join(parts))
