"""The matrix of `nvidia-smi topo -m`: what joins every two GPUs of a node.

NV# are so many NVLinks; PIX, PXB, PHB, NODE and SYS are ways over PCIe: one bridge, several bridges, a host bridge,
several host bridges of a NUMA node, several NUMA nodes (the legend that the command prints).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ahbm.base import foreign
from ahbm.config.others.described import (
    LINK_NS,
    MOST_CHARACTERS,
    Described,
    custom,
    edge,
    lacking,
    nodes_asked,
    wrong,
)

NVLINK_GBS, BLACKWELL_GBS = 25.0, 50.0
"""One NVLink of generations 2 to 4, and of generation 5, each way."""
MOST_NVLINKS = 18
"""Of one GPU."""
PCIE_GBS, PCIE_NS, NVLINK_NS, NIC_NS = 24.0, 500.0, 300.0, 2000.0
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Ways over PCIe, the nearest first."""
NIC_GBS = "system.sips.nodes.nic_gbs"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m|\[\d*m")
_BLACKWELL = re.compile(r"\bG?B[123]00\b")
_CELL = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|PXN|DIS|N/A")


def read(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    matrix, nics = _matrix(text, origin)
    count = len(matrix)
    nodes = nodes_asked(asked, count, origin)
    gbs = BLACKWELL_GBS if _BLACKWELL.search(text) else NVLINK_GBS
    what = foreign.SMI.what
    assumed: list[str] = []
    if nodes == 1 and nics:
        assumed.append(f"one node: interfaces ({nics}) are left out (system.sips.count=N asks for several nodes)")
    cells = {cell for at, row in enumerate(matrix) for other, cell in enumerate(row) if other != at}
    if len(cells) == 1 and (joined := next(iter(cells))).startswith("NV"):
        links = int(joined[2:])
        direct = links * (count - 1) <= MOST_NVLINKS
        assumed += [
            f"an NVLink carries {gbs:g} GB/s each way" + ("" if gbs > NVLINK_GBS else ", of Blackwells it would be 50"),
            f"the matrix states no latency: {LINK_NS:g} ns a link (system.sips.link.latency_ns)",
        ]
        link = {"latency_ns": LINK_NS, "bandwidth_gbs": links * gbs}
        if nodes > 1:
            network, more = _several(count, nodes, link, asked, origin)
            return Described(what, "npu_switch_8", network, [*assumed, more])
        if direct:
            assumed.append(f"{links} NVLinks go from each GPU to each other one")
            network = {"count": count, "topology": "fully_connected", "link": link}
            return Described(what, "npu_fully_connected_8", network, assumed)
        assumed.append(f"{links} NVLinks of a GPU to each of {count - 1} others are those to a switch")
        network = {"count": count, "topology": "switch", "link": link, "switch": {"latency_ns": 0}}
        return Described(what, "npu_switch_8", network, assumed)
    if nodes > 1:
        raise wrong(
            "several nodes of GPUs that are joined in different ways", origin, "describe them in a topology.yaml"
        )
    edges = [
        edge(at, other, int(cell[2:]) * gbs, NVLINK_NS, both=True)
        for at, row in enumerate(matrix)
        for other, cell in enumerate(row)
        if at < other and cell.startswith("NV")
    ]
    if edges:
        assumed.append(f"an NVLink carries {gbs:g} GB/s each way and takes {NVLINK_NS:g} ns")
    ways, relays = _bridges(matrix, count)
    assumed.append(f"a link of PCIe is of 16 lanes of generation 4: {PCIE_GBS:g} GB/s each way and {PCIE_NS:g} ns")
    return Described(what, "npu_switch_8", custom(count, relays, [*edges, *ways]), assumed)


def _matrix(text: str, origin: str) -> tuple[list[list[str]], int]:
    """What joins every two GPUs, and how many interfaces there are."""
    if len(text) > MOST_CHARACTERS:
        raise wrong("the file is longer than a matrix is", origin)
    lines = [_ESCAPES.sub("", line).split() for line in text.splitlines()]
    head = next((at for at, line in enumerate(lines) if "GPU0" in line and "X" not in line), None)
    if head is None:
        raise wrong("the line with the names of the columns is missing: GPU0 GPU1 ...", origin)
    columns = [name for name in lines[head] if re.fullmatch(r"GPU\d+", name)]
    nics = sum(re.fullmatch(r"NIC\d+|mlx\d+_\d+", name) is not None for name in lines[head])
    matrix = []
    for at, name in enumerate(columns):
        found = next((line for line in lines[head + 1 :] if line and line[0] == name), None)
        row = [] if found is None else found[1 : 1 + len(columns)]
        if len(row) != len(columns) or not all(_CELL.fullmatch(cell) for cell in row) or row[at] != "X":
            raise wrong(f"the row of {name} does not have its {len(columns)} GPUs", origin)
        matrix.append([{"SOC": "SYS"}.get(cell, cell) for cell in row])
    for at, row in enumerate(matrix):
        for other, cell in enumerate(row):
            if matrix[other][at] != cell or (at != other and not cell.startswith("NV") and cell not in LEVELS):
                raise wrong(
                    f"{columns[at]} and {columns[other]}: {cell} one way, {matrix[other][at]} the other", origin
                )
    if len(matrix) < 2:
        raise wrong("a machine of one GPU has no network", origin)
    return matrix, nics


def _several(
    count: int, nodes: int, link: Mapping[str, float], asked: Mapping[str, object], origin: str
) -> tuple[dict[str, Any], str]:
    """Nodes of such GPUs, each with an interface of its own, and what is assumed of it."""
    if NIC_GBS not in asked:
        raise lacking(
            f"{nodes} nodes: the matrix does not say what their interfaces carry", origin, f"--set {NIC_GBS}=50"
        )
    own = {"size": count, "switch_ns": 0, "nic_latency_ns": NIC_NS}
    network = {"count": count * nodes, "topology": "nodes", "link": dict(link), "nodes": own}
    return network, f"a GPU has an interface of its own, of {NIC_NS:g} ns (system.sips.nodes.nic_latency_ns)"


def _bridges(matrix: Sequence[Sequence[str]], count: int) -> tuple[list[dict[str, Any]], int]:
    """The tree of PCIe's bridges over GPUs that ways over PCIe join, and how many bridges it has."""
    top = list(range(count))  # the vertex that stands for the part of the tree that a GPU is in
    vertex = count
    edges = []
    for level, _ in enumerate(LEVELS):
        near = set(LEVELS[: level + 1])
        groups: list[list[int]] = []
        for at in range(count):
            group = next((group for group in groups if matrix[group[0]][at] in near), None)
            if group is None:
                groups.append([at])
            else:
                group.append(at)
        for group in groups:
            below = list(dict.fromkeys(top[at] for at in group))
            if len(below) > 1:
                edges += [edge(of, vertex, PCIE_GBS, PCIE_NS, both=True) for of in below]
                for at in group:
                    top[at] = vertex
                vertex += 1
    return edges, vertex - count
