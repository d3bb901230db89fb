"""What a file of another tool says of a machine, and what readers share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any
from xml.etree import ElementTree

from ahbm.errors import Site, TopologyError

MOST_CHARACTERS, MOST_ELEMENTS, MOST_SIPS = 1 << 22, 1 << 17, 4096
"""What a file may have before it is looked at, and what a custom network may have."""
COUNT = "system.sips.count"
LINK_NS = 500.0
"""A link whose latency nobody states, in ns."""


@dataclass(frozen=True)
class Described:
    """A machine, as far as a file describes it."""

    what: str
    """What the file is."""
    base: str
    """The machine that has everything else, unless the user names one."""
    sips: Mapping[str, Any]
    """The keys of `system.sips`."""
    assumed: Sequence[str]
    """What was assumed, a clause each."""


def wrong(message: str, origin: str, hint: str | None = None, line: int | None = None) -> TopologyError:
    """AHBM-T104."""
    place = origin if line is None else f"{origin}:{line}"
    return TopologyError("AHBM-T104", message, sites=(Site("the file", place),), hint=hint)


def lacking(message: str, origin: str, hint: str) -> TopologyError:
    """AHBM-T106."""
    return TopologyError("AHBM-T106", message, sites=(Site("the file", origin),), hint=hint)


def number(value: object, what: str, origin: str, least: float = 0.0, most: float = 1e12) -> float:
    """A finite number within bounds. Raises TopologyError (AHBM-T104)."""
    try:
        found = float(str(value)) if not isinstance(value, bool) else float("nan")
    except ValueError:
        found = float("nan")
    if not isfinite(found) or not least <= found <= most:
        raise wrong(f"{what}: {str(value)[:60]!r} is no number of {least:g} to {most:g}", origin)
    return found


def whole(value: object, what: str, origin: str, least: int = 0, most: int = MOST_SIPS) -> int:
    """A whole number within bounds. Raises TopologyError (AHBM-T104)."""
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", str(value)) or not least <= int(str(value)) <= most:
        raise wrong(f"{what}: {str(value)[:60]!r} is no whole number of {least} to {most}", origin)
    return int(str(value))


def xml(text: str, origin: str) -> ElementTree.Element:
    """The root of an XML file without entities of its own. Raises TopologyError (AHBM-T104)."""
    if len(text) > MOST_CHARACTERS or text.count("<") > MOST_ELEMENTS or "<!ENTITY" in text:
        raise wrong("the XML is longer than a machine needs, or has entities of its own", origin)
    try:
        return ElementTree.fromstring(text.encode())
    except ElementTree.ParseError as error:
        raise wrong(f"it is no XML: {error}", origin, line=error.position[0]) from error


def nodes_asked(asked: Mapping[str, object], own: int, origin: str) -> int:
    """Nodes of `own` SIPs each that the user asks for by the number of SIPs. Raises TopologyError (AHBM-T106)."""
    if COUNT not in asked:
        return 1
    count = whole(asked[COUNT], COUNT, origin, 1, 1 << 17)
    if count % own:
        raise lacking(
            f"the file describes a node of {own}, and {count} ranks are no whole number of such nodes",
            origin,
            f"--set {COUNT}={own * max(1, round(count / own))}",
        )
    return count // own


def custom(count: int, relays: int, edges: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A network by its edges."""
    network: dict[str, Any] = {"count": count, "topology": "custom"}
    if relays:
        network["relays"] = relays
    return {**network, "edges": [dict(edge) for edge in edges]}


def edge(start: int, end: int, gbs: float, ns: float, *, both: bool = False) -> dict[str, Any]:
    """A link, one way unless it is `both`."""
    return {"from": start, "to": end, "bandwidth_gbs": gbs, "latency_ns": ns, "bidirectional": both}
