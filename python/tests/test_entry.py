"""The ways to write an entry."""

from __future__ import annotations

import pickle

import pytest

import sheaf
from sheaf import Entry
from sheaf._entry import EntryLike, parse, parse_all, to_json


@pytest.mark.parametrize(
    ("spec", "bucket", "want"),
    [
        ("b/o", None, Entry("b", "o")),
        ("b/d/o", None, Entry("b", "d/o")),
        ("b", None, Entry("b", "")),
        ("b/s.tar", None, Entry("b", "s.tar")),
        ("b/s.tar@/m/n", None, Entry("b", "s.tar", "m/n")),
        ("b/x@/y", None, Entry("b", "x@/y")),
        ("b/s.tar@/", None, Entry("b", "s.tar")),
        ("d/o", "b", Entry("b", "d/o")),
        ("d/s.tar@/m", "b", Entry("b", "d/s.tar", "m")),
        ({"objname": "o"}, "b", Entry("b", "o")),
        ({"objname": "o", "bucket": "c"}, "b", Entry("c", "o")),
        ({"objname": "s.tar@/m", "bucket": "c"}, None, Entry("c", "s.tar@/m")),
        (
            {"bucket": "c", "objname": "o", "archpath": "m", "start": 1, "length": -1, "opaque": "x"},
            None,
            Entry("c", "o", "m", 1, -1, "x"),
        ),
        (Entry(objname="o"), "b", Entry("b", "o")),
        (Entry("c", "o"), "b", Entry("c", "o")),
    ],
)
def test_parse(spec: EntryLike, bucket: str | None, want: Entry) -> None:
    assert parse(spec, bucket) == want


@pytest.mark.parametrize(
    ("specs", "error", "words"),
    [
        ([], ValueError, "at least one"),
        (["b/o", {"objname": "o", "size": 3}], sheaf.InvalidArgumentError, "entry 1: .*'size'"),
        (["b/o", 3], TypeError, "entry 1: .*int"),
        ([{"objname": b"o"}], TypeError, "entry 0: .*'objname'.*bytes"),
        ([{"objname": "o", "start": "1"}], TypeError, "'start'.*str"),
        ([{"objname": "o", "start": True}], TypeError, "'start'.*bool"),
        ([Entry("b", "o", start=1.5)], TypeError, "'start'.*float"),  # type: ignore[arg-type]  # as a caller may
        ("b/o", TypeError, "one str"),
        (Entry("b", "o"), TypeError, "one Entry"),
        ({"objname": "o"}, TypeError, "one dict"),
    ],
)
def test_faults(specs: list[EntryLike], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_all(specs)


def test_entries_can_come_from_any_iterable() -> None:
    assert parse_all(f"b/{i}" for i in range(3)) == (Entry("b", "0"), Entry("b", "1"), Entry("b", "2"))


def test_json_leaves_defaults_out() -> None:
    assert to_json(Entry("b", "o"), "b") == {"objname": "o"}
    assert to_json(Entry("b", "o", "m", 1, -1, "x", "sheaf"), "c") == {
        "bucket": "b",
        "objname": "o",
        "archpath": "m",
        "start": 1,
        "length": -1,
        "opaque": "x",
        "provider": "sheaf",
    }


def test_str_and_pickle() -> None:
    entry = Entry("b", "s.tar", "m", 5, -1)
    assert str(entry) == "b/s.tar@/m [5:-1]"
    assert pickle.loads(pickle.dumps(entry)) == entry
