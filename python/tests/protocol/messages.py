"""The messages of docs/protocol.md as tables, and the two ways to hold bytes against them.

`decode_header` reads as the specification's rules for a reader say: it skips what it doesn't know. `check_canonical`
is for bytes that a writer of this version made: it lets nothing pass that the tables don't have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from protocol.msgpack import FormatError, Reader, Value, decode

Values: TypeAlias = "dict[str, Value]"

MAX_HEADER = 1_048_576
MAX_PAYLOAD = 262_144


class UnknownMessageError(FormatError):
    """A message number that isn't in the tables; a node answers such a call with NotSupported."""


@dataclass(frozen=True)
class Uint:
    """An unsigned number of 64 bits."""

    most: int = 2**64 - 1
    needed: bool = False

    def check(self, value: Value, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(f"{where} is {type(value).__name__}, not uint")
        if not 0 <= value <= self.most:
            raise FormatError(f"{where} is {value}, not 0 to {self.most}")


@dataclass(frozen=True)
class Int:
    """A signed number of 64 bits."""

    least: int = -(2**63)
    most: int = 2**63 - 1
    needed: bool = False

    def check(self, value: Value, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(f"{where} is {type(value).__name__}, not int")
        if not self.least <= value <= self.most:
            raise FormatError(f"{where} is {value}, not {self.least} to {self.most}")


@dataclass(frozen=True)
class Text:
    """A str of so many bytes at most, in a certain form."""

    most: int = MAX_HEADER
    form: Callable[[str], bool] = lambda text: True
    needed: bool = False

    def check(self, value: Value, where: str) -> None:
        if not isinstance(value, str):
            raise FormatError(f"{where} is {type(value).__name__}, not str")
        if len(value.encode()) > self.most:
            raise FormatError(f"{where} has {len(value.encode())} bytes, more than {self.most}")
        if not self.form(value):
            raise FormatError(f"{where} is {value[:80]!r}, which isn't allowed")


@dataclass(frozen=True)
class Flag:
    """A bool."""

    needed: bool = False

    def check(self, value: Value, where: str) -> None:
        if not isinstance(value, bool):
            raise FormatError(f"{where} is {type(value).__name__}, not bool")


@dataclass(frozen=True)
class Map:
    """Fields by name, in the order in which a writer puts them."""

    fields: Mapping[str, Field]
    rule: Callable[[Values], str] = lambda values: ""
    needed: bool = False

    def read(self, reader: Reader, depth: int, where: str) -> Values:
        out: Values = {}
        for _ in range(reader.map_length(depth)):
            self.read_field(reader, depth, where, out)
        self.finish(out, where)
        return out

    def read_field(self, reader: Reader, depth: int, where: str, out: Values) -> None:
        """The next key and its value into ``out``; a value of a key that isn't known is skipped."""
        key = read_key(reader)
        known = self.fields.get(key) if key is not None else None
        if key is None or known is None:
            reader.skip(depth + 1)
        elif isinstance(known, Array):
            out[key] = known.read(reader, depth + 1, f"{where}.{key}")
        elif isinstance(known, Map):
            raise AssertionError("no field is a map")
        else:
            out[key] = reader.value(depth + 1)

    def finish(self, values: Values, where: str) -> None:
        for name, known in self.fields.items():
            if name in values:
                known.check(values[name], f"{where}.{name}")
            elif known.needed:
                raise FormatError(f"{where} has no {name}")
        if wrong := self.rule(values):
            raise FormatError(f"{where}: {wrong}")

    def check(self, value: Value, where: str) -> None:
        self.finish(as_values(value, where), where)


@dataclass(frozen=True)
class Array:
    """Texts or maps, so many at most."""

    of: Text | Map
    most: int = MAX_HEADER
    needed: bool = False

    def read(self, reader: Reader, depth: int, where: str) -> list[Value]:
        n = reader.array_length(depth)
        if n > self.most:
            raise FormatError(f"{where} has {n} values, more than {self.most}")
        out: list[Value] = []
        for i in range(n):
            if isinstance(self.of, Map):
                out.append(self.of.read(reader, depth + 1, f"{where}[{i}]"))
            else:
                out.append(reader.value(depth + 1))
        return out

    def check(self, value: Value, where: str) -> None:
        if not isinstance(value, list):
            raise FormatError(f"{where} is {type(value).__name__}, not an array")
        if len(value) > self.most:
            raise FormatError(f"{where} has {len(value)} values, more than {self.most}")
        for i, item in enumerate(value):
            self.of.check(item, f"{where}[{i}]")


Field: TypeAlias = "Uint | Int | Text | Flag | Array | Map"


@dataclass(frozen=True)
class Kind:
    """One kind of message."""

    number: int
    name: str
    body: Map = field(default_factory=lambda: Map({}))
    payload: bool = False


def read_key(reader: Reader) -> str | None:
    """A map's next key; None, and skipped, when it isn't a text."""
    tag = reader.peek()
    if 0xA0 <= tag <= 0xBF or tag in (0xD9, 0xDA, 0xDB):
        key = reader.value()
        assert isinstance(key, str)
        return key
    reader.skip()
    return None


def as_values(value: Value, where: str) -> Values:
    """The map that ``value`` must be, all its keys texts."""
    if not isinstance(value, dict):
        raise FormatError(f"{where} is {type(value).__name__}, not a map")
    return value


def _object_name(name: str) -> bool:
    return "\0" not in name and not {".", ".."} & set(name.split("/"))


def _member_name(name: str) -> bool:
    return _object_name(name) and not name.startswith("/")


def _bucket_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name) is not None


def _batch_id(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text) is not None


def _host_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) < 65536


def _one_of(*texts: str) -> Callable[[str], bool]:
    return lambda text: text in texts


def _range(values: Values) -> str:
    return "a start without a length" if values.get("start") and not values.get("length") else ""


def _sized(values: Values) -> str:
    if values.get("size") and not values.get("sized"):
        return "a size without sized"
    if values.get("sum") and not values.get("summed"):
        return "a sum without summed"
    return ""


def _meta(values: Values) -> str:
    failed = values.keys() & {"code", "msg", "node"}
    if failed and (values.keys() & {"z", "v"} or not values.get("code")):
        return "neither an entry's metadata nor its error"
    return ""


_TIME = Int()
_SIZE = Int(least=0)
_BUCKET = Text(63, _bucket_name)
_NEEDED_BUCKET = Text(63, _bucket_name, needed=True)
_NEEDED_OBJECT = Text(1024, _object_name, needed=True)
_MEMBER = Text(4096, _member_name)
_ID = Text(64, _batch_id, needed=True)
_ENTRY_COUNT = Uint(65_536, needed=True)
_INDEX = Uint(65_535)

_ERROR: dict[str, Field] = {
    "code": Uint(),
    **{name: Text(4096) for name in ("op", "bucket", "objname", "archpath", "node", "msg")},
}

_NODE = Map(
    {
        "name": Text(needed=True),
        "addr": Text(form=_host_port),
        "admin": Text(form=_host_port),
        "weight": Uint(),
        "epoch": Uint(),
        "state": Uint(3),
    }
)


def _sorted_nodes(values: Values) -> str:
    nodes = values.get("nodes", [])
    assert isinstance(nodes, list)
    names = [str(as_values(node, "node")["name"]).encode() for node in nodes]
    return "" if names == sorted(set(names)) else "nodes that aren't sorted by name"


_CLUSTER_MAP = Map({"cluster": Text(), "version": Uint(), "nodes": Array(_NODE, 4096), "node": Text(64)}, _sorted_nodes)

_RECORD: dict[str, Field] = {
    "name": _NEEDED_BUCKET,
    "provider": Text(form=_one_of("sheaf")),
    "created": _TIME,
    "epoch": Uint(),
    "deleted": Flag(),
    "placed": Uint(),
}

_PROPS: dict[str, Field] = {
    "copies": Uint(65_536),
    "durability": Text(63),
    "backend": Text(2048),
    "validate": Flag(),
}

_GET = Map(
    {
        "bucket": _NEEDED_BUCKET,
        "objname": _NEEDED_OBJECT,
        "archpath": _MEMBER,
        "start": Int(least=0),
        "length": Int(least=-1),
        "fwd": Flag(),
    },
    _range,
)


def _attrs(values: Values) -> str:
    attrs = values.get("attrs", [])
    assert isinstance(attrs, list)
    texts = [as_values(attr, "attr") for attr in attrs]
    if sum(len(str(text.get(key, "")).encode()) for text in texts for key in "kv") + 4 * len(texts) > 2048:
        return "attributes of more than 2 048 bytes"
    keys = [str(text["k"]).encode() for text in texts]
    return "" if keys == sorted(set(keys)) else "attributes that aren't sorted by key"


def _attr_text(text: str) -> bool:
    return "\0" not in text


_ATTRS = Array(
    Map({"k": Text(2048, lambda text: text != "" and _attr_text(text), needed=True), "v": Text(2048, _attr_text)}), 512
)

_OBJECT: dict[str, Field] = {
    "name": Text(),
    "size": _SIZE,
    "version": Uint(),
    "sum": Uint(),
    "mtime": _TIME,
    "attrs": _ATTRS,
}

_PUT = Map(
    {
        "bucket": _NEEDED_BUCKET,
        "objname": _NEEDED_OBJECT,
        "size": _SIZE,
        "sized": Flag(),
        "sum": Uint(),
        "summed": Flag(),
        "fwd": Flag(),
        "if_absent": Flag(),
        "if_version": Uint(),
        "attrs": _ATTRS,
    },
    lambda values: _sized(values) or _attrs(values),
)

_COPY = Map(
    {
        "bucket": _NEEDED_BUCKET,
        "objname": _NEEDED_OBJECT,
        "to_bucket": _NEEDED_BUCKET,
        "to_objname": _NEEDED_OBJECT,
        "fwd": Flag(),
        "if_absent": Flag(),
        "if_version": Uint(),
    }
)

_NAMES = Map({"bucket": _NEEDED_BUCKET, "names": Array(Text(1024, _object_name), 1000), "fwd": Flag()})

_DISKS = Array(
    Map(
        {
            "dir": Text(4096),
            "id": Text(64),
            "enabled": Flag(),
            "err": Text(4096),
            **{name: Uint() for name in ("free", "total", "objects")},
        }
    ),
    1024,
)

_TASKS = Array(
    Map(
        {
            "name": Text(32, needed=True),
            "active": Flag(),
            **{name: Uint() for name in ("objects", "bytes", "moved", "failed")},
            "started": _TIME,
            "finished": _TIME,
        }
    ),
    64,
)

_VERSION = Map({"v": Uint(), "d": Flag(), "z": _SIZE, "x": Uint()})


def _record(values: Values) -> str:
    if values.get("deleted") and values.keys() & {"size", "sum", "attrs"}:
        return "a tombstone with what an object has"
    return _attrs(values)


# The specification names `i` last; the vectors have it first.
_ENTRY = Map(
    {
        "i": _INDEX,
        "bucket": _BUCKET,
        "objname": _NEEDED_OBJECT,
        "archpath": _MEMBER,
        "start": Int(least=0),
        "length": Int(least=-1),
    },
    _range,
)

_META = Map({"i": _INDEX, "z": Uint(), "v": Uint(), "code": Uint(), "msg": Text(4096), "node": Text(4096)}, _meta)

_ALL = [
    Kind(
        1,
        "Hello",
        Map(
            {
                "version": Uint(needed=True),
                "caps": Array(Text(64), 64),
                "node": Text(),
                "cluster": Text(),
                "map": Uint(),
            }
        ),
    ),
    Kind(
        2,
        "End",
        Map({**_ERROR, **{name: Uint() for name in ("entries", "failed", "bytes", "sum", "retry_ms", "entry")}}),
    ),
    Kind(10, "MapGet"),
    Kind(11, "Map", _CLUSTER_MAP),
    Kind(12, "MapPush", _CLUSTER_MAP),
    Kind(13, "Join", _CLUSTER_MAP),
    Kind(20, "BucketCreate", Map({**_RECORD, **_PROPS})),
    Kind(21, "BucketDestroy", Map({**_RECORD, "force": Flag()})),
    Kind(22, "BucketList"),
    Kind(23, "Bucket", Map({**_RECORD, **_PROPS})),
    Kind(30, "Put", _PUT),
    Kind(31, "Get", _GET),
    Kind(32, "Head", _GET),
    Kind(33, "Delete", Map({**_GET.fields, "if_version": Uint()}, _range)),
    Kind(
        34,
        "List",
        Map(
            {
                "bucket": _NEEDED_BUCKET,
                "prefix": Text(),
                "delimiter": Text(form=_one_of("/")),
                "start_after": Text(),
                "limit": Uint(10_000),
                "fwd": Flag(),
                "token": Text(4096),
                "tombs": Flag(),
            }
        ),
    ),
    Kind(35, "Members", _GET),
    Kind(36, "Object", Map(_OBJECT, _attrs)),
    Kind(
        37,
        "Names",
        Map(
            {
                "objects": Array(Map(_OBJECT, _attrs)),
                "prefixes": Array(Text()),
                "token": Text(4096),
                "deleted": Array(Map({"name": Text(needed=True), "version": Uint(needed=True), "mtime": _TIME})),
                "deleted_prefixes": Array(Text()),
            }
        ),
    ),
    Kind(38, "Data", payload=True),
    Kind(39, "Table", Map({"members": Array(Map({"name": Text(), "size": _SIZE, "mtime": _TIME}))})),
    Kind(
        40,
        "Batch",
        Map(
            {
                "id": _ID,
                "n": _ENTRY_COUNT,
                "bucket": _BUCKET,
                "output_format": Text(form=_one_of("frames", "tar")),
                "nostrm": Flag(),
                "onob": Flag(),
                "coer": Flag(),
                "max_soft_errors": Int(least=-1),
                "coloc": Uint(2),
                "timeout_ms": Uint(),
                "here": Flag(),
                "map": Uint(),
            }
        ),
    ),
    Kind(41, "Entries", Map({"in": Array(_ENTRY, 512)})),
    Kind(42, "Accepted", Map({"id": _ID, "dt": Text(), "n": _ENTRY_COUNT})),
    Kind(43, "Redirect", Map({"name": Text(), "addr": Text(form=_host_port)})),
    Kind(44, "Chunk", Map({"i": _INDEX, "z": Uint(), "v": Uint(), "x": Uint(), "e": Flag()}), payload=True),
    Kind(45, "EntryError", Map({"i": _INDEX, **_ERROR, "code": Uint(needed=True)})),
    Kind(46, "EntryMeta", Map({"meta": Array(_META, 512)})),
    Kind(
        47,
        "Send",
        Map(
            {
                "id": _ID,
                "n": _ENTRY_COUNT,
                "bucket": _BUCKET,
                "nostrm": Flag(),
                "dt": Text(),
                "map": Uint(),
                "wait_ms": Uint(86_400_000),
            }
        ),
    ),
    Kind(50, "Status"),
    Kind(
        51,
        "NodeStatus",
        Map(
            {
                "name": Text(),
                "version": Text(),
                **{name: Uint() for name in ("map", "uptime_ms", "total", "free", "mountpaths", "batches", "senders")},
                "state": Uint(3),
                "map_hash": Uint(),
                "settled": Flag(),
                "objects": Uint(),
                "tombstones": Uint(),
                "tasks": _TASKS,
                "disks": _DISKS,
            }
        ),
    ),
    Kind(53, "Rebalance"),
    Kind(54, "MountpathList"),
    Kind(55, "Mountpaths", Map({"disks": _DISKS})),
    Kind(56, "MountpathSet", Map({"dir": Text(4096, needed=True), "enabled": Flag()})),
    Kind(60, "Append", _PUT),
    Kind(61, "Copy", _COPY),
    Kind(62, "Rename", _COPY),
    Kind(63, "Evict", Map({"bucket": _NEEDED_BUCKET, "objname": _NEEDED_OBJECT, "fwd": Flag()})),
    Kind(64, "Prefetch", _NAMES),
    Kind(65, "Prefetched", Map({"started": Uint(1000)})),
    Kind(
        70,
        "Stage",
        Map(
            {
                "bucket": _NEEDED_BUCKET,
                "objname": _NEEDED_OBJECT,
                "size": _SIZE,
                "sized": Flag(),
                "sum": Uint(),
                "summed": Flag(),
                "mtime": _TIME,
                "relaxed": Flag(),
                "version": Uint(),
                "attrs": _ATTRS,
            },
            lambda values: _sized(values) or _attrs(values),
        ),
    ),
    Kind(
        71,
        "Staged",
        Map(
            {
                "size": _SIZE,
                "sum": Uint(),
                "high": Uint(),
                "high_deleted": Flag(),
                "high_size": _SIZE,
                "high_sum": Uint(),
            }
        ),
    ),
    Kind(72, "Commit", Map({"version": Uint(needed=True)})),
    Kind(73, "Tombstone", Map({"bucket": _NEEDED_BUCKET, "objname": _NEEDED_OBJECT, "version": Uint(needed=True)})),
    Kind(74, "Versions", Map({name: one for name, one in _NAMES.fields.items() if name != "fwd"})),
    Kind(75, "VersionList", Map({"versions": Array(_VERSION, 1000), "placement": Uint()})),
    Kind(
        76,
        "Replicate",
        Map(
            {
                "bucket": _NEEDED_BUCKET,
                **_OBJECT,
                "name": _NEEDED_OBJECT,
                "version": Uint(needed=True),
                "deleted": Flag(),
            },
            _record,
        ),
    ),
    Kind(77, "Replicated", Map({"version": Uint(), "placement": Uint(), **_ERROR})),
    Kind(80, "Gossip", Map({"from": Text(64, needed=True), "stream": Flag()}), payload=True),
    Kind(81, "BucketSet", Map({"name": _NEEDED_BUCKET, "set": Array(Text(32), 16), **_PROPS})),
    Kind(82, "BucketShow", Map({"name": _NEEDED_BUCKET})),
    Kind(83, "Leave", Map({"node": Text(64), "force": Flag()})),
    Kind(95, "Alive"),
    Kind(
        105, "Settled", Map({"node": Text(64, needed=True), "placement": Uint(), "walked": Uint(), "settled": Uint()})
    ),
]

BY_NUMBER = {kind.number: kind for kind in _ALL}
BY_NAME = {kind.name: kind for kind in _ALL}

# name by number, and which of them a batch may go on after
ERRORS = {
    1: "NotFound",
    2: "AlreadyExists",
    3: "PermissionDenied",
    4: "InvalidArgument",
    5: "TooLarge",
    6: "TooManyRequests",
    7: "NoSpace",
    8: "ChecksumMismatch",
    9: "VersionMismatch",
    10: "Timeout",
    11: "Unavailable",
    12: "Canceled",
    13: "Internal",
    14: "NotSupported",
    15: "NotEmpty",
    16: "RangeNotSatisfiable",
    17: "Protocol",
    18: "ReadOnly",
    19: "BucketNotFound",
    20: "SenderLost",
    21: "SenderTimeout",
    22: "BadShard",
    23: "TooManyEntries",
    24: "IsDirectory",
    25: "Busy",
}
SOFT = {1, 8, 9, 10, 11, 14, 16, 20, 21, 22}


@dataclass(frozen=True)
class Header:
    """A header's message: its fields without `t` and `p`."""

    kind: Kind
    payload: int
    values: Values


def read_lead(reader: Reader) -> tuple[int, int, int]:
    """The message's number, the payload's length, and how many fields follow."""
    fields = reader.map_length(0)
    if fields == 0 or read_key(reader) != "t":
        raise FormatError("the first key isn't t")
    number = reader.value(1)
    Uint().check(number, "t")
    assert isinstance(number, int)
    fields -= 1
    payload: Value = 0
    at = reader.at
    if fields and read_key(reader) == "p":
        payload = reader.value(1)
        Uint(MAX_PAYLOAD).check(payload, "p")
        fields -= 1
    else:
        reader.at = at
    assert isinstance(payload, int)
    return number, payload, fields


def decode_header(raw: bytes) -> Header:
    """Read a header by the rules for a reader."""
    reader = Reader(raw, strict=False)
    number, payload, fields = read_lead(reader)
    kind = BY_NUMBER.get(number)
    if kind is None:
        raise UnknownMessageError(f"message {number}")
    values: Values = {}
    for _ in range(fields):
        at = reader.at
        if read_key(reader) in ("t", "p"):
            raise FormatError("t and p are the first keys and no others")
        reader.at = at
        kind.body.read_field(reader, 0, kind.name, values)
    if reader.at != len(raw):
        raise FormatError(f"{len(raw) - reader.at} bytes after the map")
    kind.body.finish(values, kind.name)
    if payload and not kind.payload:
        raise FormatError(f"{kind.name} with a payload")
    return Header(kind, payload, values)


def check_canonical(raw: bytes) -> Values:
    """The header's map, `t` and `p` included; raises unless it is what a writer of this version may write."""
    whole = as_values(decode(raw), "header")
    keys = list(whole)
    if keys[:1] != ["t"]:
        raise FormatError("the first key isn't t")
    if "p" in keys[2:]:
        raise FormatError("p isn't the second key")
    number = whole["t"]
    Uint().check(number, "t")
    assert isinstance(number, int)
    if number not in BY_NUMBER:
        raise UnknownMessageError(f"message {number}")
    kind = BY_NUMBER[number]
    if "p" in whole:
        Uint(MAX_PAYLOAD).check(whole["p"], "p")
        if not kind.payload:
            raise FormatError(f"{kind.name} with a payload")
    _check_written(whole, {"t": Uint(), "p": Uint(), **kind.body.fields}, kind.name)
    kind.body.check({name: value for name, value in whole.items() if name not in ("t", "p")}, kind.name)
    return whole


def _check_written(values: Values, fields: Mapping[str, Field], where: str) -> None:
    """Only known fields, no empty ones, in the tables' order; in the maps of arrays likewise."""
    unknown = values.keys() - fields.keys()
    if unknown:
        raise FormatError(f"{where} has {sorted(unknown)}, which isn't in the specification")
    if list(values) != [name for name in fields if name in values]:
        raise FormatError(f"{where} has its fields in another order: {list(values)}")
    for name, value in values.items():
        if value in (0, "", []):  # False equals 0
            raise FormatError(f"{where}.{name} is {value!r}, which isn't written")
        known = fields[name]
        if isinstance(known, Array) and isinstance(known.of, Map) and isinstance(value, list):
            for i, item in enumerate(value):
                inner = f"{where}.{name}[{i}]"
                _check_written(as_values(item, inner), known.of.fields, inner)
