"""Entries: what a batch asks for, and the ways to write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

from sheaf.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of a batch: a whole object, a member of a shard, or a byte range of either.

    ``start`` and ``length`` are bytes; (0, 0) is the whole and length -1 reaches to the end. With ``archpath``
    (a member of the shard ``objname``) they count inside the member. ``opaque`` is the caller's own text, at
    most 1024 bytes of UTF-8.
    """

    bucket: str = ""
    objname: str = ""
    archpath: str = ""
    start: int = 0
    length: int = 0
    opaque: str = ""
    provider: str = ""

    def __str__(self) -> str:
        name = f"{self.bucket}/{self.objname}" if self.bucket else self.objname
        if self.archpath:
            name += f"@/{self.archpath}"
        if self.start or self.length:
            name += f" [{self.start}:{self.length}]"
        return name


EntryLike: TypeAlias = str | Mapping[str, object] | Entry
"""What `Client.batch` takes as an entry."""

_TYPES: dict[str, type] = {f.name: int if f.name in ("start", "length") else str for f in fields(Entry)}


def parse(spec: EntryLike, bucket: str | None = None) -> Entry:
    """Make an entry of what a caller wrote.

    A string is ``bucket/object`` or ``bucket/shard.tar@/member``; when ``bucket`` is given, it is the name
    inside that bucket, slashes and all. A mapping has the fields of `Entry`. Mappings and entries that name no
    bucket are in ``bucket``. Only types are checked here: the mount checks the names.

    Raises `InvalidArgumentError` for a mapping with other fields, TypeError for wrong types.
    """
    if isinstance(spec, str):
        if bucket is None:
            bucket, _, name = spec.partition("/")
        else:
            name = spec
        shard, sep, member = name.partition("@/")
        if sep and shard.endswith(".tar"):
            return Entry(bucket, shard, member)
        return Entry(bucket, name)
    if isinstance(spec, Entry):
        values: Mapping[str, object] = {name: getattr(spec, name) for name in _TYPES}
    elif isinstance(spec, Mapping):
        values = spec
    else:
        raise TypeError(f"an entry is a str, a mapping or a sheaf.Entry, not {type(spec).__name__}")
    checked: dict[str, str | int] = {}
    for name, value in values.items():
        want = _TYPES.get(name)
        if want is None:
            raise InvalidArgumentError(f"an entry has no field {name!r}; it has {', '.join(_TYPES)}")
        if not isinstance(value, (str, int)) or not isinstance(value, want) or isinstance(value, bool):
            raise TypeError(f"field {name!r} of an entry is {want.__name__}, not {type(value).__name__}")
        checked[name] = value
    if not checked.get("bucket") and bucket is not None:
        checked["bucket"] = bucket
    return Entry(**checked)  # type: ignore[arg-type]  # each value's type was checked against its field


def parse_all(specs: Iterable[EntryLike], bucket: str | None = None) -> tuple[Entry, ...]:
    """Parse every entry of a batch; a fault is raised with the entry's index.

    Raises as `parse` does, and `InvalidArgumentError` when there is no entry.
    """
    if isinstance(specs, (str, Mapping, Entry)):
        raise TypeError(f"entries is a sequence of entries, not one {type(specs).__name__}")
    entries: list[Entry] = []
    for index, spec in enumerate(specs):
        try:
            entries.append(parse(spec, bucket))
        except InvalidArgumentError as err:
            raise InvalidArgumentError(err.message, index=index) from None
        except TypeError as err:
            raise TypeError(f"entry {index}: {err}") from None
    if not entries:
        raise InvalidArgumentError("a batch has at least one entry")
    return tuple(entries)


def to_json(entry: Entry, default_bucket: str) -> dict[str, str | int]:
    """The entry as a manifest has it: without what is the default."""
    out: dict[str, str | int] = {"objname": entry.objname}
    if entry.bucket != default_bucket:
        out["bucket"] = entry.bucket
    if entry.archpath:
        out["archpath"] = entry.archpath
    if entry.start:
        out["start"] = entry.start
    if entry.length:
        out["length"] = entry.length
    if entry.opaque:
        out["opaque"] = entry.opaque
    if entry.provider:
        out["provider"] = entry.provider
    return out
