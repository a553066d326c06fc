"""A node started as a unit file or a manifest starts it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SHEAF = os.environ["SHEAF_BIN"]
DEPLOY = Path(__file__).resolve().parent.parent
HANG = 120.0


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a service: nothing of the caller's but the path."""
    return {"PATH": os.environ["PATH"], "SHEAF_HOME": str(home), **(more or {})}


def certificates(home: Path) -> Path:
    """A CA with a node's and a client's certificate."""
    subprocess.run([SHEAF, "cert", "init"], env=environment(home), check=True, capture_output=True, timeout=HANG)
    return home / "certs"


class Node:
    """A running node; its log is JSON, from which its addresses come."""

    def __init__(self, args: Sequence[str], env: Mapping[str, str], notify: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(notify))
        self._socket.settimeout(HANG)
        self.process = subprocess.Popen(
            args,
            env={**env, "NOTIFY_SOCKET": str(notify)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def hear(self) -> str:
        """The next word to systemd."""
        try:
            return self._socket.recv(100).decode()
        except TimeoutError:
            raise AssertionError("".join(self.log)) from None

    def admin(self) -> str:
        """The bound address of the admin HTTP."""
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            for line in list(self.log):
                record = json.loads(line)
                if record["msg"] == "serving":
                    return str(record["admin"]).replace("[::]", "127.0.0.1")
            time.sleep(0.02)
        raise AssertionError("".join(self.log))

    def get(self, path: str) -> tuple[int, str]:
        """Asks the admin HTTP."""
        with urllib.request.urlopen(f"http://{self.admin()}{path}", timeout=HANG) as answer:
            return answer.status, answer.read().decode()

    def wait_ready(self, path: str) -> None:
        """Waits until a probe succeeds."""
        end = time.monotonic() + HANG
        while True:
            try:
                status, _ = self.get(path)
                assert status == 200
                return
            except urllib.error.HTTPError as e:
                why = e.read().decode()
            assert time.monotonic() < end, why
            time.sleep(0.05)

    def stop(self) -> int:
        """Ends the node as systemd and Kubernetes do."""
        self.process.terminate()
        try:
            return self.process.wait(HANG)
        finally:
            self.close()

    def close(self) -> None:
        """Leaves nothing behind, whatever happened."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        self._socket.close()


@contextmanager
def running(args: Sequence[str], env: Mapping[str, str], folder: Path) -> Iterator[Node]:
    """A node that has said that it is ready."""
    node = Node(args, env, folder / "notify")
    try:
        heard = node.hear()
        assert heard == "READY=1", heard
        yield node
    finally:
        node.close()
