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
    if kind in ("FAT_TREE", "DRAGONFLY"):
        levels = [
            [whole(part, "topo_parameters", origin, 1) for part in level.split(",")]
            for level in cluster.get("topo_parameters", "").split(";")
        ]
        return (_fat_tree if kind == "FAT_TREE" else _dragonfly)(levels, count, (gbs, ns), origin)
    if kind != "FLAT":
        raise wrong(f"a cluster of topology {kind[:40]}", origin, "FLAT, TORUS, FAT_TREE and DRAGONFLY are read")
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


def _fat_tree(levels: list[list[int]], count: int, link: tuple[float, float], origin: str) -> Described:
    """A parallel ports generalized fat tree: its levels, and of each the children and the parents of a vertex and the
    cables between two. Ways are chosen by destination modulo k, as SimGrid does (FatTreeZone.cpp)."""
    depth = levels[0][0]
    if not 1 <= depth <= 3 or [len(level) for level in levels] != [1, depth, depth, depth]:
        raise wrong(
            f"a fat tree of {';'.join(','.join(map(str, level)) for level in levels)[:60]}",
            origin,
            "1 to 3 levels, then children, parents and cables of each: 2;4,4;1,2;1,2",
        )
    down, up, cables = levels[1:]
    if _product(down) != count:
        raise wrong(f"a fat tree of {_product(down)} hosts, and a radical of {count}", origin)
    if up[0] * cables[0] > 1 or (depth == 3 and cables[2] > 1):
        raise wrong("hosts with several links, or several cables to the third level", origin, "give one of each")
    gbs, ns = link
    fabric: dict[str, Any] = {"kind": "clos", "tiers": depth, "nodes_per_leaf": down[0], "switch_ns": 0}
    if depth > 1:
        fabric |= {"spines": up[1], "links": cables[1], "bandwidth_gbs": gbs, "latency_ns": ns}
    if depth > 2:
        fabric |= {"nodes_per_pod": down[0] * down[1], "cores": up[1] * up[2]}
    nodes = {"size": 1, "nic_latency_ns": ns, "nic_gbs": gbs, "fabric": fabric}
    network: dict[str, Any] = {"count": count, "topology": "nodes", "nodes": nodes, "routes": {"choose": "rails"}}
    return Described(foreign.SIMGRID.what, "npu_switch_8", network, [HOSTS])


def _dragonfly(levels: list[list[int]], count: int, link: tuple[float, float], origin: str) -> Described:
    """Groups of chassis of routers of hosts. All routers of a chassis are joined, all of one number in a group, and
    router j of group i with router i of group j; a link is as wide as it has cables (DragonflyZone.cpp)."""
    if [len(level) for level in levels] != [2, 2, 2, 1]:
        raise wrong(
            "a dragonfly of other parameters",
            origin,
            "groups, chassis, routers, each with cables; hosts: 3,4;3,2;3,1;2",
        )
    (groups, blue), (chassis, black), (routers, green), (own,) = levels
    each = chassis * routers
    if groups * each * own != count:
        raise wrong(f"a dragonfly of {groups * each * own} hosts, and a radical of {count}", origin)
    if groups > each:
        raise wrong(f"{groups} groups, which {each} routers of a group do not reach", origin)
    gbs, ns = link

    def router(group: int, at: int) -> int:
        return count + group * each + at

    edges = [edge(host, count + host // own, gbs, ns, both=True) for host in range(count)]
    for group in range(groups):
        for one in range(each):
            inside = range(one + 1, one // routers * routers + routers)
            edges += [edge(router(group, one), router(group, other), gbs * green, ns, both=True) for other in inside]
            beside = range(one + routers, each, routers)
            edges += [edge(router(group, one), router(group, other), gbs * black, ns, both=True) for other in beside]
        for other in range(group + 1, groups):
            edges.append(edge(router(group, other), router(other, group), gbs * blue, ns, both=True))
    assumed = [HOSTS, "of equally short ways a message takes the first one"]
    return Described(foreign.SIMGRID.what, "npu_switch_8", custom(count, groups * each, edges), assumed)


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
    """Hosts whose routes are single links, to each other and to routers, or a link of each of both."""
    places = {host.get("id", ""): at for at, host in enumerate(hosts)}
    if not 2 <= len(places) == len(hosts) <= MOST_SIPS:
        raise wrong(f"{len(hosts)} hosts of {len(places)} names", origin, f"2 to {MOST_SIPS} hosts, each with its id")
    for router in root.iter("router"):
        places.setdefault(router.get("id", ""), len(places))
    relays = len(places) - len(hosts)
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
            raise wrong(f"{where} names a host, a router or a link that does not exist", origin)
        a, b = int(ends[0] or 0), int(ends[1] or 0)
        if a == b:
            continue
        if len(named) == 1:
            edges[a, b] = links[named[0]]
            if route.get("symmetrical", "yes").lower() not in ("no", "false"):
                edges.setdefault((b, a), links[named[0]])
        elif (
            len(named) == 2
            and max(a, b) < len(hosts)
            and own.setdefault(a, named[0]) == named[0]
            and own.setdefault(b, named[1]) == named[1]
        ):
            continue
        else:
            raise wrong(
                f"{where} has {len(named)} links",
                origin,
                "read are routes of one link, between hosts and routers, or of one of either host to a switch",
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
    assumed = [HOSTS, shared, *(["ways over routers are the shortest ones"] if relays else [])]
    return Described(foreign.SIMGRID.what, "npu_ring_8", custom(len(hosts), relays, direct), assumed)
