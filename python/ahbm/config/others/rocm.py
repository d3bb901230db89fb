"""The matrices of `rocm-smi --showtopo`: what joins every two GPUs of a node, and over how many links.

Under `Link Type between two GPUs` a cell is XGMI or PCIE, under `Hops between two GPUs` the links on the way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ahbm.base import foreign
from ahbm.config.others.described import LINK_NS, MOST_CHARACTERS, Described, custom, edge, nodes_asked, wrong
from ahbm.config.others.nccl_topology import XGMI_GBS, XGMI_MI300_GBS
from ahbm.config.others.smi import NVLINK_NS, PCIE_GBS, PCIE_NS

_TITLE = re.compile(r"=+ ?([\w ]+?) ?=+\s*")


def read(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    if len(text) > MOST_CHARACTERS:
        raise wrong("the file is longer than matrices are", origin)
    lines = foreign.ESCAPES.sub("", text).splitlines()
    kinds = _matrix(lines, "Link Type between two GPUs", origin)
    count = len(kinds)
    hops = _matrix(lines, "Hops between two GPUs", origin, len(kinds)) if "Hops between two GPUs" in text else None
    if count < 2:
        raise wrong("a machine of one GPU has no network", origin)
    if nodes_asked(asked, count, origin) > 1:
        raise wrong("the matrices are of one node", origin, "describe several in a topology.yaml")
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    for a, b in pairs:
        if kinds[a][b] not in ("XGMI", "PCIE") or kinds[b][a] != kinds[a][b]:
            raise wrong(f"GPU{a} and GPU{b}: {kinds[a][b][:20]} one way, {kinds[b][a][:20]} the other", origin)
    # GPUs that are two hops apart send to each other over those between them.
    joined = [(a, b) for a, b in pairs if kinds[a][b] == "XGMI" and (hops is None or hops[a][b] == "1")]
    assumed = []
    if joined:
        assumed.append(f"GPUs one hop apart have a link of xGMI of {XGMI_MI300_GBS:g} GB/s each way, of MI200s it is "
                       f"{XGMI_GBS:g} (system.sips.link.bandwidth_gbs)")  # fmt: skip
    if len(joined) == len(pairs):
        assumed.append(f"the matrices state no latency: {LINK_NS:g} ns a link (system.sips.link.latency_ns)")
        link = {"latency_ns": LINK_NS, "bandwidth_gbs": XGMI_MI300_GBS}
        network = {"count": count, "topology": "fully_connected", "link": link}
        return Described(foreign.ROCM.what, "npu_fully_connected_8", network, assumed)
    edges = [edge(a, b, XGMI_MI300_GBS, NVLINK_NS, both=True) for a, b in joined]
    edges += [edge(at, count, PCIE_GBS, PCIE_NS, both=True) for at in range(count)]
    assumed.append(f"a GPU reaches all others over PCIe, {PCIE_GBS:g} GB/s each way and {PCIE_NS:g} ns")
    return Described(foreign.ROCM.what, "npu_switch_8", custom(count, 1, edges), assumed)


def _matrix(lines: list[str], title: str, origin: str, size: int | None = None) -> list[list[str]]:
    """The cells of the matrix under a title."""
    start = next((at for at, line in enumerate(lines) if (found := _TITLE.match(line)) and found[1] == title), None)
    if start is None:
        raise wrong(f"the matrix under `{title}` is missing", origin, "rocm-smi --showtopo prints all matrices")
    head = lines[start + 1].split() if start + 1 < len(lines) else []
    rows = [line.split() for line in lines[start + 2 : start + 2 + len(head)]]
    names = [f"GPU{at}" for at in range(len(head))]
    cells = [row[1:] for row in rows]
    whole = head == names and [row[:1] for row in rows] == [[name] for name in names]
    if not whole or any(len(row) != len(head) for row in cells) or size not in (None, len(head)):
        raise wrong(f"the matrix under `{title}` is not whole: {len(head)} GPUs, {len(rows)} rows", origin)
    return cells
