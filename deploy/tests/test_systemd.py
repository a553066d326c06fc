"""The unit files: systemd itself reads them, and what they start, starts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from node import DEPLOY, HANG, SHEAF, certificates, environment, running

UNITS = DEPLOY / "systemd"
INSTANCES = {"sheaf-node@.service": "sheaf-node@n1.service", "sheaf-mount@.service": "sheaf-mount@mnt-sheaf.service"}


def verify(root: Path, unit: str, text: str) -> tuple[int, str]:
    """What systemd says of a unit on a machine that has Sheaf installed."""
    units = root / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / unit).write_text(text)
    programs = root / "usr/bin"
    programs.mkdir(parents=True)
    for name in ("sheaf", "mkdir"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    r = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            "--generators=no",
            "--recursive-errors=no",
            f"--root={root}",
            INSTANCES[unit],
        ],
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    return r.returncode, r.stdout + r.stderr


def test_every_unit_is_checked() -> None:
    assert {p.name for p in UNITS.glob("*.service")} == set(INSTANCES)


@pytest.mark.parametrize("unit", INSTANCES)
def test_systemd_accepts(unit: str, tmp_path: Path) -> None:
    status, said = verify(tmp_path, unit, (UNITS / unit).read_text())
    # What it has to say of the machine isn't the unit's fault.
    assert (status, [line for line in said.splitlines() if "sheaf" in line]) == (0, []), said


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("RestartSec=", "RestartSeconds="),
        ("Type=notify", "Type=notifies"),
        ("/usr/bin/sheaf serve", "/usr/bin/none serve"),
        ("[Service]", "[Servic]"),
    ],
)
def test_systemd_refuses(right: str, wrong: str, tmp_path: Path) -> None:
    text = (UNITS / "sheaf-node@.service").read_text()
    assert right in text
    assert verify(tmp_path, "sheaf-node@.service", text.replace(right, wrong))[1] != ""


def directives(unit: str, key: str) -> list[str]:
    """The values that a unit gives a key."""
    return re.findall(rf"^{key}=(.*)$", (UNITS / unit).read_text(), re.MULTILINE)


def test_node_starts_as_the_unit_says(tmp_path: Path) -> None:
    home, etc = tmp_path / "lib", tmp_path / "etc"
    (etc / "certs").mkdir(parents=True)
    shutil.copytree(certificates(home), etc / "certs", dirs_exist_ok=True)
    conf = ["listen = 127.0.0.1:0", "admin = 127.0.0.1:0", "log-format = json"]
    (etc / "n1.conf").write_text("\n".join([f"dir = {home}/disk1", f"dir = {home}/disk2", *conf]))

    places = {"%i": "n1", "/etc/sheaf": str(etc), "/var/lib/sheaf": str(home), "/usr/bin/sheaf": SHEAF}

    def here(value: str) -> str:
        for there, place in places.items():
            value = value.replace(there, place)
        return value

    (start,) = directives("sheaf-node@.service", "ExecStart")
    env = dict(here(e).split("=", 1) for e in directives("sheaf-node@.service", "Environment"))
    with running(shlex.split(here(start)), environment(home, env), tmp_path) as node:
        assert node.get("/readyz") == (200, "ok\n")
        assert node.stop() == 0
    assert (home / "disk2").is_dir()


def test_the_example_is_understood(tmp_path: Path) -> None:
    """All flags of the file exist; then the certificates are missed, which a fresh machine has not."""
    r = subprocess.run(
        [SHEAF, "serve", "--config", str(UNITS / "node.conf")],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert (r.returncode, "sheaf cert init" in r.stderr) == (3, True), r.stderr


def test_the_mount_unit_asks_for_what_there_is(tmp_path: Path) -> None:
    """Its command line is understood; the cluster isn't there."""
    (start,) = directives("sheaf-mount@.service", "ExecStart")
    settings = dict(
        line.split("=", 1)
        for line in (UNITS / "mount.env").read_text().splitlines()
        if line and not line.startswith("#")
    )
    certificates(tmp_path)
    words = (
        start.replace("/usr/bin/sheaf", SHEAF).replace("%f", str(tmp_path / "mnt")).replace("/var/cache", str(tmp_path))
    )
    args = shlex.split(words.replace("$SHEAF_MOUNT_OPTS", settings.pop("SHEAF_MOUNT_OPTS")))
    settings["SHEAF_ENDPOINT"] = "127.0.0.1:1"
    r = subprocess.run(args, env=environment(tmp_path, settings), capture_output=True, text=True, timeout=HANG)
    assert (r.returncode, "no cluster answers" in r.stderr) == (5, True), r.stderr
