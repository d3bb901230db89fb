"""Topologies of TACCL and inputs of TE-CCL.

TACCL's file has costs of a node's links: alpha, and beta for one chunk, in microseconds (INPUT_GUIDE.md of
microsoft/taccl). An input of TE-CCL names a network that its code has; what is known of those here is what that
code has (teccl/topologies of microsoft/TE-CCL).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ahbm.base import foreign
from ahbm.config.others.described import (
    MOST_CHARACTERS,
    Described,
    custom,
    edge,
    nodes_asked,
    number,
    whole,
    wrong,
)

CUBE_MESH = {
    2: ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7)),
    1: ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6)),
}
"""The pairs of GPUs of a DGX-1 and an NDv2 by their NVLinks."""
_SIZE = re.compile(r"_(\d{1,6})\s*(KB|MB|GB)$", re.IGNORECASE)
_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30}


def _document(text: str, origin: str) -> dict[str, Any]:
    if len(text) > MOST_CHARACTERS:
        raise wrong("the file is longer than a topology is", origin)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong(f"it is no JSON: {error}", origin) from error
    if not isinstance(found, dict):
        raise wrong("it is no JSON object", origin)
    return found


def taccl(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    data = _document(text, origin)
    count = whole(data.get("gpus_per_node"), "gpus_per_node", origin, 2)
    alpha = number(data.get("alpha"), "alpha", origin, 0, 1e6) * 1000
    stated = _SIZE.search(str(data.get("name", ""))[-40:])
    chunk = int(stated[1]) * _UNITS[stated[2].upper()] if stated else _UNITS["MB"]

    def gbs(beta: object) -> float:
        return chunk / number(beta, "a beta", origin, 1e-6, 1e9) / 1000

    of = "as its name says" if stated else "as its guide has it"
    assumed = [f"costs are microseconds of a chunk of {chunk} B, {of}: files that scale all costs give other times"]
    nodes = nodes_asked(asked, count, origin)
    what = foreign.TACCL.what
    if "links" in data:
        # Rows are destinations.
        rows = [_row(data, key, count, origin) for key in ("links", "betas")]
        edges = [
            edge(source, target, whole(links, "links", origin, 0, 1000) * gbs(rows[1][target][source]), alpha)
            for target, row in enumerate(rows[0])
            for source, links in enumerate(row)
            if source != target and links != 0
        ]
        if nodes > 1:
            raise wrong("several nodes of links of their own", origin, "describe them in a topology.yaml")
        return Described(what, "npu_ring_8", custom(count, 0, edges), [*assumed, "one node"])
    betas = data.get("node_betas_list")
    if not isinstance(betas, list) or not 1 <= len(betas) <= 2:
        raise wrong("node_betas_list has no one or two costs, and there are no links", origin)
    if len(betas) == 2:
        if count != 8 or nodes > 1:
            raise wrong("two costs of links are those of one node of 8 GPUs in a hybrid cube mesh (ndv2)", origin)
        edges = _cube_mesh({2: gbs(betas[0]), 1: gbs(betas[1])}, alpha)
        return Described(what, "npu_ring_8", custom(8, 0, edges), [*assumed, "the links are those of an NDv2"])
    link = {"latency_ns": alpha, "bandwidth_gbs": gbs(betas[0])}
    if nodes == 1:
        network: dict[str, Any] = {"count": count, "topology": "switch", "link": link, "switch": {"latency_ns": 0}}
        return Described(what, "npu_switch_8", network, [*assumed, "one node, whose GPUs a switch joins"])
    nics = number(data.get("nics_per_node"), "nics_per_node", origin, 1, 4096)
    nic_ns = number(data.get("remote_alpha"), "remote_alpha", origin, 0, 1e6) * 1000 / 2
    own = {"size": count, "switch_ns": 0, "nic_latency_ns": nic_ns, "striped": True}
    own["nic_gbs"] = gbs(data.get("remote_beta")) * nics / count
    network = {"count": count * nodes, "topology": "nodes", "link": link, "nodes": own}
    shared = f"its {nics:g} interfaces are shared by the GPUs of a node"
    return Described(what, "npu_switch_8", network, [*assumed, "a switch joins the GPUs of a node", shared])


def _row(data: Mapping[str, Any], key: str, count: int, origin: str) -> Sequence[Sequence[Any]]:
    rows = data.get(key)
    if (
        not isinstance(rows, list)
        or len(rows) != count
        or any(not isinstance(r, list) or len(r) != count for r in rows)
    ):
        raise wrong(f"{key} is no matrix of {count} x {count}", origin)
    return rows


def _cube_mesh(gbs: Mapping[int, float], ns: float, first: int = 0) -> list[dict[str, Any]]:
    """Both ways between the GPUs of one node, whose first one is `first`."""
    return [
        edge(first + a, first + b, gbs[links], ns, both=True) for links, pairs in CUBE_MESH.items() for a, b in pairs
    ]


def teccl(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    del asked
    data = _document(text, origin).get("TopologyParams")
    if not isinstance(data, dict):
        raise wrong("TopologyParams is no object", origin)
    name = str(data.get("name"))[:60]
    chassis = whole(data.get("chassis", 1), "chassis", origin, 1, 64)
    assumed = [f"{name} is what the code of TE-CCL has under this name"]
    what = foreign.TECCL.what
    match name.lower():
        case "mesh":
            side = whole(data.get("side_length"), "side_length", origin, 2, 64)
            ns = _alpha(data, origin)
            # Its code also joins the end of a row with the beginning of the next one.
            edges = [
                edge(at, at + step, 100.0, ns, both=True)
                for at in range(side * side)
                for step in (1, side)
                if at + step < side * side
            ]
            return Described(what, "npu_mesh_4x4", custom(side * side, 0, edges), assumed)
        case "dgx1":
            return Described(
                what, "npu_ring_8", custom(8, 0, _cube_mesh({2: 50.0, 1: 25.0}, _alpha(data, origin))), assumed
            )
        case "ndv2" if chassis <= 2:
            edges = [link for at in range(chassis) for link in _cube_mesh({2: 50.0, 1: 25.0}, 700.0, 8 * at)]
            if chassis == 2:
                edges += [edge(8, 1, 12.5, 1300.0), edge(0, 9, 12.5, 1300.0)]
            return Described(what, "npu_ring_8", custom(8 * chassis, 0, edges), assumed)
        case "dgx2":
            return Described(what, "npu_switch_8", _dgx2(), [*assumed, "it has two chassis, whatever the file says"])
    raise wrong(
        f"the network {name!r} of {chassis} chassis is in the code of TE-CCL alone",
        origin,
        "known here: Mesh, DGX1, DGX2, NDv2 of 1 or 2 chassis; a schedule that TE-CCL wrote runs on any machine",
    )


def _dgx2() -> dict[str, Any]:
    """Two nodes of 16 GPUs, each with a switch; odd GPUs send to even ones of the other node."""
    edges = []
    for node in range(2):
        edges += [edge(16 * node + gpu, 32 + node, 125.0, 350.0, both=True) for gpu in range(16)]
        edges += [edge(16 * node + odd, 16 * (1 - node) + odd - 1, 12.5, 2600.0) for odd in range(1, 16, 2)]
    return custom(32, 2, edges)


def _alpha(data: Mapping[str, Any], origin: str) -> float:
    """ns of the first alpha, which is in seconds."""
    alpha = data.get("alpha")
    return number(alpha[0] if isinstance(alpha, list) and alpha else alpha, "alpha", origin, 0, 1) * 1e9
