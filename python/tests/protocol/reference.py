"""The smallest client that reads an answer as the specification says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import xxhash

from protocol.frames import Frame, frames
from protocol.messages import SOFT, Header, Values
from protocol.msgpack import FormatError


class AnswerError(Exception):
    """The answer isn't whole, or isn't what was asked for."""


class CallError(AnswerError):
    """The callee says in its End that the call failed."""

    def __init__(self, end: Values) -> None:
        super().__init__(f"{text(end, 'op')}: {text(end, 'msg')}")
        self.code = number(end, "code")
        self.op = text(end, "op")


class RedirectError(AnswerError):
    """Another node is the batch's target."""

    def __init__(self, addr: str) -> None:
        super().__init__(addr)
        self.addr = addr


@dataclass(frozen=True)
class Entry:
    """What came of one entry: its bytes, or the code of its error."""

    data: bytes = b""
    version: int = 0
    code: int = 0


@dataclass
class Answer:
    """A whole batch."""

    dt: str = ""
    meta: list[Values] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


def number(values: Values, name: str) -> int:
    """A numeric field, which is absent when 0."""
    value = values.get(name, 0)
    assert isinstance(value, int)
    return value


def text(values: Values, name: str) -> str:
    """A text field, which is absent when empty."""
    value = values.get(name, "")
    assert isinstance(value, str)
    return value


def messages(stream: bytes) -> Iterator[tuple[Header, bytes]]:
    """The messages of an answer up to its End, which must be there, and be the last."""
    source: Iterator[Frame] = frames(stream)
    try:
        for frame in source:
            message = frame.message()
            yield message, frame.payload
            if message.kind.name == "End":
                break
        else:
            raise AnswerError("the stream ended without End")
        if next(source, None) is not None:
            raise AnswerError("a frame after End")
    except FormatError as err:
        raise AnswerError(f"malformed: {err}") from err


def read_batch(stream: bytes, *, batch: str, n: int, nostrm: bool = False, coer: bool = False) -> Answer:
    """Read a GetBatch answer in frames; returns only what is whole."""
    return _BatchReader(batch, n, nostrm, coer).read(stream)


class _BatchReader:
    def __init__(self, batch: str, n: int, nostrm: bool, coer: bool) -> None:
        self.batch = batch
        self.n = n
        self.nostrm = nostrm
        self.coer = coer
        self.answer: Answer | None = None
        self.end = False
        self.redirect = ""
        self.parts: list[bytes] | None = None  # of the entry whose last chunk hasn't come
        self.first: Values = {}

    def read(self, stream: bytes) -> Answer:
        for message, payload in messages(stream):
            self._take(message, payload)
        if self.redirect:
            raise RedirectError(self.redirect)
        if self.answer is None or not self.end:
            raise AnswerError("no End")
        return self.answer

    def _take(self, message: Header, payload: bytes) -> None:
        values = message.values
        name = message.kind.name
        if name == "End" and number(values, "code"):
            raise CallError(values)
        if self.answer is None:
            self._open(name, values)
        elif name == "EntryMeta" and self.nostrm and not self.answer.entries and self.parts is None:
            self._meta(self.answer, values)
        elif name == "Chunk":
            self._chunk(self.answer, values, payload)
        elif name == "EntryError":
            self._error(self.answer, values)
        elif name == "End":
            self._end(self.answer, values)
        else:
            raise AnswerError(f"{name} out of place")

    def _open(self, name: str, values: Values) -> None:
        if self.redirect and name == "End":
            return
        if name == "Redirect" and not self.redirect:
            self.redirect = text(values, "addr")
        elif name == "Accepted" and not self.redirect:
            if text(values, "id") != self.batch or number(values, "n") != self.n:
                raise AnswerError("another batch was accepted")
            self.answer = Answer(text(values, "dt"))
        else:
            raise AnswerError(f"{name} out of place")

    def _meta(self, answer: Answer, values: Values) -> None:
        items = values.get("meta", [])
        assert isinstance(items, list)
        for item in items:
            assert isinstance(item, dict)
            if number(item, "i") != len(answer.meta) or len(answer.meta) == self.n:
                raise AnswerError(f"metadata of {number(item, 'i')} out of order")
            answer.meta.append(item)

    def _expect(self, answer: Answer, values: Values) -> int:
        i = number(values, "i")
        if self.nostrm and len(answer.meta) != self.n:
            raise AnswerError("data before all metadata")
        if i != len(answer.entries) or i >= self.n:
            raise AnswerError(f"entry {i} where {len(answer.entries)} of {self.n} is next")
        return i

    def _chunk(self, answer: Answer, values: Values, payload: bytes) -> None:
        i = self._expect(answer, values)
        if self.parts is None:
            self.parts = []
            self.first = values
        self.parts.append(payload)
        have = sum(map(len, self.parts))
        want = number(self.first, "z")
        last = values.get("e", False)
        if have > want or (last and have != want):
            raise AnswerError(f"entry {i} has {have} bytes of {want}")
        if not last:
            return
        data = b"".join(self.parts)
        if xxhash.xxh3_64_intdigest(data) != number(values, "x"):
            raise AnswerError(f"entry {i}: the checksum differs")
        answer.entries.append(Entry(data, number(self.first, "v")))
        self.parts = None

    def _error(self, answer: Answer, values: Values) -> None:
        i = self._expect(answer, values)
        code = number(values, "code")
        if not self.coer or code not in SOFT:
            raise AnswerError(f"a placeholder for entry {i} that wasn't asked for")
        self.parts = None  # what came of it is void
        answer.entries.append(Entry(code=code))

    def _end(self, answer: Answer, values: Values) -> None:
        if len(answer.entries) != self.n:
            raise AnswerError(f"End after {len(answer.entries)} of {self.n} entries")
        failed = sum(1 for entry in answer.entries if entry.code)
        if number(values, "entries") != self.n or number(values, "failed") != failed:
            raise AnswerError("End counts other entries than came")
        # Whether the chunks that an EntryError made void count as well isn't specified: at least the entries' do.
        if number(values, "bytes") < sum(len(entry.data) for entry in answer.entries):
            raise AnswerError("End counts fewer bytes than came")
        self.end = True


def read_object(stream: bytes) -> tuple[Values, bytes]:
    """Read the answer to Get: the object and the bytes, checked against End."""
    found: Values | None = None
    data = b""
    for message, payload in messages(stream):
        name = message.kind.name
        if name == "End" and number(message.values, "code"):
            raise CallError(message.values)
        if name == "Object" and found is None:
            found = message.values
        elif name == "Data" and found is not None:
            data += payload
        elif name == "End" and found is not None:
            if number(message.values, "bytes") != len(data):
                raise AnswerError("End counts other bytes than came")
            if number(message.values, "sum") != xxhash.xxh3_64_intdigest(data):
                raise AnswerError("the checksum differs")
            return found, data
        else:
            raise AnswerError(f"{name} out of place")
    raise AnswerError("no End")
