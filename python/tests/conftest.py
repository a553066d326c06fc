"""Fixtures: a fake mount for the fast tests, and a real cluster with its mount for the others."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakemount import FakeMount
from realmount import Cluster, running

# Whoever is started in the background, as by a CI, may be told to ignore Ctrl-C, and its children with it: the
# tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMount]:
    """A mount of ordinary files with a few objects."""
    mount = FakeMount(tmp_path / "mnt")
    mount.put("b", "one", b"first")
    mount.put("b", "d/two", b"the second")
    mount.put("b", "empty", b"")
    mount.put("c", "one", b"of another bucket")
    mount.put("b", "s.tar", b"not really an archive")
    mount.put("b", "s.tar", b"a member", member="x/m.txt")
    yield mount
    mount.close()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster of three nodes with its mount and data, for the whole run; nothing of it is left afterwards."""
    with running(nodes=3) as made:
        made.load()
        yield made
