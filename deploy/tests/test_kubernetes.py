"""The manifest: held against the API's schemas, against itself, and against the program."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from node import DEPLOY, HANG, SHEAF, certificates, environment, running

Object = dict[str, Any]
OBJECTS: list[Object] = list(yaml.safe_load_all((DEPLOY / "kubernetes/sheaf.yaml").read_text()))
VERSIONS = ["1.30", "1.37"]


def of(kind: str, name: str) -> Object:
    """One object of the manifest."""
    (found,) = [o for o in OBJECTS if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


SET = of("StatefulSet", "sheaf")
POD = SET["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
PORTS = {p["name"]: p for p in CONTAINER["ports"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("made", OBJECTS, ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_schema(made: Object, version: str) -> None:
    kubernetes_validate.validate(made, version, strict=True)


def test_schema_refuses() -> None:
    wrong = copy.deepcopy(SET)
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_selectors_find_the_pods() -> None:
    labels = POD["metadata"]["labels"].items()
    (anti,) = POD["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    chosen = [
        SET["spec"]["selector"]["matchLabels"],
        of("PodDisruptionBudget", "sheaf")["spec"]["selector"]["matchLabels"],
        of("NetworkPolicy", "sheaf")["spec"]["podSelector"]["matchLabels"],
        anti["labelSelector"]["matchLabels"],
        *(o["spec"]["selector"] for o in OBJECTS if o["kind"] == "Service"),
    ]
    for selector in chosen:
        assert selector
        assert selector.items() <= labels


def test_ports_and_volumes_have_names_that_exist() -> None:
    for service in (o for o in OBJECTS if o["kind"] == "Service"):
        for port in service["spec"]["ports"]:
            assert port["protocol"] == PORTS[port["targetPort"]]["protocol"]
    for rule in of("NetworkPolicy", "sheaf")["spec"]["ingress"]:
        for port in rule["ports"]:
            assert port["protocol"] == PORTS[port["port"]]["protocol"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert CONTAINER[probe]["httpGet"]["port"] == "admin"
    claims = {c["metadata"]["name"] for c in SET["spec"]["volumeClaimTemplates"]}
    assert {m["name"] for m in CONTAINER["volumeMounts"]} == claims | {v["name"] for v in POD["spec"]["volumes"]}
    assert of("Service", SET["spec"]["serviceName"])["spec"]["clusterIP"] == "None"
    assert POD["metadata"]["annotations"]["prometheus.io/port"] == str(PORTS["admin"]["containerPort"])


def test_variables_of_the_arguments_are_set() -> None:
    used = set(re.findall(r"\$\((\w+)\)", " ".join(CONTAINER["args"])))
    assert used == {"POD_NAME", "POD_NAMESPACE"}
    assert used <= {e["name"] for e in CONTAINER["env"]}


def arguments(tmp_path: Path) -> list[str]:
    """The container's arguments on this machine: its folders, any free ports."""
    changes = {
        "$(POD_NAME)": "sheaf-0",
        "$(POD_NAMESPACE)": "sheaf",
        "--dir=/data": f"--dir={tmp_path}/data",
        "--certs=/etc/sheaf/certs": f"--certs={tmp_path}/certs",
        "--listen=0.0.0.0:7070": "--listen=0.0.0.0:0",
        "--admin=:9070": "--admin=127.0.0.1:0",
    }
    args = list(CONTAINER["args"])
    for old, new in changes.items():
        assert any(old in a for a in args), old
        args = [a.replace(old, new) for a in args]
    return args


def test_the_first_node_starts_and_its_probes_succeed(tmp_path: Path) -> None:
    """It finds itself in --join, where its name needn't resolve."""
    shutil.copytree(certificates(tmp_path / "ca"), tmp_path / "certs")
    with running([SHEAF, *arguments(tmp_path)], environment(tmp_path), tmp_path) as node:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            node.wait_ready(CONTAINER[probe]["httpGet"]["path"])
        status, metrics = node.get(POD["metadata"]["annotations"]["prometheus.io/path"])
        assert status == 200
        assert "\nsheaf_disk_free_bytes" in metrics
        assert node.stop() == 0


def test_the_image_needs_nothing_else(tmp_path: Path) -> None:
    """The Dockerfile puts the program into an empty image: so it must run in an empty root."""
    assert "FROM scratch" in (DEPLOY / "kubernetes/Dockerfile").read_text()
    shutil.copy(SHEAF, tmp_path / "sheaf")
    r = subprocess.run(
        ["/sheaf", "version"],
        env={},
        cwd="/",
        preexec_fn=lambda: os.chroot(tmp_path),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert r.returncode == 0, r.stderr
    assert f"sheaf:{r.stdout.split()[-1]}" == CONTAINER["image"]
