"""Topologies of NCCL and RCCL in XML (NCCL_TOPO_DUMP_FILE): CPUs, PCIe's tree, GPUs with NVLinks or xGMI, interfaces.

A link of PCIe carries `link_width` lanes of `link_speed`, as NCCL reckons (`kvDictPciGen` and `ncclTopoAddPci` of
src/graph/topo.cc). `<nvlink>` and `<xgmi>` state how many links lead to a target: a GPU, or NVLink's switches, whose
class begins with 0x0680. `<net>` states Mbit/s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any
from xml.etree.ElementTree import Element

from ahbm.base import foreign
from ahbm.config.others.described import (
    LINK_NS,
    Described,
    custom,
    edge,
    lacking,
    nodes_asked,
    number,
    whole,
    wrong,
    xml,
)
from ahbm.config.others.smi import BLACKWELL_GBS, NIC_GBS, NIC_NS, NVLINK_GBS, NVLINK_NS, PCIE_GBS, PCIE_NS

LANES = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}
"""Hundreds of Mbit/s of a lane of PCIe, by its GT/s."""
DEEPEST, MOST_GPUS = 64, 576
"""Elements inside each other, and GPUs that NVLink joins (a GB200 NVL576)."""
UNSTATED = 60
"""Of a lane whose speed nobody states."""
SWITCH, TO_GPU = "0x0680", ("0x0300", "0x0302", "0x0380", "0x1200")
"""Classes of PCI to which links lead."""
XGMI_GBS, XGMI_MI300_GBS = 50.0, 64.0
"""One link of xGMI each way, of MI200s, and of MI300s and later."""


def read(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    root = xml(text, origin)
    level = [root]
    for _ in range(DEEPEST):
        level = [child for element in level for child in element]
    if level:
        raise wrong(f"more than {DEEPEST} elements are inside each other", origin)
    places = [pci for pci in root.iter("pci") if pci.find("gpu") is not None]
    if len(places) < 2:
        message = f"{len(places)} GPUs: without two, there is nothing that they are joined by"
        raise wrong(message, origin, "NCCL_TOPO_DUMP_FILE=FILE writes what NCCL found, with all GPUs of the node")
    if len(places) > MOST_GPUS:
        raise wrong(f"{len(places)} GPUs are more than {MOST_GPUS}", origin)
    ordered = _ordered(places, origin)
    gpus = {str(pci.get("busid")).lower(): at for at, pci in enumerate(ordered)}
    if len(gpus) < len(ordered):
        raise wrong("two GPUs have one busid", origin)
    count = len(gpus)
    nodes = nodes_asked(asked, count, origin)
    gbs, carried = _carried(ordered[0], origin)
    switched, direct = _links(ordered, gpus, origin)
    assumed = [carried] if switched or direct else []
    nets = [number(net.get("speed", 0), "speed", origin) / 8000 for net in root.iter("net")]
    uniform = _uniform(count, switched, direct)
    if uniform is not None:
        topology, base, links = uniform
        assumed.append(f"the file states no latency: {LINK_NS:g} ns a link (system.sips.link.latency_ns)")
        link = {"latency_ns": LINK_NS, "bandwidth_gbs": links * gbs}
        if nodes > 1:
            sips, more = _several(count, nodes, link, nets, asked, origin)
            return Described(foreign.NCCL_TOPOLOGY.what, "npu_switch_8", sips, [*assumed, more])
        sips = {"count": count, "topology": topology, "link": link}
        sips |= {"switch": {"latency_ns": 0}} if topology == "switch" else {}
        return Described(foreign.NCCL_TOPOLOGY.what, base, sips, [*assumed, *_left_out(nets)])
    if nodes > 1:
        message = "several nodes of GPUs that are joined in different ways"
        raise wrong(message, origin, "describe them in a topology.yaml")
    edges = [edge(a, b, links * gbs, NVLINK_NS, both=True) for (a, b), links in sorted(direct.items())]
    relays = 1 if switched else 0
    edges += [edge(at, count, links * gbs, LINK_NS, both=True) for at, links in sorted(switched.items())]
    if switched or direct:
        assumed.append(f"an NVLink or xGMI takes {NVLINK_NS:g} ns, {LINK_NS:g} ns to a switch")
    tree = _Tree(ordered, count + relays, origin)
    tree.take(root, None)
    tree.join()
    assumed.append(f"a link of PCIe takes {PCIE_NS:g} ns")
    if len(tree.processors) > 1:
        assumed.append(f"processors are joined by {PCIE_GBS:g} GB/s each way")
    sips = custom(count, tree.vertex - count, [*edges, *tree.edges])
    return Described(foreign.NCCL_TOPOLOGY.what, "npu_switch_8", sips, [*assumed, *_left_out(nets)])


def _left_out(nets: list[float]) -> list[str]:
    if not nets:
        return []
    return [f"one node: interfaces ({len(nets)}) are left out (system.sips.count=N asks for several nodes)"]


def _ordered(places: list[Element], origin: str) -> list[Element]:
    """The GPUs by their ranks, else by the numbers of their devices."""
    for key in ("rank", "dev"):
        found = {}
        for pci in places:
            (gpu, *others) = pci.iter("gpu")
            if others:
                raise wrong(f"{pci.get('busid')} has several GPUs", origin)
            if gpu.get(key) is not None:
                found[whole(gpu.get(key), f"{key} of a gpu", origin)] = pci
        if len(found) == len(places):
            return [found[number] for number in sorted(found)]
    raise wrong("two GPUs have one number, or none", origin)


def _carried(pci: Element, origin: str) -> tuple[float, str]:
    """GB/s of one NVLink or xGMI each way, and what is assumed of it."""
    gpu = pci.find("gpu")
    assert gpu is not None
    if pci.find(".//xgmi") is not None:
        new = any(str(gpu.get("gcn", "")).startswith(name) for name in ("gfx94", "gfx95", "94", "95"))
        gbs = XGMI_MI300_GBS if new else XGMI_GBS
        return gbs, f"a link of xGMI carries {gbs:g} GB/s each way"
    gbs = BLACKWELL_GBS if number(gpu.get("sm", 0), "sm", origin) >= 100 else NVLINK_GBS
    return gbs, f"an NVLink carries {gbs:g} GB/s each way"


def _links(
    ordered: list[Element], gpus: Mapping[str, int], origin: str
) -> tuple[Counter[int], dict[tuple[int, int], int]]:
    """How many links lead from a GPU to switches, and between two GPUs."""
    switched: Counter[int] = Counter()
    ways: Counter[tuple[int, int]] = Counter()
    for at, pci in enumerate(ordered):
        for link in (*pci.iter("nvlink"), *pci.iter("xgmi")):
            links = whole(link.get("count", 1), "count of links", origin, 0, 1024)
            target, kind = str(link.get("target")).lower(), str(link.get("tclass", ""))
            if target in gpus and gpus[target] != at:
                ways[at, gpus[target]] += links
            elif kind.startswith(SWITCH) and not kind.startswith(f"{SWITCH}01"):
                switched[at] += links
            elif kind.startswith(TO_GPU):
                raise wrong(f"links lead to {target[:40]}, which is no GPU of the file", origin)
    for (a, b), links in ways.items():
        if ways.get((b, a)) != links:
            raise wrong(f"{links} links lead from GPU {a} to GPU {b}, and {ways.get((b, a), 0)} back", origin)
    return +switched, {(a, b): links for (a, b), links in ways.items() if a < b and links}


def _uniform(
    count: int, switched: Mapping[int, int], direct: Mapping[tuple[int, int], int]
) -> tuple[str, str, int] | None:
    """Network, machine of such a network and number of links, where all GPUs are joined alike; else none."""
    if not direct and len(switched) == count and len(set(switched.values())) == 1:
        return "switch", "npu_switch_8", switched[0]
    if not switched and len(direct) == count * (count - 1) // 2 and len(set(direct.values())) == 1:
        return "fully_connected", "npu_fully_connected_8", direct[0, 1]
    return None


def _several(
    count: int, nodes: int, link: Mapping[str, float], nets: list[float], asked: Mapping[str, object], origin: str
) -> tuple[dict[str, Any], str]:
    """Nodes of such GPUs, which share the interfaces, and what is assumed of it."""
    own: dict[str, Any] = {"size": count, "switch_ns": 0, "nic_latency_ns": NIC_NS}
    if sum(nets) <= 0 and NIC_GBS not in asked:
        raise lacking(f"{nodes} nodes: the file has no interface with a speed", origin, f"--set {NIC_GBS}=50")
    if sum(nets) > 0:
        own["nic_gbs"] = sum(nets) / count
    shared = f"{len(nets)} interfaces, {sum(nets):g} GB/s together, are shared by {count} GPUs, " if nets else ""
    network = {"count": count * nodes, "topology": "nodes", "link": dict(link), "nodes": own}
    return network, f"{shared}{NIC_NS:g} ns each (system.sips.nodes.nic_gbs, nic_latency_ns)"


class _Tree:
    """PCIe's tree over the GPUs."""

    def __init__(self, ordered: list[Element], vertex: int, origin: str) -> None:
        self.ranks = {id(pci): at for at, pci in enumerate(ordered)}
        self.vertex, self.origin = vertex, origin
        self.edges: list[dict[str, Any]] = []
        self.processors: list[int] = []

    def take(self, element: Element, above: int | None) -> None:
        """Adds what is below an element, which hangs on a vertex."""
        for child in element:
            if child.tag not in ("cpu", "pci") or not any(id(pci) in self.ranks for pci in child.iter()):
                continue
            own = self.ranks.get(id(child))
            if own is None:
                own, self.vertex = self.vertex, self.vertex + 1
            if child.tag == "cpu":
                self.processors.append(own)
            elif above is not None:
                self.edges.append(edge(own, above, self._gbs(child), PCIE_NS, both=True))
            if id(child) not in self.ranks:
                self.take(child, own)

    def join(self) -> None:
        """Joins the processors."""
        self.edges += [edge(a, b, PCIE_GBS, PCIE_NS, both=True) for a, b in combinations(self.processors, 2)]

    def _gbs(self, pci: Element) -> float:
        speed = str(pci.get("link_speed", "")).split(" ")[0].removesuffix(".0")
        width = whole(pci.get("link_width", 16) or 16, "link_width", self.origin, 0, 64) or 16
        return width * LANES.get(speed, UNSTATED) / 80
