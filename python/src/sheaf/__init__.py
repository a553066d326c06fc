"""Batches of samples from a Sheaf cluster, through its mount.

    program ──▶ Client.batch ──▶ .sheaf/control (a manifest)
            ◀── Batch, Items ◀── .sheaf/batch/<id>/{index,data}

Example::

    with sheaf.Client("/mnt/sheaf") as client:
        with client.batch(["photos/a.jpg", "train/000.tar@/17.png"]) as batch:
            for item in batch:
                decode(item.data)

Standard library only; Linux.
"""

from sheaf._entry import Entry, EntryLike
from sheaf.batch import Batch, Item
from sheaf.client import Client
from sheaf.errors import (
    AlreadyExistsError,
    BadShardError,
    BucketNotFoundError,
    BusyError,
    CanceledError,
    ChecksumError,
    Code,
    InternalError,
    InvalidArgumentError,
    IsDirectoryError,
    MountError,
    NoSpaceError,
    NotEmptyError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    ProtocolError,
    RangeError,
    ReadOnlyError,
    SenderLostError,
    SenderTimeoutError,
    SheafError,
    TimeoutError,
    TooLargeError,
    TooManyEntriesError,
    TooManyRequestsError,
    UnavailableError,
    VersionMismatchError,
)
from sheaf.pending import PendingBatch

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "BadShardError",
    "Batch",
    "BucketNotFoundError",
    "BusyError",
    "CanceledError",
    "ChecksumError",
    "Client",
    "Code",
    "Entry",
    "EntryLike",
    "InternalError",
    "InvalidArgumentError",
    "IsDirectoryError",
    "Item",
    "MountError",
    "NoSpaceError",
    "NotEmptyError",
    "NotFoundError",
    "NotSupportedError",
    "PendingBatch",
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
