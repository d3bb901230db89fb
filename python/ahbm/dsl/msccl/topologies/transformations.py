"""Topologies made of others."""

from __future__ import annotations

from ahbm.dsl.msccl.topologies.topology import Switch, Topology


def reverse_topology(topology: Topology) -> Topology:
    """With every link and switch in the other direction."""
    links = [[topology.link(dst, src) for src in topology.nodes()] for dst in topology.nodes()]
    switches: list[Switch] = [(dsts, srcs, width, f"{name}_reversed") for srcs, dsts, width, name in topology.switches]
    return Topology(f"Reverse{topology.name}", links, switches)


def binarize_topology(topology: Topology) -> Topology:
    """With links of bandwidth 1, and without switches."""
    links = [[int(topology.link(src, dst) > 0) for src in topology.nodes()] for dst in topology.nodes()]
    return Topology(f"Binarized{topology.name}", links)
