"""Machines of NVIDIA."""

from __future__ import annotations

import subprocess

from ahbm.dsl.msccl.topologies.topology import Topology

# Pairs of GPUs with two NVLinks, and with one.
_DGX1_DOUBLE = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
_DGX1_SINGLE = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))


def dgx1() -> Topology:
    """Eight V100s, in a cube mesh of NVLinks; bandwidth in links."""
    links = [[0] * 8 for _ in range(8)]
    for width, pairs in ((2, _DGX1_DOUBLE), (1, _DGX1_SINGLE)):
        for a, b in pairs:
            links[a][b] = links[b][a] = width
    return Topology("DGX1", links)


def dgx_a100() -> Topology:
    """Eight A100s behind NVSwitches; bandwidth in links."""
    return Topology("DGX_A100", [[0 if src == dst else 12 for src in range(8)] for dst in range(8)])


def nvlink_only(nvidia_smi_topo: str | None = None) -> Topology:
    """The NVLinks in the text of `nvidia-smi topo -m`; without a text the command is called, and its absence is an
    OSError."""
    text = nvidia_smi_topo
    if text is None:
        text = subprocess.check_output(["nvidia-smi", "topo", "-m"], text=True)
    rows = []
    for row in text.splitlines()[1:]:
        if not row.startswith("GPU"):
            break
        rows.append([cell.strip() for cell in row.split("\t")[1:]])
    links = [[int(cell[2:]) if cell.startswith("NV") else 0 for cell in row[: len(rows)]] for row in rows]
    return Topology("NVLinkOnly", links)
