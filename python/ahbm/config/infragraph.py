"""InfraGraph: descriptions of machines as graphs of devices, components and links, read as a network between SIPs.

The package `infragraph` (MIT) has the schema, expands a document to its graph, and translates topologies of lstopo in
XML. What is done here is to find the network of that graph: which XPUs there are, over what they reach each other
inside a host, and over which interfaces and switches between hosts. What a graph does not say is taken from a machine
that the user names, and told.
"""

from __future__ import annotations

import json
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ahbm._core import Machine
from ahbm.base.optional import needed
from ahbm.base.yaml_source import parse
from ahbm.config.based import whole_text
from ahbm.config.graph_network import Lacking, network
from ahbm.errors import AhbmError, Site, TopologyError

MOST_BYTES = 1 << 26
MOST_XML = 1 << 22
"""Bytes of XML: hosts have less."""
MOST_VERTICES = 1 << 18
MOST_EDGES = 1 << 20
DEEPEST = 16
"""Devices inside each other."""
_SEGMENT = re.compile(r"([^\[\].]+)(?:\[([^\]]*)\])?")
_HINT = "pip install 'ahbm[infragraph]'"


def is_document(text: str) -> bool:
    """Whether a text, by its content, is an InfraGraph document, or a topology of lstopo for its package."""
    head = text[: 1 << 16].lstrip("\ufeff \t\r\n")
    if head.startswith("<"):
        return _root(head) == "topology"
    if head.startswith("{"):
        return ('"components"' in head and '"choice"' in head) or ('"devices"' in head and '"instances"' in text)
    keys = set(re.findall(r"^(\w+)\s*:", head, re.MULTILINE))
    return {"devices"} <= keys or {"components", "edges"} <= keys


def _root(head: str) -> str:
    """The name of the outermost element of XML."""
    found = re.search(r"<([A-Za-z_][\w.-]*)", re.sub(r"<!--.*?-->", "", head, flags=re.DOTALL))
    return "" if found is None else found[1]


def graph_of(text: str, path: Path) -> Any:
    """The graph of a document, with endpoints such as `dgx.0.xpu.3` as vertices (a `networkx.Graph`).

    Raises UnsupportedError (AHBM-U145) without the package, TopologyError: AHBM-T104 for a document that it refuses,
    T105 for one that is too large.
    """
    is_xml = text.lstrip("\ufeff \t\r\n").startswith("<")
    most = MOST_XML if is_xml else MOST_BYTES
    if len(text) > most:
        raise _large(path, f"a document of {len(text):,} characters is longer than {most:,}")
    package = needed("infragraph", "the file is an InfraGraph document, and its package is not installed", _HINT)
    service = needed("infragraph.infragraph_service", "the package infragraph has no service", _HINT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if is_xml:
                infrastructure = _translated(text, path)
                document = json.loads(infrastructure.serialize(encoding="json"))
            else:
                document = _document(text, path)
                infrastructure = None
            _bounded(document, path)
            infrastructure = infrastructure or package.Infrastructure().deserialize(document)
            made = service.InfraGraphService()
            made.set_graph(infrastructure)
            return made.get_networkx_graph()
        except AhbmError:
            raise
        except Exception as error:  # the package raises what Python raises
            raise _refused(path, f"the package infragraph refuses it: {_short(error)}") from error


def _short(error: Exception) -> str:
    text = " ".join(f"{error}".split()) or type(error).__name__
    return text if len(text) < 200 else f"{text[:197]}..."


def _refused(path: Path, what: str, hint: str | None = None) -> TopologyError:
    return TopologyError("AHBM-T104", f"{path}: {what}", sites=(Site("the file", str(path)),), hint=hint)


def _large(path: Path, what: str) -> TopologyError:
    hint = "describe the network by system.sips.nodes.fabric of a topology.yaml"
    return TopologyError("AHBM-T105", f"{path}: {what}", sites=(Site("the file", str(path)),), hint=hint)


def _document(text: str, path: Path) -> dict[str, Any]:
    """A document as plain values; a device alone as one of it."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _refused(path, f"it is no JSON: {_short(error)}") from error
    else:
        found = parse(text, str(path)).values
    if "components" in found and "devices" not in found:
        name = found.get("name")
        if not isinstance(name, str):
            raise _refused(path, "the device has no name")
        return {"name": name, "devices": [found], "instances": [{"name": name, "device": name, "count": 1}]}
    return dict(found)


def _translated(text: str, path: Path) -> Any:
    """The host that a topology of lstopo in XML describes, translated by the package."""
    if ("<!DOCTYPE" in text and "[" in text.partition("<!DOCTYPE")[2].partition(">")[0]) or "<!ENTITY" in text:
        raise _refused(path, "the XML declares entities", "remove its DOCTYPE")
    parser = needed("infragraph.translators.lstopo_translator", "infragraph does not translate lstopo", _HINT)
    name = re.sub(r"\W+", "_", path.name.partition(".")[0]) or "host"
    # The translators read files whose names end in .xml alone.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "topology.xml")
        copy.write_text(text, encoding="utf-8")
        return parser.LstopoParser(str(copy), name).parse()


def _each(value: Any) -> Iterator[Mapping[str, Any]]:
    for entry in value if isinstance(value, list) else []:
        if isinstance(entry, dict):
            yield entry


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _bounded(document: Mapping[str, Any], path: Path) -> None:
    """Refuses a document whose graph has more vertices or edges than are built."""
    devices = {str(device.get("name")): device for device in _each(document.get("devices"))}
    counts = {
        name: {str(part.get("name")): _count(part.get("count")) for part in _each(device.get("components"))}
        for name, device in devices.items()
    }

    def ends(device: str, text: Any) -> int:
        """Endpoints that a text names in a device."""
        total = 1
        for name, part in _SEGMENT.findall(str(text or "")):
            own = counts.get(device, {}).get(name)
            if own is not None:
                total *= _chosen(part, own)
            device = name
        return total

    def edges(device: str, entry: Mapping[str, Any]) -> int:
        one, other = (
            ends(device, ".".join(str(end[key]) for key in ("device", "component") if end.get(key)))
            for end in (entry.get("ep1") or {}, entry.get("ep2") or {})
        )
        return one * other if entry.get("scheme") == "many2many" else min(one, other)

    sizes: dict[str, tuple[int, int]] = {}

    def size(name: str, depth: int) -> tuple[int, int]:
        """Vertices of a device with those inside, and the steps in which its edges are made."""
        if depth > DEEPEST:
            raise _refused(path, f"more than {DEEPEST} devices are inside each other, or one inside itself")
        if name not in sizes:
            device = devices.get(name, {})
            vertices = inside = components = 0
            for part in _each(device.get("components")):
                count = _count(part.get("count"))
                own = size(str(part.get("name")), depth + 1) if part.get("choice") == "device" else (1, 0)
                vertices, inside, components = vertices + count * own[0], inside + count * own[1], components + count
            own_edges = sum(edges(name, entry) for entry in _each(device.get("edges")))
            # The package looks at all edges of a device inside another once for each of its components.
            sizes[name] = vertices, inside + own_edges * (1 + (components if depth else 0))
        return sizes[name]

    vertices = steps = 0
    instances = {}
    for instance in _each(document.get("instances")):
        count, device = _count(instance.get("count")), str(instance.get("device"))
        sizes.pop(device, None)
        own = size(device, 0)
        instances[str(instance.get("name"))] = (device, count)
        vertices, steps = vertices + count * own[0], steps + count * own[1]
    for entry in _each(document.get("edges")):
        found = []
        for end in (entry.get("ep1") or {}, entry.get("ep2") or {}):
            parts = _SEGMENT.findall(str(end.get("instance", "")))
            device, count = instances.get(parts[0][0] if parts else "", ("", 1))
            found.append(_chosen(parts[0][1] if parts else "", count) * ends(device, end.get("component")))
        steps += found[0] * found[1] if entry.get("scheme") == "many2many" else min(found)
    if vertices > MOST_VERTICES or steps > MOST_EDGES:
        described = f"{vertices:,} vertices whose edges take {steps:,} steps"
        raise _large(path, f"a graph of {described} is larger than {MOST_VERTICES:,} and {MOST_EDGES:,}")


def _chosen(text: str, count: int) -> int:
    """How many of a number of things a slice in Python's notation names; all where it names none."""
    parts = text.split(":")
    try:
        numbers = [int(part) if part.strip() else None for part in parts]
        if len(parts) == 1:
            return count if numbers[0] is None else 1
        return len(range(count)[slice(*numbers[:3])])
    except ValueError:
        return count


_NODES = "system.sips.nodes."


def machine_text(text: str, path: Path, named: str, base: Machine, values: Mapping[str, Any]) -> str:
    """A topology.yaml of the network that a document describes, with all else of a machine, `base`, whose keys are
    `values`.

    Raises as `graph_of`, TopologyError: AHBM-T104 for a graph without XPUs, T106 where neither says what links have.
    """
    graph = graph_of(text, path)
    found = network(graph, _lacking(base))
    if not found.count:
        raise _refused(path, "the graph has no component of the kind xpu", "a device needs one that computes")
    if found.missing:
        keys = list(dict.fromkeys(found.missing))
        shown = " ".join(["--set system.sips.topology=nodes", *(f"--set {key}=..." for key in keys)])
        raise TopologyError(
            "AHBM-T106",
            f"{path}: neither the graph nor {named} says what {' and '.join(keys)} would",
            sites=(Site("the file", str(path)), Site("its base", named)),
            hint=f"`ahbm topology {named} {shown} -o base.yaml` makes a machine that does: --set base=base.yaml",
        )
    tree = dict(values)
    system = dict(tree.get("system") or {})
    old = dict(system.get("sips") or {})
    sips: dict[str, Any] = {"count": found.count, "topology": "custom", "link": old.get("link") or {}}
    if found.relays:
        sips |= {"relays": len(found.relays), "relay_names": found.relays}
    if found.host_size > 1:
        sips["host_size"] = found.host_size
    assumed = [*found.assumed, f"memory, engines and protocols are those of {named}"]
    if any("nic_" in key for key, _ in base.parameters if key.startswith("protocols.")):
        assumed.append(f"what the protocols of {named} say of interfaces alone is not used")
    tree["system"] = {**system, "sips": {**sips, "routes": {"choose": "ecmp"}, "edges": found.edges}}
    # Bands hold for the machine that was measured.
    tree.pop("calibration", None)
    return whole_text({**tree, "assumed": assumed})


def _lacking(base: Machine) -> Lacking:
    """What a machine says of links."""
    stated = dict(base.parameters)

    def number(key: str) -> float | None:
        text = stated.get(key)
        if text is None:
            return None
        return float(text.removesuffix("GB/s")) if text.endswith("GB/s") else int(text.removesuffix("ps")) / 1000

    inside = "system.sips.switch.latency_ns" if base.topology == "switch" else f"{_NODES}switch_ns"
    return Lacking(
        inside_gbs=number("system.sips.link.bandwidth_gbs"),
        inside_ns=number("system.sips.link.latency_ns"),
        switch_ns=number(inside) or 0.0,
        nic_gbs=number(f"{_NODES}nic_gbs"),
        nic_ns=number(f"{_NODES}nic_latency_ns"),
        spine_ns=number(f"{_NODES}spine_ns") or 0.0,
        each=base.topology not in ("switch", "nodes"),
    )
