"""Topologies of any size."""

from __future__ import annotations

from collections.abc import Callable

from ahbm.dsl.msccl.topologies.topology import Switch, Topology


def _links(nodes: int, linked: Callable[[int, int], bool]) -> list[list[int]]:
    return [[int(src != dst and linked(src, dst)) for src in range(nodes)] for dst in range(nodes)]


def fully_connected(num_nodes: int) -> Topology:
    """A link between any two ranks."""
    return Topology(f"FullyConnected(n={num_nodes})", _links(num_nodes, lambda a, b: True))


def hub_and_spoke(num_nodes: int) -> Topology:
    """Ranks around a hub: any two are linked, and what a rank sends and receives at once is bounded."""
    switches: list[Switch] = []
    for node in range(num_nodes):
        others = [other for other in range(num_nodes) if other != node]
        switches += [([node], others, 1, f"node_{node}_out"), (others, [node], 1, f"node_{node}_in")]
    return Topology(f"HubAndSpoke(n={num_nodes})", _links(num_nodes, lambda a, b: True), switches)


def ring(num_nodes: int) -> Topology:
    """Every rank is linked to the two beside it."""
    return Topology(f"Ring(n={num_nodes})", _links(num_nodes, lambda a, b: (a - b) % num_nodes in (1, num_nodes - 1)))


def line(num_nodes: int) -> Topology:
    """A ring that is open between the last rank and the first."""
    return Topology(f"Line(n={num_nodes})", _links(num_nodes, lambda a, b: abs(a - b) == 1))


def star(num_nodes: int, non_blocking: bool = True) -> Topology:
    """Every rank is linked to rank 0; not `non_blocking`: which has the bandwidth of one link."""
    points = list(range(1, num_nodes))
    switches: list[Switch] = [] if non_blocking else [([0], points, 1, "to_points"), (points, [0], 1, "from_points")]
    return Topology(f"Star(n={num_nodes})", _links(num_nodes, lambda a, b: 0 in (a, b)), switches)
