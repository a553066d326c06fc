"""Codes and exceptions, and that they agree with the cluster's table."""

from __future__ import annotations

import errno
import pickle
import re
from pathlib import Path

import pytest

import sheaf
from sheaf import errors
from sheaf.errors import Code

CODES_GO = (Path(__file__).parents[2] / "internal" / "errs" / "codes.go").read_text()


def go_name(code: Code) -> str:
    return "OK" if code is Code.OK else code.name.title().replace("_", "")


def test_codes_are_those_of_the_cluster() -> None:
    numbers = {name: int(n) for name, n in re.findall(r"^\t(\w+)\s+Code = (\d+)$", CODES_GO, re.MULTILINE)}
    assert {go_name(c): int(c) for c in Code} == numbers


def test_words_and_errnos_are_those_of_the_cluster() -> None:
    rows = re.findall(r'^\t(\w+):\s+\{"([^"]+)", (?:syscall\.)?(\w+), ', CODES_GO, re.MULTILINE)
    table = {name: (words, 0 if e == "0" else getattr(errno, e)) for name, words, e in rows}
    assert {go_name(c): (c.words, c.errno) for c in Code} == table


def test_retryable_as_in_the_cluster() -> None:
    body = CODES_GO.split("Retryable() bool {")[1].split("return true")[0]
    assert {go_name(c) for c in Code if c.retryable} == set(re.findall(r"[A-Z]\w+", body))


@pytest.mark.parametrize("code", [c for c in Code if c is not Code.OK])
def test_every_code_has_a_class_of_its_own(code: Code) -> None:
    err = errors.from_code(code, "why")
    assert type(err) is not sheaf.SheafError
    assert type(err).default_code is code
    assert (err.code, err.errno, err.strerror, str(err)) == (code, code.errno, "why", "why")
    assert isinstance(err, sheaf.SheafError)
    assert isinstance(err, OSError)


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [
        (sheaf.NotFoundError, FileNotFoundError),
        (sheaf.BucketNotFoundError, sheaf.NotFoundError),
        (sheaf.TimeoutError, TimeoutError),
        (sheaf.InvalidArgumentError, ValueError),
        (sheaf.TooManyEntriesError, ValueError),
        (sheaf.PermissionDeniedError, PermissionError),
        (sheaf.SenderLostError, sheaf.UnavailableError),
        (sheaf.SenderTimeoutError, sheaf.TimeoutError),
    ],
)
def test_families(ours: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(ours, builtin)


def test_a_code_of_a_later_version_is_internal_and_keeps_its_errno() -> None:
    err = errors.from_code(999, errno=errno.EXDEV, index=3)
    assert type(err) is sheaf.InternalError
    assert (err.errno, err.index) == (errno.EXDEV, 3)
    assert "999" in str(err)


@pytest.mark.parametrize(
    ("number", "cls"),
    [
        (errno.ENOENT, sheaf.NotFoundError),
        (errno.EIO, sheaf.InternalError),
        (errno.ECANCELED, sheaf.CanceledError),
        (errno.EHOSTUNREACH, sheaf.UnavailableError),
        (errno.ETIMEDOUT, sheaf.TimeoutError),
        (errno.E2BIG, sheaf.TooManyEntriesError),
        (errno.ENOTCONN, sheaf.MountError),
        (errno.ECONNABORTED, sheaf.MountError),
        (errno.EXDEV, sheaf.InternalError),
    ],
)
def test_errno_to_class(number: int, cls: type[sheaf.SheafError]) -> None:
    err = errors.from_errno(number)
    assert type(err) is cls
    assert err.errno == number


def test_names_of_errnos() -> None:
    assert errors.errno_of_name("ENOENT") == errno.ENOENT
    for name in ("errorcode", "", "ENOSUCHTHING", "__name__"):
        assert errors.errno_of_name(name) == errno.EIO


def test_message_names_the_entry() -> None:
    err = sheaf.NotFoundError("not found", index=7, entry=sheaf.Entry("b", "s.tar", "m"))
    assert str(err) == "entry 7 (b/s.tar@/m): not found"


@pytest.mark.parametrize(
    "err",
    [
        sheaf.NotFoundError("gone", index=7, entry=sheaf.Entry("b", "o", start=1, length=2)),
        sheaf.InvalidArgumentError("bad"),
        errors.from_code(999, "odd", errno=errno.EXDEV),
        sheaf.MountError("dead", errno=errno.ENOTCONN),
    ],
)
def test_errors_can_be_pickled(err: sheaf.SheafError) -> None:
    back = pickle.loads(pickle.dumps(err))
    assert type(back) is type(err)
    for name in ("code", "errno", "message", "index", "entry"):
        assert getattr(back, name) == getattr(err, name)
    assert str(back) == str(err)


def test_errors_can_be_made_of_a_message_alone() -> None:
    """Which is how a DataLoader raises a worker's error anew."""
    for name in errors.__all__:
        cls = getattr(errors, name)
        if isinstance(cls, type) and issubclass(cls, sheaf.SheafError):
            assert "worker" in str(cls("in worker 0"))


def test_everything_is_exported() -> None:
    assert set(errors.__all__) <= set(sheaf.__all__)
    assert all(hasattr(sheaf, name) for name in sheaf.__all__)
