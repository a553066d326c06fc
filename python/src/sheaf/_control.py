"""Sessions of the mount's control file (docs/mount.md, "The control file").

One session carries one batch, which is bound to it: when the last descriptor of the session is closed, by
whatever end the process finds, the mount lets go of the batch.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sheaf.errors import CanceledError, MountError, ProtocolError, SheafError, from_code, from_errno

# The mount can't be polled for events, so a wait with a deadline looks, sleeping from the first to the second
# of these seconds in between.
_FIRST_SLEEP = 0.0002
_LAST_SLEEP = 0.02

_READ = 64 << 10

Event = dict[str, Any]


def deadline_of(timeout: float | None) -> float | None:
    """The point on the monotonic clock that is ``timeout`` seconds away; None for never."""
    return None if timeout is None else time.monotonic() + timeout


def left(deadline: float) -> float:
    """Seconds until ``deadline``; negative after it."""
    return deadline - time.monotonic()


class Pause:
    """Sleeps that grow, up to a deadline."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._next = _FIRST_SLEEP

    def sleep(self) -> bool:
        """Sleep; False, at once, when the deadline has passed."""
        duration = self._next
        if self._deadline is not None:
            remaining = left(self._deadline)
            if remaining <= 0:
                return False
            duration = min(duration, remaining)
        time.sleep(duration)
        self._next = min(self._next * 1.5, _LAST_SLEEP)
        return True


class Session:
    """One open control file: commands go in, events come out.

    Any thread may send; only one reads at a time (`pump` takes turns). A forked child's copy is closed at
    the fork, so that the parent's end still ends the session.
    """

    def __init__(self, path: str) -> None:
        """Open ``path``; raises `MountError` when the mount is dead or gone."""
        self.pid = os.getpid()
        self._reading = threading.Lock()
        self._guard = threading.Lock()
        self._users = 0
        self._closed = False
        self._pending = bytearray()
        self._nonblock = True
        self._fd = self._open(path)
        # Not at exit: the kernel ends the session then, and a write to a mount that hangs would keep the process.
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self._finalizer.atexit = False
        _live.add(self)

    def _open(self, path: str) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as err:
            raise MountError(f"{path} is gone: the mount was taken away", errno=err.errno) from err
        except OSError as err:
            raise from_errno(err.errno or errno.EIO, f"open {path}: {err.strerror}") from err

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def send(self, command: Mapping[str, object], *, block: bool = False, explain: bool = False) -> None:
        """Write one command.

        Raises BlockingIOError when the mount holds all the batches it can, which with ``block`` it waits out; the
        session is then of no more use. Raises the command's error when it is refused; ``explain`` gives it the
        mount's reason, for which it reads the session, passing over other events.
        """
        try:
            text = json.dumps(command, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError as err:
            raise from_errno(errno.EINVAL, f"{err.object[err.start : err.end]!r} in a name isn't text") from None
        with self._use() as fd:
            if block:
                self._set_nonblock(fd, False)
            rest = memoryview(text)
            try:
                while rest:
                    rest = rest[self._write(fd, rest) :]
            except BlockingIOError:
                raise
            except OSError as err:
                number = err.errno or errno.EIO
                code, reason = self._reason(number) if explain else (None, os.strerror(number))
                raise (from_errno(number, reason) if code is None else from_code(code, reason, errno=number)) from None

    def _write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def _reason(self, number: int) -> tuple[int | None, str]:
        """Why the last command was refused: the code, and the mount's words; without them the errno in words."""
        reasons: list[Event] = []

        def take(event: Event) -> None:
            if event.get("event") == "error" and "i" not in event:
                reasons.append(event)

        with contextlib.suppress(SheafError):
            self.pump(take, lambda: False, time.monotonic())
        last = reasons[-1] if reasons else {}
        code = last.get("code")
        return code if isinstance(code, int) else None, str(last.get("msg") or os.strerror(number))

    def pump(self, take: Callable[[Event], None], stop: Callable[[], bool], deadline: float | None) -> bool:
        """Hand events to ``take`` until ``stop`` says so or ``deadline`` (monotonic; None: never) passes.

        Tells whether ``stop`` said so. Several threads may pump: one reads while the others wait for it, and each
        asks ``stop`` before it reads. Raises `MountError` when the mount dies, `CanceledError` when the session was
        closed.
        """
        if not self._reading.acquire(timeout=-1 if deadline is None else max(0.0, left(deadline))):
            return stop()
        try:
            while not stop():
                event = self._next(deadline)
                if event is None:
                    return False
                take(event)
            return True
        finally:
            self._reading.release()

    def _next(self, deadline: float | None) -> Event | None:
        """The next event; None when there is none by ``deadline``."""
        with self._use() as fd:
            self._set_nonblock(fd, deadline is not None)
            pause = Pause(deadline)
            while (event := self._line()) is None:
                if self._closed:
                    raise CanceledError("the batch was released")
                try:
                    got = os.read(fd, _READ)
                except BlockingIOError:
                    if not pause.sleep():
                        return None
                    continue
                except OSError as err:
                    raise from_errno(err.errno or errno.EIO, f"read the session: {err.strerror}") from err
                if not got:
                    raise MountError("the mount ended the session", errno=errno.ENOTCONN)
                self._pending += got
            return event

    def _line(self) -> Event | None:
        end = self._pending.find(b"\n")
        if end < 0:
            return None
        text = bytes(self._pending[:end])
        del self._pending[: end + 1]
        try:
            event = json.loads(text)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            raise ProtocolError(f"not an event: {text[:200]!r}")
        return event

    def _set_nonblock(self, fd: int, on: bool) -> None:
        if on != self._nonblock:
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK if on else flags & ~os.O_NONBLOCK)
            self._nonblock = on

    @contextlib.contextmanager
    def _use(self) -> Iterator[int]:
        """The descriptor, which stays open meanwhile: a closed one's number may come to mean another file."""
        with self._guard:
            if self._closed:
                raise CanceledError("the batch was released")
            self._users += 1
        try:
            yield self._fd
        finally:
            with self._guard:
                self._users -= 1
                last = self._closed and self._users == 0
            if last:
                self._finalizer()

    def close(self) -> None:
        """End the session, once whoever reads it has noticed."""
        with self._guard:
            self._closed = True
            idle = self._users == 0
        if idle:
            self._finalizer()

    def _forked(self) -> None:
        """In a new child: let go of the parent's session. Locks are made anew: their holders stayed behind."""
        self._guard = threading.Lock()
        self._reading = threading.Lock()
        self._closed = True
        self._finalizer()


_live: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(_live):
        session._forked()
    _live.clear()


os.register_at_fork(after_in_child=_after_fork)
