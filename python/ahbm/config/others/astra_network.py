"""ASTRA-sim's network.yml (analytical networks): shapes, NPUs, GB/s of 2^30 bytes and ns of each dimension."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ahbm.base import foreign
from ahbm.base.yaml_source import parse
from ahbm.config.others.described import MOST_SIPS, Described, custom, number, whole, wrong
from ahbm.config.others.dimensions import GB, MESH, NETWORK, PACKAGED, Dimension, edges, switches

KEYS = ("topology", "npus_count", "bandwidth", "latency")


def read(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    del asked
    values = parse(text, origin).values
    lists = {key: _listed(values.get(key)) for key in KEYS}
    for key, found in lists.items():
        if not found or len(found) != len(lists["topology"]):
            raise wrong(f"{key} has {len(found)} entries, topology has {len(lists['topology'])}", origin)
    dimensions: list[Dimension] = []
    for shape, npus, bandwidth, latency in zip(*lists.values(), strict=True):
        if shape not in (*NETWORK, MESH):
            raise wrong(f"topology: {str(shape)[:60]!r} is none of {', '.join((*NETWORK, MESH))}", origin)
        gbs = number(bandwidth, "bandwidth", origin, 1e-9, 1e9)
        ns = number(latency, "latency", origin, 0, 1e9)
        dimensions.append((str(shape), whole(npus, "npus_count", origin, 1), gbs, ns))
    count = prod(npus for _, npus, *_ in dimensions)
    if count > MOST_SIPS:
        raise wrong(f"{count} NPUs are more than {MOST_SIPS}", origin)
    assumed = ["its GB/s are of 2^30 bytes", "NPUs whose inside costs nothing", "its job and system file are not read"]
    if more := [str(key)[:40] for key in values if key not in KEYS]:
        assumed.append(f"not read: {', '.join(more[:8])}")
    shape, npus, gbs, ns = dimensions[0]
    if len(dimensions) == 1 and shape != MESH:
        switch = {"switch": {"latency_ns": 0}} if shape == "Switch" else {}
        link = {"latency_ns": ns, "bandwidth_gbs": gbs * GB}
        sips: dict[str, Any] = {"count": npus, "topology": NETWORK[shape], "link": link, **switch}
        return Described(foreign.ASTRA_NETWORK.what, PACKAGED[shape], sips, assumed)
    relays = switches(dimensions)
    if count + relays > MOST_SIPS:
        raise wrong(f"{count} NPUs and {relays} switches are more than {MOST_SIPS}", origin)
    if relays:
        assumed.append("a message takes the shortest way, through switches too, whatever the dimension")
    return Described(foreign.ASTRA_NETWORK.what, PACKAGED["Ring"], custom(count, relays, edges(dimensions)), assumed)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]
