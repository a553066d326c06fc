"""Batches on their way."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import threading
from types import TracebackType
from typing import Any, NoReturn

from sheaf._control import Event, Session, deadline_of
from sheaf._entry import Entry
from sheaf.batch import Batch, Lease, Paths
from sheaf.errors import (
    CanceledError,
    NotFoundError,
    ProtocolError,
    SheafError,
    TimeoutError,
    errno_of_name,
    from_code,
    from_errno,
)

__all__ = ["PendingBatch"]


class PendingBatch:
    """A batch that was submitted. `Client.submit` makes them.

    It may be asked from any thread, and from a child forked since. Releasing it (or dropping it, or the end of the
    process that submitted it) cancels it and frees what it holds in the mount.
    """

    def __init__(self, lease: Lease, mount: str, entries: tuple[Entry, ...], *, in_memory: bool) -> None:
        self._lease = lease
        self._paths = Paths(mount, lease.id)
        self._in_memory = in_memory
        self._lock = threading.Lock()
        self._session = lease.session  # after a fork, the child's own
        self._pid = os.getpid()
        self._done: Event | None = None
        self._messages: dict[int, str] = {}
        self._batch: Batch | None = None
        self._failed: SheafError | None = None
        self.id = lease.id
        """The batch's name below ``.sheaf/batch``."""
        self.entries = entries
        """What was asked for, in order."""

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        state = "released" if self._lease.released else "done" if self._done else "running"
        return f"<sheaf.PendingBatch {self.id} of {len(self)} entries, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a batch belongs to its process: pickle the Client and the entries")

    def __enter__(self) -> PendingBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def done(self) -> bool:
        """Whether nothing more will arrive, be it that all came or that the batch failed. Doesn't block."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing more will arrive, at most ``timeout`` seconds; tells whether it is so.

        Raises `MountError` when the mount dies, `CanceledError` when the batch was released meanwhile.
        """
        if self._done is not None:
            return True
        self._check()
        return self._own_session().pump(self._take, lambda: self._done is not None, deadline_of(timeout))

    def _check(self) -> None:
        if self._lease.released:
            raise CanceledError(f"batch {self.id} was released")

    def _own_session(self) -> Session:
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            session = type(self._lease.session)(self._paths.control)
            session.send({"op": "wait", "id": self.id}, explain=True)
            self._session, self._pid = session, os.getpid()
        return self._session

    def _take(self, event: Event) -> None:
        if event.get("id", self.id) != self.id:
            return
        kind = event.get("event")
        if kind == "error" and isinstance(event.get("i"), int):
            self._messages[event["i"]] = str(event.get("msg", ""))
        elif kind == "done":
            self._done = event
        elif kind == "released":
            self._done = {"event": "done", "errno": "ECANCELED", "msg": f"batch {self.id} was released"}

    def result(self, timeout: float | None = None) -> Batch:
        """Wait at most ``timeout`` seconds and give the batch, the same one on every call.

        Raises `TimeoutError` when it isn't done by then (it goes on; ask again or release it). Raises the batch's
        error, and releases it, when it failed: the class says why, ``index`` and ``entry`` which entry it was.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"batch {self.id} of {len(self)} entries was not there after {timeout} s")
        with self._lock:
            if self._batch is not None:
                return self._batch
            if self._failed is None:
                self._check()
                if self._done is not None and self._done.get("errno"):
                    self._failed = self._failure(self._done)
                    self.release()
            if self._failed is not None:
                # A copy, as one that was raised holds the frames that it went through, and they this.
                raise copy.copy(self._failed)
            try:
                self._batch = Batch(self._lease, self._paths, self.entries, self._messages, self._in_memory)
            except BaseException:
                self.release()
                raise
            return self._batch

    def _failure(self, done: Event) -> SheafError:
        """What the batch failed of, and the entry that was the cause when one was."""
        number = errno_of_name(str(done["errno"]))
        message = str(done.get("msg", ""))
        code = done.get("code")
        failure = from_code(code, message, errno=number) if isinstance(code, int) else from_errno(number, message)
        index = done.get("i")
        if isinstance(index, int) and 0 <= index < len(self.entries):
            failure.index, failure.entry = index, self.entries[index]
        return failure

    def status(self) -> dict[str, Any]:
        """The mount's account of the batch: ``id``, ``state`` ("running", "done", "failed", "canceled"), ``n``,
        ``arrived``, ``ok``, ``err`` (entries), ``bytes``, ``ms``, and ``errno`` and ``msg`` of a failed one.

        Raises `NotFoundError` once it was released.
        """
        text = self._paths.read("status")
        try:
            status = json.loads(text)
        except ValueError:
            status = None
        if not isinstance(status, dict):
            raise ProtocolError(f"not a status: {text[:200]!r}")
        return status

    def cancel(self) -> None:
        """Stop the batch: what has not arrived fails, and `result` raises `CanceledError`.

        Without effect on one that is done or released.
        """
        if self._done is None and not self._lease.released:
            with contextlib.suppress(CanceledError, NotFoundError):
                self._own_session().send({"op": "cancel", "id": self.id})

    def release(self) -> None:
        """Cancel the batch if need be and let the mount forget it. May be called again.

        A `Batch` made of it keeps its bytes. In a forked child this only ends the child's own waiting.
        """
        if self._session is not self._lease.session:
            self._session.close()
        self._lease.release()
