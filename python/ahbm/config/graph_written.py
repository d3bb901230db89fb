"""A machine as an InfraGraph document: SIPs are XPUs of hosts, what joins them is links and switches."""

from __future__ import annotations

import json
import re
from typing import Any

from ahbm._core import Machine
from ahbm.config.based import whole_text
from ahbm.errors import UnsupportedError

Pair = tuple[int, int]
Part = dict[str, Any]


def text_of_graph(machine: Machine, name: str, as_json: bool) -> str:
    """The InfraGraph document of the network between a machine's SIPs, as JSON or YAML.

    A SIP is an XPU; those of a node or host are XPUs of one device, with the switches that join these alone. Every
    other vertex is an instance of a switch. What links into a switch have over those out of it is the latency between
    the ports of the switch and its middle, twice. Engines, memory and protocols have no place in such a document.

    Raises UnsupportedError (AHBM-U147) for links without an opposite one that is alike: links of InfraGraph carry both
    ways alike.
    """
    document = _Written(machine).document(name)
    return json.dumps(document, indent=1) + "\n" if as_json else whole_text(document)


def _unlike(a: str, b: str) -> UnsupportedError:
    return UnsupportedError(
        "AHBM-U147",
        f"{a}->{b} has no opposite link that is alike, and links of InfraGraph carry both ways alike",
        hint="nodes around one spine have some: system.sips.nodes.fabric.tiers=1 joins them by a switch instead",
    )


class _Links:
    """Links of a document or device, each kind once."""

    def __init__(self) -> None:
        self.known: dict[tuple[float | None, float | None], str] = {}

    def name(self, gbs: float | None, ns: float | None) -> str:
        """A link that states so much, by its name; None is not stated."""
        return self.known.setdefault((gbs, ns), f"link{len(self.known)}")

    def parts(self) -> list[Part]:
        found: list[Part] = []
        for (gbs, ns), name in self.known.items():
            physical: Part = {}
            if gbs is not None:
                physical["bandwidth"] = {"choice": "gigabytes_per_second", "gigabytes_per_second": gbs}
            if ns is not None:
                physical["latency"] = {"choice": "ns", "ns": ns}
            found.append({"name": name, "description": name, **({"physical": physical} if physical else {})})
        return found


def _component(name: str, count: int, choice: str) -> Part:
    return {"name": name, "description": name, "count": count, "choice": choice, choice: {}}


def _edge(one: Part, other: Part, link: str, scheme: str = "one2one") -> Part:
    return {"ep1": one, "ep2": other, "scheme": scheme, "link": link}


class _Written:
    def __init__(self, machine: Machine) -> None:
        self.sips, self.size = machine.sips, machine.node_size
        self.names: dict[int, str] = {}
        directed: dict[Pair, list[tuple[float, int]]] = {}
        stated = dict(machine.parameters)["system.sips.switch.latency_ns"]
        switch = int(stated.removesuffix("ps")) if machine.topology == "switch" else 0
        for a, b, one, other, gbs, ps in machine.sip_edges():
            directed.setdefault((a, b), []).append((gbs, ps + (switch if b >= self.sips else 0)))
            self.names[a], self.names[b] = one, other
        self.around: dict[int, list[int]] = {}
        for a, b in directed:
            self.around.setdefault(a, []).append(b)
        through = self._through(directed)
        self.through = through
        # GB/s and ps of what is side by side, by both ends, the lower one first.
        self.cables: dict[Pair, list[tuple[float, int]]] = {}
        for (a, b), found in directed.items():
            own = [(gbs, ps - through[b]) for gbs, ps in found]
            if own != [(gbs, ps - through[a]) for gbs, ps in directed.get((b, a), [])] or min(own)[1] < 0:
                raise _unlike(self.names[a], self.names[b])
            if a < b:
                self.cables[a, b] = own

    def _through(self, directed: dict[Pair, list[tuple[float, int]]]) -> dict[int, int]:
        """ps that links into a vertex have over those out of it, those of a SIP having none."""
        found = {vertex: 0 for vertex in self.around if vertex < self.sips}
        ends = list(found)
        while ends:
            at = ends.pop()
            for other in self.around[at]:
                if other not in found:
                    if (other, at) not in directed:
                        raise _unlike(self.names[at], self.names[other])
                    found[other] = max(0, found[at] + directed[at, other][0][1] - directed[other, at][0][1])
                    ends.append(other)
        return found

    def document(self, name: str) -> Part:
        # Per vertex the hosts that it joins; those of one host are inside.
        inside: dict[int, int] = {}
        for vertex, to in self.around.items():
            joined = {end // self.size for end in to if end < self.sips}
            if self.size > 1 and vertex >= self.sips and len(joined) == 1 and max(to) < self.sips:
                inside[vertex] = joined.pop()
        place = {sip: sip // self.size for sip in range(self.sips)} | inside
        links = _Links()
        edges: list[Part] = []
        used: dict[int, int] = {}
        devices: dict[str, Part] = {}
        switches: dict[int, list[int]] = {}
        for vertex, at in sorted(inside.items()):
            switches.setdefault(at, []).append(vertex)
        self._interfaces: dict[int, int] = {}
        hosts = range(-(-self.sips // self.size))
        kinds = [self._host(host, switches.get(host, []), devices) for host in hosts]
        instances: list[Part] = []
        where: dict[int, tuple[str, int]] = {}
        for host, kind in enumerate(kinds):
            if not instances or instances[-1]["device"] != kind:
                instances.append({"name": f"hosts{len(instances)}", "device": kind, "count": 0})
            where[host] = (str(instances[-1]["name"]), int(instances[-1]["count"]))
            instances[-1]["count"] += 1

        def port(vertex: int) -> Part:
            at = used[vertex] = used.get(vertex, -1) + 1
            if vertex < self.sips:
                name, number = where[vertex // self.size]
                each = self._interfaces[vertex // self.size]
                return {"instance": f"{name}[{number}]", "component": f"nic[{vertex % self.size * each + at}]"}
            return {"instance": f"{self._plain(vertex)}[0]", "component": f"port[{at}]"}

        for (a, b), cables in self.cables.items():
            if a not in place or b not in place or place[a] != place[b]:
                for gbs, ps in cables:
                    edges.append(_edge(port(a), port(b), links.name(gbs, ps / 1000)))
        for vertex in sorted(self.around):
            if vertex not in place:
                kind = self._switch(used[vertex] + 1, self.through[vertex], devices)
                instances.append({"name": self._plain(vertex), "device": kind, "count": 1})
        return {
            "name": name,
            "description": f"{name}, as ahbm topology wrote it",
            "devices": list(devices.values()),
            "links": links.parts(),
            "instances": instances,
            "edges": edges,
        }

    def _plain(self, vertex: int) -> str:
        return re.sub(r"[^A-Za-z0-9_-]", "_", self.names[vertex])

    def _host(self, host: int, switches: list[int], devices: dict[str, Part]) -> str:
        """The device of a host, made where there is none of its kind."""
        sips = range(host * self.size, min(self.sips, (host + 1) * self.size))
        own = {*sips, *switches}
        links, edges, ports = _Links(), [], 0
        outside = [
            sum(len(self.cables[min(s, o), max(s, o)]) for o in self.around.get(s, []) if o not in own) for s in sips
        ]
        self._interfaces[host] = each = max(outside, default=0)
        parts = [_component("xpu", len(sips), "xpu")]
        middle: list[Part] = []
        for (a, b), cables in self.cables.items():
            if a not in own or b not in own:
                continue
            for gbs, ps in cables:
                one: Part = {"component": f"xpu[{a % self.size}]"}
                if b < self.sips:
                    edges.append(_edge(one, {"component": f"xpu[{b % self.size}]"}, links.name(gbs, ps / 1000)))
                    continue
                at: Part = {"component": f"port[{ports}]"}
                edges.append(_edge(one, at, links.name(gbs, ps / 1000)))
                inner = links.name(None, self.through[b] / 2000)
                middle.append(_edge(at, {"component": f"switch[{switches.index(b)}]"}, inner))
                ports += 1
        if switches:
            parts += [_component("switch", len(switches), "switch"), _component("port", ports, "port")]
        edges += middle
        if each:
            parts.append(_component("nic", len(sips) * each, "nic"))
            for number in range(len(sips)):
                mine = {"component": f"nic[{number * each}:{(number + 1) * each}]"}
                edges.append(_edge({"component": f"xpu[{number}]"}, mine, links.name(None, None), "many2many"))
        return _device("host", {"components": parts, "links": links.parts(), "edges": edges}, devices)

    def _switch(self, ports: int, through: int, devices: dict[str, Part]) -> str:
        """The device of a switch with so many ports."""
        links = _Links()
        edge = _edge({"component": "asic"}, {"component": "port"}, links.name(None, through / 2000), "many2many")
        parts = [_component("asic", 1, "switch"), _component("port", ports, "port")]
        return _device("switch", {"components": parts, "links": links.parts(), "edges": [edge]}, devices)


def _device(kind: str, content: Part, devices: dict[str, Part]) -> str:
    text = json.dumps([kind, content])
    if text not in devices:
        count = sum(str(device["name"]).startswith(kind) for device in devices.values())
        devices[text] = {"name": f"{kind}{count}", "description": kind, **content}
    return str(devices[text]["name"])
