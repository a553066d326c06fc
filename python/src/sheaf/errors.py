"""What can go wrong, as exceptions.

The codes and their numbers are those of the cluster (``internal/errs/codes.go``); an exception's
class follows from its code, and ``errno`` is what a system call on the mount would have given.
Nothing here decides by an error's text.
"""

from __future__ import annotations

import builtins
import errno as _errno
import os
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from sheaf._entry import Entry

__all__ = [
    "AlreadyExistsError",
    "BadShardError",
    "BucketNotFoundError",
    "BusyError",
    "CanceledError",
    "ChecksumError",
    "Code",
    "InternalError",
    "InvalidArgumentError",
    "IsDirectoryError",
    "MountError",
    "NoSpaceError",
    "NotEmptyError",
    "NotFoundError",
    "NotSupportedError",
    "PermissionDeniedError",
    "ProtocolError",
    "RangeError",
    "ReadOnlyError",
    "SenderLostError",
    "SenderTimeoutError",
    "SheafError",
    "TimeoutError",
    "TooLargeError",
    "TooManyEntriesError",
    "TooManyRequestsError",
    "UnavailableError",
    "VersionMismatchError",
]


class Code(IntEnum):
    """The cluster's error codes. Numbers are only ever added."""

    OK = 0
    NOT_FOUND = 1
    ALREADY_EXISTS = 2
    PERMISSION_DENIED = 3
    INVALID_ARGUMENT = 4
    TOO_LARGE = 5
    TOO_MANY_REQUESTS = 6
    NO_SPACE = 7
    CHECKSUM_MISMATCH = 8
    VERSION_MISMATCH = 9
    TIMEOUT = 10
    UNAVAILABLE = 11
    CANCELED = 12
    INTERNAL = 13
    NOT_SUPPORTED = 14
    NOT_EMPTY = 15
    RANGE_NOT_SATISFIABLE = 16
    PROTOCOL = 17
    READ_ONLY = 18
    BUCKET_NOT_FOUND = 19
    SENDER_LOST = 20
    SENDER_TIMEOUT = 21
    BAD_SHARD = 22
    TOO_MANY_ENTRIES = 23
    IS_DIRECTORY = 24
    BUSY = 25

    @property
    def words(self) -> str:
        """The code in words, as in the cluster's own messages."""
        return _TABLE[self][0]

    @property
    def errno(self) -> int:
        """The errno that the mount answers for this code; 0 for OK."""
        return _TABLE[self][1]

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without a change."""
        return self in _RETRYABLE


class SheafError(OSError):
    """A failure of the cluster or the mount; the base of every error of this package.

    ``code`` is the cluster's code (None for a `MountError`), ``errno`` an errno of this machine,
    ``message`` the cause in words. ``index`` and ``entry`` name the batch entry that failed, where one did.
    """

    default_code: ClassVar[Code | None] = Code.INTERNAL

    def __init__(
        self,
        message: str = "",
        *,
        code: Code | None = None,
        errno: int | None = None,
        index: int | None = None,
        entry: Entry | None = None,
    ) -> None:
        self.code = code if code is not None else self.default_code
        self.index = index
        self.entry = entry
        self.message = message or (self.code.words if self.code is not None else "")
        if errno is None:
            errno = self.code.errno if self.code is not None else _errno.EIO
        super().__init__(errno, self.message)

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without a change."""
        return self.code is not None and self.code.retryable

    def __str__(self) -> str:
        if self.index is not None:
            named = f"entry {self.index} ({self.entry})" if self.entry is not None else f"entry {self.index}"
        elif self.entry is not None:
            named = str(self.entry)
        else:
            return self.message
        return f"{named}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.code, self.errno, self.index, self.entry)


def _rebuild(
    cls: type[SheafError],
    message: str,
    code: Code | None,
    errno: int | None,
    index: int | None,
    entry: Entry | None,
) -> SheafError:
    return cls(message, code=code, errno=errno, index=index, entry=entry)


class MountError(SheafError):
    """There is no Sheaf mount where one was expected, or it has died."""

    default_code = None


class NotFoundError(SheafError, FileNotFoundError):
    """The object, the member or the batch does not exist."""

    default_code = Code.NOT_FOUND


class BucketNotFoundError(NotFoundError):
    """The bucket does not exist."""

    default_code = Code.BUCKET_NOT_FOUND


class AlreadyExistsError(SheafError, FileExistsError):
    """The batch id is in use."""

    default_code = Code.ALREADY_EXISTS


class PermissionDeniedError(SheafError, PermissionError):
    """The mount's certificate does not allow this."""

    default_code = Code.PERMISSION_DENIED


class InvalidArgumentError(SheafError, ValueError):
    """The request itself is wrong; ``message`` lists its faults."""

    default_code = Code.INVALID_ARGUMENT


class TooManyEntriesError(InvalidArgumentError):
    """The request has more entries than the cluster takes in one batch: split it."""

    default_code = Code.TOO_MANY_ENTRIES


class TooLargeError(SheafError):
    """Something is larger than the cluster takes."""

    default_code = Code.TOO_LARGE


class TooManyRequestsError(SheafError):
    """The cluster is too busy to take the batch now."""

    default_code = Code.TOO_MANY_REQUESTS


class NoSpaceError(SheafError):
    """The disk that the batch should land on is full."""

    default_code = Code.NO_SPACE


class ChecksumError(SheafError):
    """Bytes read differ from the bytes stored."""

    default_code = Code.CHECKSUM_MISMATCH


class VersionMismatchError(SheafError):
    """The object changed while it was read."""

    default_code = Code.VERSION_MISMATCH


class TimeoutError(SheafError, builtins.TimeoutError):
    """The time allowed has passed."""

    default_code = Code.TIMEOUT


class SenderTimeoutError(TimeoutError):
    """The node that has the entry did not deliver it in time."""

    default_code = Code.SENDER_TIMEOUT


class UnavailableError(SheafError):
    """The cluster, or the node needed, can't be reached."""

    default_code = Code.UNAVAILABLE


class SenderLostError(UnavailableError):
    """The node that has the entry went away while it delivered."""

    default_code = Code.SENDER_LOST


class CanceledError(SheafError):
    """The batch was canceled or released."""

    default_code = Code.CANCELED


class InternalError(SheafError):
    """A fault inside the cluster or the mount."""

    default_code = Code.INTERNAL


class NotSupportedError(SheafError):
    """This build does not do that."""

    default_code = Code.NOT_SUPPORTED


class NotEmptyError(SheafError):
    """The bucket or directory still holds something."""

    default_code = Code.NOT_EMPTY


class RangeError(SheafError):
    """The range begins or ends beyond the end of the object or member."""

    default_code = Code.RANGE_NOT_SATISFIABLE


class ProtocolError(SheafError):
    """An answer breaks the protocol or the format of the mount's files."""

    default_code = Code.PROTOCOL


class ReadOnlyError(SheafError):
    """The mount does not change objects."""

    default_code = Code.READ_ONLY


class BadShardError(SheafError):
    """The shard is not a readable archive."""

    default_code = Code.BAD_SHARD


class IsDirectoryError(SheafError, IsADirectoryError):
    """The name is a directory's."""

    default_code = Code.IS_DIRECTORY


class BusyError(SheafError):
    """Something is in use."""

    default_code = Code.BUSY


_TABLE: dict[Code, tuple[str, int, type[SheafError]]] = {
    Code.OK: ("ok", 0, SheafError),
    Code.NOT_FOUND: ("not found", _errno.ENOENT, NotFoundError),
    Code.ALREADY_EXISTS: ("already exists", _errno.EEXIST, AlreadyExistsError),
    Code.PERMISSION_DENIED: ("permission denied", _errno.EACCES, PermissionDeniedError),
    Code.INVALID_ARGUMENT: ("invalid argument", _errno.EINVAL, InvalidArgumentError),
    Code.TOO_LARGE: ("too large", _errno.EFBIG, TooLargeError),
    Code.TOO_MANY_REQUESTS: ("too many requests", _errno.EAGAIN, TooManyRequestsError),
    Code.NO_SPACE: ("no space left", _errno.ENOSPC, NoSpaceError),
    Code.CHECKSUM_MISMATCH: ("checksum mismatch", _errno.EIO, ChecksumError),
    Code.VERSION_MISMATCH: ("version mismatch", _errno.ESTALE, VersionMismatchError),
    Code.TIMEOUT: ("timed out", _errno.ETIMEDOUT, TimeoutError),
    Code.UNAVAILABLE: ("unavailable", _errno.EHOSTUNREACH, UnavailableError),
    Code.CANCELED: ("canceled", _errno.EINTR, CanceledError),
    Code.INTERNAL: ("internal error", _errno.EIO, InternalError),
    Code.NOT_SUPPORTED: ("not supported", _errno.EOPNOTSUPP, NotSupportedError),
    Code.NOT_EMPTY: ("not empty", _errno.ENOTEMPTY, NotEmptyError),
    Code.RANGE_NOT_SATISFIABLE: ("range not satisfiable", _errno.ERANGE, RangeError),
    Code.PROTOCOL: ("protocol violation", _errno.EPROTO, ProtocolError),
    Code.READ_ONLY: ("read-only", _errno.EROFS, ReadOnlyError),
    Code.BUCKET_NOT_FOUND: ("bucket not found", _errno.ENOENT, BucketNotFoundError),
    Code.SENDER_LOST: ("sender lost", _errno.EHOSTUNREACH, SenderLostError),
    Code.SENDER_TIMEOUT: ("sender timed out", _errno.ETIMEDOUT, SenderTimeoutError),
    Code.BAD_SHARD: ("bad shard", _errno.EBADMSG, BadShardError),
    Code.TOO_MANY_ENTRIES: ("too many entries", _errno.E2BIG, TooManyEntriesError),
    Code.IS_DIRECTORY: ("is a directory", _errno.EISDIR, IsDirectoryError),
    Code.BUSY: ("busy", _errno.EBUSY, BusyError),
}

_RETRYABLE = frozenset({Code.TOO_MANY_REQUESTS, Code.TIMEOUT, Code.UNAVAILABLE, Code.SENDER_LOST, Code.SENDER_TIMEOUT})

# Several codes share an errno: the most general of them is meant then.
_BY_ERRNO: dict[int, Code] = {
    **{code.errno: code for code in reversed(Code) if code is not Code.OK},
    _errno.EIO: Code.INTERNAL,
    _errno.ECANCELED: Code.CANCELED,
    _errno.EPERM: Code.PERMISSION_DENIED,
}

# What a dead or aborted FUSE connection answers.
_DEAD = frozenset({_errno.ENOTCONN, _errno.ECONNABORTED, _errno.ESHUTDOWN, _errno.ENODEV})


def from_code(
    number: int, message: str = "", *, errno: int = 0, index: int | None = None, entry: Entry | None = None
) -> SheafError:
    """Make the exception for a code's number.

    A number of a later version gives an `InternalError` with that version's ``errno``.
    """
    try:
        code = Code(number)
    except ValueError:
        return InternalError(message or f"error {number}", errno=errno or None, index=index, entry=entry)
    return _TABLE[code][2](message, code=code, index=index, entry=entry)


def code_of_errno(number: int) -> Code:
    """The code that an errno most likely stands for; INTERNAL for one that no code has."""
    return _BY_ERRNO.get(number, Code.INTERNAL)


def errno_of_name(name: str) -> int:
    """The number of an errno's name ("ENOENT"); EIO for a name that this machine lacks."""
    number = getattr(_errno, name, _errno.EIO) if name[:1] == "E" else _errno.EIO
    return number if isinstance(number, int) else _errno.EIO


def from_errno(number: int, message: str = "", *, entry: Entry | None = None) -> SheafError:
    """Make the exception for an errno that the mount answered; the errno itself is kept."""
    if number in _DEAD:
        return MountError(f"the mount is dead ({os.strerror(number)}): mount it anew", errno=number)
    code = code_of_errno(number)
    return _TABLE[code][2](message or os.strerror(number), code=code, errno=number, entry=entry)
