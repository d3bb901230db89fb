"""The network between XPUs that a graph of components describes: an edge list of `topology: custom`."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Pair = tuple[str, str]
_GBS = {"Gbps": 1 / 8, "GBps": 1.0}
_LONGEST = 64
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}


@dataclass(frozen=True)
class Wire:
    """What a link states: GB/s each way and ns; None where it does not say."""

    gbs: float | None = None
    ns: float | None = None

    def then(self, other: Wire) -> Wire:
        """Both, one behind the other."""
        rates = [rate for rate in (self.gbs, other.gbs) if rate is not None]
        delays = [delay for delay in (self.ns, other.ns) if delay is not None]
        return Wire(min(rates, default=None), sum(delays) if delays else None)


@dataclass(frozen=True)
class Lacking:
    """What stands in for what a graph does not say; None where nothing does."""

    inside_gbs: float | None
    """Of an XPU inside its host, to all others together; of each of its links where `each`."""
    inside_ns: float | None
    switch_ns: float
    """Through a switch inside a host."""
    nic_gbs: float | None
    nic_ns: float | None
    spine_ns: float
    """Through a switch between hosts."""
    each: bool = False

    def share(self, links: int) -> float | None:
        """GB/s of one of so many links of an XPU inside its host."""
        return self.inside_gbs if self.inside_gbs is None or self.each else self.inside_gbs / links


@dataclass
class Network:
    """An edge list, as `system.sips` takes it, and what was assumed."""

    count: int = 0
    host_size: int = 1
    relays: list[str] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Keys that would say what nothing says."""


def network(graph: Any, lacking: Lacking) -> Network:
    """The network between the XPUs of a graph, in the order of the graph.

    Instances without XPUs are switches, one vertex each. A host is an instance with XPUs. Inside it, XPUs reach each
    other over the links that no CPU and no interface has, else over all of them; switches side by side count as one.
    Between hosts, an XPU has the interfaces that are nearest to it, evenly shared out.
    """
    return _Reading(graph, lacking).network()


def _wire(attributes: Mapping[str, Any]) -> Wire:
    def stated(key: str, units: Mapping[str, float]) -> float | None:
        number, _, unit = str(attributes.get(key, "")).partition(" ")
        try:
            value = float(number) * units[unit] if unit in units else None
        except ValueError:
            return None
        # Zero is a latency, and no bandwidth.
        return value if value is not None and 0 <= value < 1e9 and (value or units is _NS) else None

    return Wire(stated("bandwidth", _GBS), stated("latency", _NS))


def _host(vertex: str) -> str:
    return ".".join(vertex.split(".")[:2])


def _named(names: Iterable[str]) -> list[str]:
    """Names that relays may have, all different."""
    found: dict[str, None] = {}
    for number, name in enumerate(names):
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        short = plain if len(plain) <= _LONGEST and not plain.startswith("sip") else f"relay{number}.{plain[-40:]}"
        found[short if short not in found else f"relay{number}.{short[-40:]}"] = None
    return list(found)


class _Reading:
    def __init__(self, graph: Any, lacking: Lacking) -> None:
        self.graph, self.lacking, self.found = graph, lacking, Network()
        self.kind: dict[str, str] = {vertex: str(data.get("type", "")) for vertex, data in graph.nodes(data=True)}
        self.xpus = [vertex for vertex in graph if self.kind[vertex] == "xpu"]
        self.number = {vertex: number for number, vertex in enumerate(self.xpus)}
        self.hosts: dict[str, list[str]] = {}
        for xpu in self.xpus:
            self.hosts.setdefault(_host(xpu), []).append(xpu)
        self.parts: dict[str, list[str]] = {}
        for vertex in graph:
            self.parts.setdefault(_host(vertex), []).append(vertex)
        self.relay: dict[str, int] = {}
        # Ends, GB/s, ns there and back, and how many are side by side.
        self.links: Counter[tuple[int, int, float, float, float]] = Counter()
        self.described: Counter[str] = Counter()

    def network(self) -> Network:
        found = self.found
        found.count = len(self.xpus)
        sizes = {len(xpus) for xpus in self.hosts.values()}
        blocks = all(
            [self.number[xpu] for xpu in xpus] == list(range(self.number[xpus[0]], self.number[xpus[0]] + len(xpus)))
            for xpus in self.hosts.values()
        )
        if len(sizes) == 1 and blocks and len(self.hosts) > 1:
            found.host_size = sizes.pop()
        elif len(self.hosts) > 1:
            found.assumed.append("hosts of several sizes: algorithms do not go by hosts")
        for xpus in self.hosts.values():
            self._inside(xpus)
        ends = self._interfaces()
        self._between(ends)
        for (a, b, gbs, there, back), count in self.links.items():
            edge: dict[str, Any] = {"from": a, "to": b, "bandwidth_gbs": gbs, "latency_ns": there}
            side = {"links": count} if count > 1 else {}
            if there == back:
                found.edges.append({**edge, **side})
            else:
                found.edges.append({**edge, "bidirectional": False, **side})
                found.edges.append({**edge, "from": b, "to": a, "latency_ns": back, "bidirectional": False, **side})
        found.assumed += [f"{what} ({count:,} links)" for what, count in self.described.items()]
        found.relays = _named(self.relay)
        return found

    def _vertex(self, name: str) -> int:
        return len(self.xpus) + self.relay.setdefault(name, len(self.relay))

    def _value(self, stated: float | None, stand_in: float | None, what: str, key: str) -> float:
        """What a link states, else what stands in for it."""
        if stated is not None:
            return stated
        if stand_in is None:
            if key not in self.found.missing:
                self.found.missing.append(key)
            return 1.0
        self.described[f"{what} {stand_in:.6g} {'GB/s' if key.endswith('gbs') else 'ns'}, by {key}"] += 1
        return stand_in

    def _add(self, a: int, b: int, gbs: float, there: float, back: float) -> None:
        # Rounded as the machine rounds: to whole ps.
        self.links[a, b, gbs, round(there, 3), round(back, 3)] += 1

    # Inside a host

    def _inside(self, xpus: list[str]) -> None:
        if len(xpus) == 1:
            return
        host = _host(xpus[0])
        edges = [(a, b, data) for a, b, data in self.graph.edges(self.parts[host], data=True) if _host(a) == _host(b)]
        open_ = {"cpu", "nic", "memory"}
        outer = {str(d.get("link")) for a, b, d in edges if open_ & {self.kind.get(a, ""), self.kind.get(b, "")}}
        own = [(a, b, d) for a, b, d in edges if str(d.get("link")) not in outer]
        near = self._joined(xpus, own)
        if not near:
            self.described[f"XPUs of {host.partition('.')[0]} reach each other over all links of their host"] += 1
            near = self._joined(xpus, edges)
        direct = [(a, b, d) for a, b, d in near if a in self.number and b in self.number]
        peers: Counter[str] = Counter(end for a, b, _ in direct for end in (a, b))
        for a, b, data in direct:
            wire = _wire(data)
            share = self.lacking.share(max(peers[a], peers[b]))
            gbs = self._value(wire.gbs, share, "a link between XPUs has", "system.sips.link.bandwidth_gbs")
            ns = self._value(
                wire.ns, self.lacking.inside_ns, "a link between XPUs takes", "system.sips.link.latency_ns"
            )
            self._add(self.number[a], self.number[b], gbs, ns, ns)
        rest = [(a, b, d) for a, b, d in near if not (a in self.number and b in self.number)]
        self._switches(host, xpus, rest)

    def _joined(self, xpus: list[str], edges: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
        """The edges on ways between XPUs, if these join all of them; else none."""
        ways: dict[str, list[str]] = {}
        for a, b, _ in edges:
            ways.setdefault(a, []).append(b)
            ways.setdefault(b, []).append(a)
        # What leads nowhere is on no way.
        ends = deque(vertex for vertex, to in ways.items() if len(set(to)) < 2 and vertex not in self.number)
        gone: set[str] = set()
        while ends:
            vertex = ends.popleft()
            if vertex in gone:
                continue
            gone.add(vertex)
            for other in ways.get(vertex, []):
                left = {end for end in ways[other] if end not in gone}
                if other not in gone and other not in self.number and len(left) < 2:
                    ends.append(other)
        seen, queue = {xpus[0]}, deque([xpus[0]])
        while queue:
            for other in ways.get(queue.popleft(), []):
                if other not in seen and other not in gone:
                    seen.add(other)
                    queue.append(other)
        if not set(xpus) <= seen:
            return []
        return [(a, b, d) for a, b, d in edges if a not in gone and b not in gone]

    def _switches(self, host: str, xpus: list[str], edges: list[tuple[str, str, Any]]) -> None:
        """Switches inside a host and their links; those side by side, with the same XPUs, as one."""
        around: dict[str, dict[str, Wire]] = {}
        for a, b, data in edges:
            around.setdefault(a, {})[b] = _wire(data)
            around.setdefault(b, {})[a] = _wire(data)
        self._contract(around)
        planes: dict[frozenset[str], list[str]] = {}
        alone = []
        for vertex, neighbours in around.items():
            if vertex in self.number:
                continue
            if all(end in self.number for end in neighbours):
                planes.setdefault(frozenset(neighbours), []).append(vertex)
            else:
                alone.append(vertex)
        spread: Counter[str] = Counter()
        for to in planes:
            spread.update(to)
        for vertex in alone:
            spread.update(end for end in around[vertex] if end in self.number)
        groups = [(members, to) for to, members in planes.items()] + [([one], frozenset(around[one])) for one in alone]
        for members, to in groups:
            at = self._vertex(members[0] if len(members) == 1 else f"{members[0].rpartition('.')[0]}s")
            for end in sorted(to, key=lambda end: self.number.get(end, -1)):
                if end not in self.number and (end, members[0]) > (members[0], end):
                    continue
                wires = [around[member][end] for member in members]
                rates = [wire.gbs for wire in wires if wire.gbs is not None]
                wire = Wire(sum(rates) if len(rates) == len(wires) else None, wires[0].ns)
                other = self.number[end] if end in self.number else self._vertex(end)
                share = self.lacking.share(max(1, spread[end]) if end in self.number else 1)
                gbs = self._value(wire.gbs, share, "a link inside a host has", "system.sips.link.bandwidth_gbs")
                ns = self._value(
                    wire.ns, self.lacking.inside_ns, "a link inside a host takes", "system.sips.link.latency_ns"
                )
                crossing = self.lacking.switch_ns if wire.ns is None else 2 * self._inner.get((members[0], end), 0.0)
                self._add(other, at, gbs, ns + crossing, ns)

    def _contract(self, around: dict[str, dict[str, Wire]]) -> None:
        """Ports, slots and the like with two neighbours become links; what is inside a switch is kept in `_inner`."""
        self._inner: dict[Pair, float] = {}
        for vertex in [vertex for vertex in around if vertex not in self.number]:
            to = around.get(vertex, {})
            if len(to) != 2 or self.kind[vertex] == "switch":
                continue
            (a, one), (b, other) = to.items()
            if b in around[a]:
                continue
            for switch, far, inner, outer in ((a, b, one, other), (b, a, other, one)):
                if self.kind[vertex] == "port" and self.kind.get(switch) == "switch" and inner.ns is not None:
                    self._inner[switch, far] = inner.ns
                    one, other = Wire(inner.gbs, None), outer
            del around[a][vertex], around[b][vertex], around[vertex]
            around[a][b] = around[b][a] = one.then(other)

    # Between hosts

    def _interfaces(self) -> dict[str, list[tuple[int, Wire]]]:
        """Per end of a host where a link leaves it: the XPUs that have it, or a relay of those that share it."""
        leaving: dict[str, list[str]] = {}
        for a, b in self.graph.edges():
            for end, other in ((a, b), (b, a)):
                if _host(end) != _host(other) and _host(end) in self.hosts:
                    leaving.setdefault(_host(end), [])
                    if end not in leaving[_host(end)]:
                        leaving[_host(end)].append(end)
        found: dict[str, list[tuple[int, Wire]]] = {}
        for host, ends in leaving.items():
            xpus = self.hosts[host]
            far = {xpu: self._distances(xpu, set(ends)) for xpu in xpus}
            near = {(xpu, end): far[xpu].get(end, (1 << 30, Wire())) for xpu in xpus for end in ends}
            users: dict[str, list[str]] = {end: [] for end in ends}
            if len(ends) >= len(xpus):
                taken: Counter[str] = Counter()
                for end in ends:
                    best = min(xpus, key=lambda xpu: (taken[xpu], near[xpu, end][0], self.number[xpu]))
                    taken[best] += 1
                    users[end].append(best)
            else:
                most = -(-len(xpus) // len(ends))
                for xpu in xpus:
                    free = [end for end in ends if len(users[end]) < most]
                    users[min(free, key=lambda end: (near[xpu, end][0], len(users[end]), ends.index(end)))].append(xpu)
            for end, having in users.items():
                if not having:
                    continue
                if len(having) == 1:
                    found[end] = [(self.number[having[0]], near[having[0], end][1])]
                    continue
                at = self._vertex(end)
                found[end] = [(at, Wire())]
                for xpu in having:
                    wire = near[xpu, end][1]
                    key = "system.sips.nodes.nic_gbs"
                    gbs = self._value(wire.gbs, self.lacking.nic_gbs, "the way to an interface has", key)
                    self._add(self.number[xpu], at, gbs, wire.ns or 0.0, wire.ns or 0.0)
                self.described["XPUs that share an interface have it by turns"] += 1
        return found

    def _distances(self, xpu: str, ends: Iterable[str]) -> dict[str, tuple[int, Wire]]:
        """Links to each of these ends inside the host, around other XPUs, and what these state."""
        found, queue = {xpu: (0, Wire())}, deque([xpu])
        host = _host(xpu)
        while queue:
            vertex = queue.popleft()
            links, wire = found[vertex]
            for other, data in self.graph.adj[vertex].items():
                if other not in found and _host(other) == host and other not in self.number:
                    found[other] = (links + 1, wire.then(_wire(data)))
                    queue.append(other)
        return {end: found[end] for end in ends if end in found}

    def _between(self, ends: dict[str, list[tuple[int, Wire]]]) -> None:
        """Links between hosts and switches, and between switches."""

        def crossing(vertex: str) -> float | None:
            """What a link into the switch of a port takes through it: what its port and another are from its middle."""
            own = [_wire(data).ns for other, data in self.graph.adj[vertex].items() if _host(other) == _host(vertex)]
            stated = [ns for ns in own if ns is not None]
            return 2 * max(stated) if stated else None

        def place(vertex: str) -> tuple[int, Wire, float | None, bool] | None:
            if _host(vertex) in self.hosts:
                given = ends.get(vertex)
                return None if given is None else (*given[0], 0.0, True)
            return self._vertex(_host(vertex)), Wire(), crossing(vertex), False

        # Switches in the order of the document, so that numbers say where they are.
        for vertex in self.graph:
            if _host(vertex) not in self.hosts and any(
                _host(other) != _host(vertex) for other in self.graph.adj[vertex]
            ):
                self._vertex(_host(vertex))
        for a, b, data in self.graph.edges(data=True):
            if _host(a) == _host(b):
                continue
            one, other = place(a), place(b)
            if one is None or other is None:
                continue
            wire = _wire(data)
            rates = [rate for rate in (wire.gbs, one[1].gbs, other[1].gbs) if rate is not None]
            gbs = self._value(
                min(rates, default=None) if wire.gbs is not None else None,
                self.lacking.nic_gbs,
                "a link between hosts has",
                "system.sips.nodes.nic_gbs",
            )
            if one[3] or other[3]:
                path = Wire(None, wire.ns).then(one[1]).then(other[1])
                ns = self._value(path.ns, self.lacking.nic_ns, "an interface takes", "system.sips.nodes.nic_latency_ns")
            elif wire.ns is None:
                self.described["no latency of links between switches is counted"] += 1
                ns = 0.0
            else:
                ns = wire.ns
            through = []
            for end in (one, other):
                if end[2] is None:
                    self.described[
                        f"a switch between hosts takes {self.lacking.spine_ns:.6g} ns, by system.sips.nodes.spine_ns"
                    ] += 1
                through.append(self.lacking.spine_ns if end[2] is None else end[2])
            self._add(one[0], other[0], gbs, ns + through[1], ns + through[0])
