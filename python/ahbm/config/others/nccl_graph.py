"""Graphs of NCCL and RCCL (NCCL_GRAPH_DUMP_FILE): the rings, trees and NVLS channels that a library found in a node.

A graph states its pattern (1 to 3 trees, 4 ring, 5 NVLS, 6 CollNet), channels, and GB/s of a channel inside a node and
between nodes; a channel lists GPUs in order, between the interfaces where it goes on to other nodes
(src/graph/search.cc and src/include/graph.h of NCCL, ncclTopoGetXmlFromGraph). It states no wires. So a link here is
what the rings send over one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import Element

from ahbm.base import foreign
from ahbm.config.others.described import LINK_NS, Described, custom, edge, nodes_asked, number, whole, wrong, xml

RING, NVLS = 4, 5
NIC_NS = 2000.0


def read(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    root = xml(text, origin)
    graphs = [(whole(graph.get("pattern"), "pattern", origin, 0, 16), graph) for graph in root.iter("graph")]
    ring = next((graph for pattern, graph in graphs if pattern == RING and graph.find("channel") is not None), None)
    if ring is None:
        raise wrong("no graph of rings (pattern 4) with channels", origin, "dump all graphs: NCCL_GRAPH_DUMP_FILE=FILE")
    inside = number(ring.get("speedintra"), "speedintra", origin, 1e-6, 1e6)
    between = number(ring.get("speedinter", inside), "speedinter", origin, 1e-6, 1e6)
    channels = [_gpus(channel, origin) for channel in ring.iter("channel")]
    known = sorted({gpu for gpus in channels for gpu in gpus})
    own = {gpu: at for at, gpu in enumerate(known)}
    leaves = [channel.find("net") is not None for channel in ring.iter("channel")]
    nodes = nodes_asked(asked, len(known), origin)
    switched = any(pattern == NVLS and graph.find("channel") is not None for pattern, graph in graphs)
    each = len(channels) * inside
    assumed = [
        f"{len(channels)} channels of {inside:g} GB/s are what a GPU sends inside its node, whatever the wires",
        f"the file states no latency: {LINK_NS:g} ns a link (system.sips.link.latency_ns)",
    ]
    if nodes > 1 and not any(leaves):
        raise wrong(f"its channels do not leave the node, and {nodes} nodes are asked for", origin)
    if switched or nodes > 1:
        link = {"latency_ns": LINK_NS, "bandwidth_gbs": each}
        assumed.append("a switch joins the GPUs of a node")
        if nodes == 1:
            network: dict[str, Any] = {"count": len(known), "topology": "switch", "link": link}
            network["switch"] = {"latency_ns": 0}
        else:
            nic = sum(leaves) * between / len(known)
            own_nodes = {"size": len(known), "switch_ns": 0, "nic_gbs": nic, "nic_latency_ns": NIC_NS, "striped": True}
            network = {"count": len(known) * nodes, "topology": "nodes", "link": link, "nodes": own_nodes}
            assumed.append(
                f"{sum(leaves)} channels of {between:g} GB/s between nodes are shared by the GPUs, {nic:g} GB/s and "
                f"{NIC_NS:g} ns each (system.sips.nodes.nic_gbs, nic_latency_ns)"
            )
        return Described(foreign.NCCL_GRAPHS.what, "npu_switch_8", network, assumed)
    hops: Counter[tuple[int, int]] = Counter()
    for gpus, leaving in zip(channels, leaves, strict=True):
        hops.update(pairwise(gpus))
        # A ring that goes on to other nodes comes back over the interfaces, which are not in one node.
        if not leaving and len(gpus) > 1:
            hops[gpus[-1], gpus[0]] += 1
    if any(leaves):
        assumed.append("one node: what its interfaces join is left out (system.sips.count=N asks for several nodes)")
        # Without them a message may have no way back.
        for a, b in list(hops):
            hops.setdefault((b, a), hops[a, b])
    links = (edge(own[a], own[b], count * inside, LINK_NS) for (a, b), count in sorted(hops.items()))
    assumed.append("GPUs that no ring joins send to each other over those between them")
    return Described(foreign.NCCL_GRAPHS.what, "npu_ring_8", custom(len(known), 0, links), assumed)


def _gpus(channel: Element, origin: str) -> list[int]:
    """The GPUs of a channel, in order."""
    gpus = [whole(gpu.get("dev", gpu.get("rank")), "the device of a gpu", origin) for gpu in channel.iter("gpu")]
    if not gpus or len(set(gpus)) < len(gpus):
        raise wrong("a channel of a ring has no GPU, or one twice", origin)
    return gpus
