"""Every golden vector against the specification's tables, and the tables against the specification's text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import xxhash

from protocol.frames import join, make, split
from protocol.messages import BY_NUMBER, ERRORS, SOFT, Array, Field, Map, Values, as_values, check_canonical
from protocol.msgpack import FormatError, Value

ROOT = Path(__file__).resolve().parents[3]
VECTORS = ROOT / "peer" / "testdata" / "vectors"
SPEC = ROOT / "docs" / "protocol.md"
PATHS = sorted(VECTORS.glob("*.json"))


@dataclass(frozen=True)
class Vector:
    """One file."""

    name: str
    type: int
    raw: bytes
    fields: Values
    payload: bytes


def load(path: Path) -> Vector:
    text = json.loads(path.read_text(encoding="utf-8"))
    assert set(text) == {"name", "type", "hex", "fields", "payload"}
    return Vector(
        text["name"], text["type"], bytes.fromhex(text["hex"]), text["fields"], bytes.fromhex(text["payload"])
    )


def same(a: Value, b: Value) -> bool:
    """Equal, and true isn't 1."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def test_there_are_vectors() -> None:
    assert VECTORS.is_dir()
    assert len(PATHS) >= 30


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    vector = load(path)
    assert vector.name == path.stem
    frame, end = split(vector.raw)
    assert end == len(vector.raw)
    assert frame.payload == vector.payload

    header = check_canonical(frame.header)
    assert same(header, vector.fields)
    assert header["t"] == vector.type
    assert header.get("p", 0) == len(vector.payload)

    body = {name: value for name, value in header.items() if name not in ("t", "p")}
    assert join(vector.type, body, vector.payload) == vector.raw
    shuffled = dict(sorted(body.items(), reverse=True))
    assert make(BY_NUMBER[vector.type].name, shuffled, vector.payload) == vector.raw

    read = frame.message()
    assert read.kind.number == vector.type
    assert read.payload == len(vector.payload)
    assert same(read.values, body)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_cut_of_a_vector_is_seen(path: Path) -> None:
    vector = load(path)
    for n in range(len(vector.raw)):
        with pytest.raises(FormatError):
            split(vector.raw[:n])


def test_every_message_has_a_vector() -> None:
    assert {load(path).type for path in PATHS} == set(BY_NUMBER)


def test_every_field_has_a_vector() -> None:
    """All but those that no vector shows yet; a vector for one of them shortens the list."""
    seen: set[str] = set()
    known: set[str] = set()
    for path in PATHS:
        vector = load(path)
        kind = BY_NUMBER[vector.type]
        names_of_schema(kind.body, kind.name, known)
        names_of_value(vector.fields, kind.name, seen)
    assert known - seen == {
        "BucketCreate.created",
        "BucketCreate.deleted",
        "BucketCreate.epoch",
        "BucketCreate.placed",
        "BucketCreate.provider",
        "BucketDestroy.created",
        "BucketDestroy.deleted",
        "BucketDestroy.epoch",
        "BucketDestroy.placed",
        "BucketDestroy.provider",
        "EntryError.archpath",
        "EntryError.msg",
        "EntryMeta.meta.node",
        "Send.nostrm",
    }


def names_of_schema(body: Map, where: str, out: set[str]) -> None:
    for name, known in body.fields.items():
        out.add(f"{where}.{name}")
        if isinstance(known, Array) and isinstance(known.of, Map):
            names_of_schema(known.of, f"{where}.{name}", out)


def names_of_value(value: Value, where: str, out: set[str]) -> None:
    if isinstance(value, list):
        for item in value:
            names_of_value(item, where, out)
    elif isinstance(value, dict):
        for name, item in as_values(value, where).items():
            out.add(f"{where}.{name}")
            names_of_value(item, f"{where}.{name}", out)


def test_checksum_of_an_empty_entry() -> None:
    empty = load(VECTORS / "chunk_empty.json")
    assert empty.payload == b""
    assert empty.fields["x"] == xxhash.xxh3_64_intdigest(b"")


def test_messages_are_those_of_the_specification() -> None:
    headings = [line for line in SPEC.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    listed = {int(n): name for line in headings for name, n in re.findall(r"(\w+) \((\d+)\)", line)}
    assert listed == {number: kind.name for number, kind in BY_NUMBER.items()}


def test_fields_are_those_of_the_specification() -> None:
    quoted = set(re.findall(r"`(\w+)`", SPEC.read_text(encoding="utf-8")))

    def walk(known: Field, where: str) -> None:
        inner = known.of if isinstance(known, Array) else known
        if isinstance(inner, Map):
            for name, one in inner.fields.items():
                assert name in quoted, f"{where}.{name}"
                walk(one, f"{where}.{name}")

    for kind in BY_NUMBER.values():
        walk(kind.body, kind.name)


def test_errors_are_those_of_the_specification() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|.*\|\s*(soft|hard)?\s*\|$", SPEC.read_text(encoding="utf-8"), re.MULTILINE)
    assert {int(code): name for code, name, _ in rows} == ERRORS
    assert {int(code) for code, _, kind in rows if kind == "soft"} == SOFT
