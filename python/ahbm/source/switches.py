"""The nodes that the ranks of an algorithm share, and the switches that it reduces in (`REDUCING_SWITCH`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from ahbm._core import Machine
from ahbm.base.layout import Place

JOINED = ("all", "node", "rail")
"""The ranks that a switch which reduces has to join: all, those of a node, those of one number in their nodes."""


def nodes_of(machine: Machine, places: Sequence[Place]) -> int:
    """Ranks of a node: every so many ranks that follow each other share one.

    1 where the network has no nodes, and where they have unequal numbers of the ranks, or such that do not follow each
    other.
    """
    if machine.node_size == 1:
        return 1
    nodes = [sip // machine.node_size for sip, _, _ in places]
    shared = {len(list(run)) for _, run in groupby(nodes)}
    return len(places) // len(set(nodes)) if shared == {len(places) / len(set(nodes))} else 1


def count_nodes(machine: Machine, sips: Iterable[int]) -> int:
    """Among how many nodes some SIPs are; 1 where the network has no nodes."""
    return len({sip // machine.node_size for sip in sips}) if machine.topology == "nodes" else 1


def apart(machine: Machine, ranks: Sequence[int], joined: str) -> str | None:
    """Those of the SIPs `ranks` that no switch joins which reduces, in words; None where all are joined as they should.

    joined: one of `JOINED`.
    """
    size = nodes_of(machine, [(sip, 0, 0) for sip in ranks])
    if joined == "node" and size == 1:
        return "ranks of a node"
    parts = {
        "all": [ranks],
        "node": [ranks[first : first + size] for first in range(0, len(ranks), size)],
        "rail": [ranks[first::size] for first in range(size)] if size < len(ranks) else [],
    }[joined]
    return next((f"SIPs {part[0]} and {part[-1]}" for part in parts if not machine.reduces(part)), None)
