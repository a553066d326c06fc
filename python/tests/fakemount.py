"""A mount made of ordinary files, for what can be tried without a cluster.

Reads of a session go through a real socket, so that blocking, deadlines and the end of a session are the
system's own; writes are taken in the caller's thread, so that they can fail as the mount's do.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import xxhash

import sheaf
from sheaf._control import Session
from sheaf.errors import Code

Manifest = dict[str, Any]


def index_bytes(rows: list[tuple[int, int, int, int, int]], *, n: int | None = None) -> bytes:
    """An index as docs/mount.md describes it."""
    head = b"SHEAFIX1" + struct.pack("<IIQ", 64, 32, len(rows) if n is None else n) + bytes(40)
    return head + b"".join(struct.pack("<QQQII", *row) for row in rows)


class FakeMount:
    """Buckets of objects, and batches made of them."""

    at: ClassVar[dict[str, FakeMount]] = {}

    def __init__(self, root: Path) -> None:
        self.root = root
        self.objects: dict[tuple[str, str, str], bytes] = {}
        self.hold = False  # batches run until `finish`
        self.refuse: Callable[[Manifest], tuple[int, str] | None] = lambda _: None
        self.write_limit = 1 << 20
        self.commands: list[Manifest] = []
        self.running: dict[str, tuple[Manifest, socket.socket]] = {}
        self.waiting: list[tuple[str, socket.socket]] = []
        self.sessions: list[socket.socket] = []
        self.half: dict[int, bytes] = {}
        (root / ".sheaf" / "batch").mkdir(parents=True)
        (root / ".sheaf" / "version").write_text("fake 1\n")
        (root / ".sheaf" / "control").touch()
        FakeMount.at[str(root)] = self

    def put(self, bucket: str, name: str, data: bytes, member: str = "") -> None:
        self.objects[bucket, name, member] = data
        path = self.root / bucket / (f"{name}@/{member}" if member else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def open(self) -> int:
        ours, theirs = socket.socketpair()
        self.sessions.append(ours)
        return theirs.detach()

    def close(self) -> None:
        for s in self.sessions:
            s.close()
        FakeMount.at.pop(str(self.root), None)

    def write(self, session: int, data: memoryview) -> int:
        took = bytes(data[: self.write_limit])
        text = self.half.pop(session, b"") + took
        try:
            command = json.loads(text)
        except ValueError:
            self.half[session] = text
            return len(took)
        self.command(command, self.sessions[session])
        return len(took)

    def command(self, command: Manifest, to: socket.socket) -> None:
        self.commands.append(command)
        if (refused := self.refuse(command)) is not None:
            number, msg = refused
            if msg:
                self.send(to, {"event": "error", "errno": errno.errorcode[number], "msg": msg})
            raise OSError(number, os.strerror(number))
        op, id_ = command.get("op"), command["id"]
        if op is None:
            self.running[id_] = command, to
            (self.root / ".sheaf" / "batch" / id_).mkdir()
            self.status(id_, state="running")
            self.send(to, {"event": "accepted", "id": id_, "n": len(command["in"])})
            if not self.hold:
                self.finish(id_)
        elif op == "wait":
            if id_ in self.running:
                self.waiting.append((id_, to))
            else:
                self.send(to, {"event": "done", "id": id_, "ok": 1})
        elif op == "cancel":
            self.fail(id_, "ECANCELED", Code.CANCELED, "canceled")
        elif op == "release":
            folder = self.root / ".sheaf" / "batch" / id_
            for f in folder.iterdir():
                f.unlink()
            folder.rmdir()
            self.running.pop(id_, None)
            self.send(to, {"event": "released", "id": id_})

    def finish(self, id_: str) -> None:
        """Bring the batch whole."""
        manifest, to = self.running.pop(id_)
        rows: list[tuple[int, int, int, int, int]] = []
        data = bytearray()
        coer = manifest.get("coer", False)
        for i, e in enumerate(manifest["in"]):
            key = e.get("bucket", manifest.get("bucket", "")), e["objname"], e.get("archpath", "")
            whole = self.objects.get(key)
            if whole is None:
                msg = f"getbatch {key[0]}/{key[1]}: not found"
                reason = {"i": i, "errno": "ENOENT", "code": int(Code.NOT_FOUND), "msg": msg}
                self.send(to, {"event": "error", "id": id_, **reason})
                rows.append((len(data), 0, 0, Code.NOT_FOUND, errno.ENOENT))
                if not coer:
                    rows += [rows[-1]] * (len(manifest["in"]) - i - 1)
                    self.store(id_, bytes(data), rows)
                    self.done(id_, to, **reason)
                    return
                continue
            start, length = e.get("start", 0), e.get("length", 0)
            part = whole if (start, length) == (0, 0) else whole[start : None if length == -1 else start + length]
            rows.append((len(data), len(part), xxhash.xxh3_64_intdigest(part), 0, 0))
            data += part
        self.store(id_, bytes(data), rows)
        self.send(to, {"event": "ready", "id": id_, "from": 0, "to": len(rows) - 1})
        self.done(id_, to, n=len(rows), ok=len(rows))

    def fail(self, id_: str, name: str, code: Code, msg: str) -> None:
        """End the batch as a whole."""
        manifest, to = self.running.pop(id_)
        self.store(id_, b"", [(0, 0, 0, code, getattr(errno, name))] * len(manifest["in"]))
        self.done(id_, to, errno=name, code=int(code), msg=msg)

    def store(self, id_: str, data: bytes, rows: list[tuple[int, int, int, int, int]]) -> None:
        folder = self.root / ".sheaf" / "batch" / id_
        (folder / "data").write_bytes(data)
        (folder / "index").write_bytes(index_bytes(rows))

    def done(self, id_: str, to: socket.socket, **fields: object) -> None:
        self.status(id_, state="failed" if "errno" in fields else "done")
        event = {"event": "done", "id": id_, **fields}
        self.send(to, event)
        for waited, other in self.waiting:
            if waited == id_:
                self.send(other, event)

    def status(self, id_: str, **fields: object) -> None:
        (self.root / ".sheaf" / "batch" / id_ / "status").write_text(json.dumps({"id": id_, **fields}))

    def send(self, to: socket.socket, event: dict[str, object]) -> None:
        to.sendall(json.dumps(event).encode() + b"\n")

    def ops(self) -> list[str]:
        return [c.get("op", "submit") for c in self.commands]

    def ended(self, session: int = -1) -> bool:
        """Whether a session's last descriptor was closed."""
        try:
            return self.sessions[session].recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:  # closed before it was read to the end
            return True


class FakeSession(Session):
    """A session of a `FakeMount`."""

    def _open(self, path: str) -> int:
        self.mount = FakeMount.at[path.removesuffix("/.sheaf/control")]
        fd = self.mount.open()
        self.number = len(self.mount.sessions) - 1
        os.set_blocking(fd, False)
        return fd

    def _write(self, fd: int, data: memoryview) -> int:
        return self.mount.write(self.number, data)


class FakeClient(sheaf.Client):
    """A client of a `FakeMount`."""

    _session_type = FakeSession
