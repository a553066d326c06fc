"""The real cluster of the tests, its command line and its data."""

from __future__ import annotations

import io
import os
import random
import selectors
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

COMMAND_SECONDS = 120
START_SECONDS = 60
STOP_SECONDS = 30


def find_binary() -> str:
    """$SHEAF_BIN, or what `make build` made."""
    path = os.environ.get("SHEAF_BIN") or str(Path(__file__).parents[2] / "bin" / "sheaf")
    found = shutil.which(path)
    if found is None:
        pytest.fail(f"no program {path}: run `make build` or set SHEAF_BIN")
    return found


@dataclass
class Cluster:
    """A running cluster and its mount."""

    binary: str
    mnt: Path
    base: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]
    objects: dict[str, bytes] = field(default_factory=dict)  # "bucket/object" to its bytes
    members: dict[str, bytes] = field(default_factory=dict)  # "bucket/shard.tar@/member" to its bytes

    def sheaf(self, *args: str | Path) -> str:
        """Run a command; its stdout."""
        done = subprocess.run(
            [self.binary, *args], env=self.env, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
        assert done.returncode == 0, f"sheaf {' '.join(map(str, args))}: {done.stderr}"
        return done.stdout

    def load(self) -> None:
        """Two buckets: `b` of objects, small ones under `many/`, and shards; `c` of a few objects."""
        rng = random.Random(20240607)
        source = self.base / "source"
        many = source / "many"
        many.mkdir(parents=True)
        for i in range(1000):
            self._write(source, "b", f"many/{i:04d}.bin", rng.randbytes(rng.randrange(1, 12_000)))
        self._write(source, "b", "empty", b"")
        self._write(source, "b", "a b/ünï…cödé", b"text" * 100)
        self._write(source, "b", "big", rng.randbytes(9 << 20))
        for s in range(2):
            files = {f"{i:03d}/s.jpg": rng.randbytes(rng.randrange(0, 20_000)) for i in range(60)}
            files["empty.cls"] = b""
            self._write(source, "b", f"shards/train-{s}.tar", make_tar(files))
            for name, data in files.items():
                self.members[f"b/shards/train-{s}.tar@/{name}"] = data
        self.sheaf("bucket", "create", "b")
        self.sheaf("put", "-r", source, "b")
        self.sheaf("bucket", "create", "c")
        for i in range(3):
            path = self.base / f"c{i}"
            path.write_bytes(rng.randbytes(5000))
            self.objects[f"c/pre/{i}"] = path.read_bytes()
            self.sheaf("put", path, f"c/pre/{i}")

    def _write(self, source: Path, bucket: str, name: str, data: bytes) -> None:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.objects[f"{bucket}/{name}"] = data

    def bytes_of(self, path: str) -> bytes:
        """The source's bytes of an object or a member."""
        return self.members[path] if "@/" in path else self.objects[path]

    def batches(self) -> set[str]:
        """The batches that the mount holds now."""
        return set(os.listdir(self.mnt / ".sheaf" / "batch"))


def make_tar(files: dict[str, bytes]) -> bytes:
    """A TAR archive, the same bytes each time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@contextmanager
def running(nodes: int) -> Iterator[Cluster]:
    """A cluster with its mount, without data; nothing of it is left afterwards."""
    binary = find_binary()
    base = Path(tempfile.mkdtemp(prefix="sheaf-test-"))
    mnt = base / "mnt"
    mnt.mkdir()
    env = dict(os.environ, SHEAF_HOME=str(base / "home"))
    args = ["up", "--nodes", str(nodes), "--mount", str(mnt), "--dir", str(base / "data"), "--listen", "127.0.0.1:0"]
    with (base / "log").open("wb") as log:
        process = subprocess.Popen([binary, *args], stdout=subprocess.PIPE, stderr=log, env=env)
    try:
        await_ready(process, base / "log")
        yield Cluster(binary, mnt, base, env, process)
    finally:
        stop(process, mnt)
        shutil.rmtree(base)


def await_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    """Read stdout up to the line that begins with "ready"."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    seen = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not any(line.startswith(b"ready") for line in seen.splitlines()):
            why, got = f"was not ready in {START_SECONDS} s", b""
            if selector.select(max(0.0, deadline - time.monotonic())):
                why, got = "ended", os.read(process.stdout.fileno(), 4096)
            if not got:
                pytest.fail(f"sheaf up {why}: {seen.decode(errors='replace')}{log.read_text(errors='replace')}")
            seen += got


def stop(process: subprocess.Popen[bytes], mnt: Path) -> None:
    """End the cluster as a user would, and by force when that does nothing; the mount is gone in any case."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
    # The table of mounts is asked, as a look at a mount that hangs would hang this process.
    if f" {mnt} " in Path("/proc/self/mounts").read_text():
        subprocess.run(["umount", "-l", mnt], check=True)
