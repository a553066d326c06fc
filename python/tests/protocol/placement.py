"""Which node an object belongs to: the specification's highest random weight."""

from __future__ import annotations

import math
from collections.abc import Mapping

import xxhash

_MASK = 2**64 - 1


def mix(x: int) -> int:
    """Spread the bits of 64."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def score(weight: int, u: int) -> float:
    """A node's score where weights differ, in doubles."""
    log = math.log((float(u >> 12) + 0.5) / 2.0**52)
    return weight / -log


def owner(nodes: Mapping[str, int], key: str) -> str:
    """The owner of ``key`` among nodes with their weights; of equals the lower name."""
    h = xxhash.xxh3_64_intdigest(key.encode())
    weights = {name: weight or 1 for name, weight in nodes.items()}
    us = {name: mix(h ^ xxhash.xxh3_64_intdigest(name.encode())) for name in nodes}
    names = sorted(nodes, key=str.encode)
    if max(weights.values()) == 1:
        return max(names, key=us.__getitem__)
    return max(names, key=lambda name: score(weights[name], us[name]))
