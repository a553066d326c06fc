"""Owners as the cluster computes them, and as the specification says."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import TypedDict

import pytest
import xxhash

from protocol.placement import mix, owner, score

CASES = Path(__file__).resolve().parents[3] / "peer" / "testdata" / "placement.json"


class Node(TypedDict):
    name: str
    weight: int


class Case(TypedDict):
    nodes: list[Node]
    key: str
    owner: str


def load() -> list[Case]:
    cases: list[Case] = json.loads(CASES.read_text(encoding="utf-8"))
    return cases


def weights(case: Case) -> dict[str, int]:
    return {node["name"]: node["weight"] for node in case["nodes"]}


def test_the_cluster_agrees() -> None:
    wrong = [(case, got) for case in load() if (got := owner(weights(case), case["key"])) != case["owner"]]
    assert wrong == []


def test_the_cases_cover_both_rules() -> None:
    several = [weights(case) for case in load() if len(case["nodes"]) > 1]
    same = [len({weight or 1 for weight in nodes.values()}) == 1 for nodes in several]
    assert any(same)
    assert not all(same)


def test_mix() -> None:
    """A bijection that spreads: the finalizer of splitmix64, whose first output for seed 0 is known."""
    assert mix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert mix(0) == 0


def test_the_order_of_nodes_does_not_matter() -> None:
    nodes = {"a": 1, "b": 2, "c": 3, "d": 0}
    for i in range(200):
        assert owner(nodes, f"b/{i}") == owner(dict(reversed(nodes.items())), f"b/{i}")


def test_weight_0_counts_as_1() -> None:
    for i in range(200):
        assert owner({"a": 0, "b": 1, "c": 1}, f"b/{i}") == owner({"a": 1, "b": 1, "c": 1}, f"b/{i}")
        assert owner({"a": 0, "b": 3}, f"b/{i}") == owner({"a": 1, "b": 3}, f"b/{i}")


def test_shares_follow_weights() -> None:
    nodes = {"n1": 1, "n2": 2, "n3": 5}
    owners = Counter(owner(nodes, f"bucket/object-{i}") for i in range(16_000))
    for name, weight in nodes.items():
        assert abs(owners[name] - 2000 * weight) < 250


def test_a_node_that_goes_moves_only_its_own() -> None:
    nodes = {"n1": 1, "n2": 2, "n3": 5}
    for i in range(500):
        before = owner(nodes, f"b/{i}")
        if before != "n2":
            assert owner({"n1": 1, "n3": 5}, f"b/{i}") == before


def test_the_ends_of_the_scale() -> None:
    """Neither end of the scale is 0 or infinite."""
    assert score(1, 0) == pytest.approx(1 / (53 * math.log(2)))
    assert score(1, 2**64 - 1) > score(1, 2**64 - 2**13) > score(1, 2**63) > score(1, 0)


def test_key_is_hashed_as_utf8() -> None:
    u = {
        name: mix(xxhash.xxh3_64_intdigest("b/ö".encode()) ^ xxhash.xxh3_64_intdigest(name.encode())) for name in "abc"
    }
    assert owner(dict.fromkeys("abc", 1), "b/ö") == max(u, key=u.__getitem__)
