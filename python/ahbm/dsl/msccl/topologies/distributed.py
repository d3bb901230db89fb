"""Copies of a machine that a network joins."""

from __future__ import annotations

from ahbm.dsl.msccl.topologies.topology import Switch, Topology


def _copies(local: Topology, copies: int, remote_bw: float) -> tuple[list[list[float]], list[Switch]]:
    ranks = local.num_nodes()
    links = [
        [
            local.link(src % ranks, dst % ranks) if src // ranks == dst // ranks else remote_bw
            for src in range(ranks * copies)
        ]
        for dst in range(ranks * copies)
    ]
    switches: list[Switch] = [
        ([src + copy * ranks for src in srcs], [dst + copy * ranks for dst in dsts], width, f"copy_{copy}_{name}_local")
        for srcs, dsts, width, name in local.switches
        for copy in range(copies)
    ]
    return links, switches


def distributed_fully_connected(local_topology: Topology, num_copies: int, remote_bw: float) -> Topology:
    """Any two ranks of two copies have a link of bandwidth `remote_bw`."""
    links, switches = _copies(local_topology, num_copies, remote_bw)
    name = f"DistributedFullyConnected(local={local_topology.name},copies={num_copies},bw={remote_bw})"
    return Topology(name, links, switches)


def distributed_hub_and_spoke(local_topology: Topology, num_copies: int, remote_bw: float) -> Topology:
    """The same, where `remote_bw` is also all that a copy sends and all that it receives."""
    links, switches = _copies(local_topology, num_copies, remote_bw)
    ranks = local_topology.num_nodes()
    for copy in range(num_copies):
        inside = [rank + copy * ranks for rank in range(ranks)]
        outside = [rank for rank in range(ranks * num_copies) if rank // ranks != copy]
        switches.append((inside, outside, remote_bw, f"copy_{copy}_out_remote"))
        switches.append((outside, inside, remote_bw, f"copy_{copy}_in_remote"))
    name = f"DistributedHubAndSpoke(local={local_topology.name},copies={num_copies},bw={remote_bw})"
    return Topology(name, links, switches)
