"""Platforms of SimGrid in XML: clusters, and hosts with links and routes.

Elements and units as SimGrid's reference of XML platforms has them (simgrid.org/doc/latest/XML_reference.html). A
cluster gives every host a private link, and maybe a backbone; a route lists the links between two hosts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

from ahbm.base import foreign
from ahbm.config.others.described import MOST_SIPS, Described, custom, edge, number, whole, wrong, xml

_BANDWIDTH = re.compile(r"\s*([\d.eE+-]+)\s*([kKMGT]?i?)(Bps|bps)?\s*")
_TIME = re.compile(r"\s*([\d.eE+-]+)\s*(s|ms|us|ns|ps)?\s*")
_FACTORS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
HOSTS = "a host is a rank, whose inside costs nothing; its speed is not taken"


def read(text: str, origin: str, asked: Mapping[str, object]) -> Described:
    """See `ahbm.config.others.read`."""
    del asked
    root = xml(text, origin)
    clusters = list(root.iter("cluster"))
    hosts = list(root.iter("host"))
    if len(clusters) == 1 and not hosts:
        return _cluster(clusters[0], origin)
    if clusters:
        raise wrong(
            "clusters among other hosts or clusters", origin, "a file of one cluster, or of hosts and routes, is read"
        )
    return _routes(root, hosts, origin)


def _gbs(text: str | None, what: str, origin: str) -> float:
    found = _BANDWIDTH.fullmatch(text or "")
    if found is None:
        raise wrong(f"{what}: {str(text)[:60]!r} is no bandwidth", origin)
    prefix = found[2]
    factor = float(_FACTORS[prefix.removesuffix("i")])
    if len(prefix) == 2:
        factor = 1024.0 ** ("kMGT".index(prefix[0].replace("K", "k")) + 1)
    return number(found[1], what, origin, 0, 1e18) * factor / (8 if found[3] == "bps" else 1) / 1e9


def _ns(text: str | None, what: str, origin: str) -> float:
    found = _TIME.fullmatch(text or "0")
    if found is None:
        raise wrong(f"{what}: {str(text)[:60]!r} is no time", origin)
    return number(found[1], what, origin, 0, 1e9) * _SECONDS[found[2] or "s"] * 1e9


def _cluster(cluster: Element, origin: str) -> Described:
    count = _radical(cluster.get("radical", ""), origin)
    gbs, ns = _gbs(cluster.get("bw"), "bw", origin), _ns(cluster.get("lat"), "lat", origin)
    link = {"latency_ns": ns, "bandwidth_gbs": gbs}
    kind = cluster.get("topology", "FLAT").upper()
    if kind == "TORUS":
        extents = [whole(part, "topo_parameters", origin, 1) for part in cluster.get("topo_parameters", "").split(",")]
        names = {2: "torus_2d", 3: "torus_3d"}
        if len(extents) not in names or _product(extents) != count:
            raise wrong(
                f"a torus of {cluster.get('topo_parameters')} and {count} hosts", origin, "two or three extents"
            )
        network: dict[str, Any] = {"count": count, "topology": names[len(extents)], "link": link}
        network |= dict(zip("whd", extents, strict=False))
        return Described(foreign.SIMGRID.what, "npu_torus_4x4", network, [HOSTS])
    if kind != "FLAT":
        raise wrong(f"a cluster of topology {kind[:40]}", origin, "FLAT and TORUS are read")
    assumed = [HOSTS]
    if "bb_bw" in cluster.attrib or "bb_lat" in cluster.attrib:
        backbone = _ns(cluster.get("bb_lat"), "bb_lat", origin)
        assumed.append(
            f"its backbone takes {backbone:g} ns, and carries all messages side by side whatever its bandwidth"
        )
    else:
        backbone = 0.0
    network = {"count": count, "topology": "switch", "link": link, "switch": {"latency_ns": backbone}}
    return Described(foreign.SIMGRID.what, "npu_switch_8", network, assumed)


def _product(extents: list[int]) -> int:
    found = 1
    for extent in extents:
        found *= extent
    return found


def _radical(text: str, origin: str) -> int:
    """Hosts of `0-7` or `0-3,8,10-11`."""
    count = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low = whole(first, "radical", origin, 0, 10**8)
        high = whole(last or first, "radical", origin, low, 10**8)
        count += high - low + 1
    if not 2 <= count <= MOST_SIPS:
        raise wrong(f"a cluster of {count} hosts", origin, f"2 to {MOST_SIPS} are read")
    return count


def _routes(root: Element, hosts: list[Element], origin: str) -> Described:
    """Hosts whose routes are single links, or a link of each of both."""
    places = {host.get("id", ""): at for at, host in enumerate(hosts)}
    if not 2 <= len(places) == len(hosts) <= MOST_SIPS:
        raise wrong(f"{len(hosts)} hosts of {len(places)} names", origin, f"2 to {MOST_SIPS} hosts, each with its id")
    links = {}
    for found in root.iter("link"):
        at = (found.get("id", ""), found.get("bandwidth"), found.get("latency"))
        links[at[0]] = (_gbs(at[1], "bandwidth", origin), _ns(at[2], "latency", origin))
    edges: dict[tuple[int, int], tuple[float, float]] = {}
    own: dict[int, str] = {}
    for route in root.iter("route"):
        ends = [places.get(route.get(end, "")) for end in ("src", "dst")]
        named = [str(link.get("id")) for link in route.iter("link_ctn")]
        where = f"the route from {route.get('src')} to {route.get('dst')}"
        if None in ends or any(name not in links for name in named):
            raise wrong(f"{where} names a host or a link that does not exist", origin)
        a, b = int(ends[0] or 0), int(ends[1] or 0)
        if a == b:
            continue
        if len(named) == 1:
            edges[a, b] = links[named[0]]
            if route.get("symmetrical", "yes").lower() not in ("no", "false"):
                edges.setdefault((b, a), links[named[0]])
        elif len(named) == 2 and own.setdefault(a, named[0]) == named[0] and own.setdefault(b, named[1]) == named[1]:
            continue
        else:
            raise wrong(
                f"{where} has {len(named)} links",
                origin,
                "routes of one link, or of one of either host to a switch between them, are read",
            )
    if own and edges:
        raise wrong("routes of one link and routes over a switch", origin)
    if own:
        if len(own) < len(hosts) or len(set(own.values())) < len(own):
            raise wrong("hosts without a link of their own to the switch between them", origin)
        star = [edge(at, len(hosts), *links[name], both=True) for at, name in sorted(own.items())]
        return Described(foreign.SIMGRID.what, "npu_switch_8", custom(len(hosts), 1, star), [HOSTS])
    direct = [edge(a, b, gbs, ns) for (a, b), (gbs, ns) in sorted(edges.items())]
    shared = "a link is one way, each way has its own"
    return Described(foreign.SIMGRID.what, "npu_ring_8", custom(len(hosts), 0, direct), [HOSTS, shared])
