"""Machines of AMD."""

from __future__ import annotations

from ahbm.dsl.msccl.topologies.topology import Topology

_AMD8_WIDE = ((0, 2), (0, 3), (0, 5), (1, 4), (1, 6), (1, 7), (2, 3), (2, 5), (3, 5), (4, 6), (4, 7), (6, 7))


def amd4() -> Topology:
    """Four GPUs in a ring 0, 1, 3, 2."""
    links = [[0] * 4 for _ in range(4)]
    for a, b in ((0, 1), (0, 2), (1, 3), (2, 3)):
        links[a][b] = links[b][a] = 1
    return Topology("AMD4", links)


def amd8() -> Topology:
    """Eight GPUs, all linked; bandwidth 6 within two groups of four, 5 between them."""
    links = [[0 if src == dst else 5 for src in range(8)] for dst in range(8)]
    for a, b in _AMD8_WIDE:
        links[a][b] = links[b][a] = 6
    return Topology("AMD8", links)
