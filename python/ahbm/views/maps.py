"""Places and lines of the viewer's map of links: the network between SIPs, and the cubes of the busiest SIP."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ahbm.views import links
from ahbm.views.links import Point

if TYPE_CHECKING:
    from ahbm._core import Machine

MOST_LINKS = 256
"""Of a map; of more links the viewer shows rows over time."""


def of_links(machine: Machine, names: Sequence[str]) -> list[dict[str, Any]]:
    """The maps of these links, which were used: title, nodes as [name, x, y], and lines as [link, x, y, x, y, ...].
    The link is its position among the names, -1 for one that was not used.
    """
    number = {name: at for at, name in enumerate(names)}
    found = (_between_sips(machine, number), _between_cubes(machine, number))
    return [drawn for drawn in found if drawn is not None and len(drawn["lines"]) <= 2 * MOST_LINKS]


def _between_sips(machine: Machine, number: dict[str, int]) -> dict[str, Any] | None:
    if not any(links.BETWEEN_SIPS.fullmatch(name) for name in number):
        return None
    places = links.positions(machine)
    every = {*machine.links_between_sips(), *(name for name in number if links.BETWEEN_SIPS.fullmatch(name))}
    if len(every) > MOST_LINKS:
        return None
    lines = []
    for name in sorted(every):
        ends = links.BETWEEN_SIPS.fullmatch(name)
        assert ends is not None
        for line in links.lines_of(machine, places, *ends.groups()):
            lines.append(_line(number.get(name, -1), line))
    deep = "; links to other planes are slanted" if machine.sip_d > 1 else ""
    return _map(f"links between ranks{deep}", places, lines)


def _between_cubes(machine: Machine, number: dict[str, int]) -> dict[str, Any] | None:
    met: dict[str, int] = {}
    for name in number:
        if (ends := links.BETWEEN_CUBES.fullmatch(name)) is not None:
            met[ends[1]] = met.get(ends[1], 0) + 1
    if not met:
        return None
    sip = max(met, key=lambda sip: (met[sip], -int(sip)))
    places: dict[str, Point] = {f"cube{cube}": divmod(cube, machine.cube_w)[::-1] for cube in range(machine.cubes)}
    here = [name for name in number if name.startswith(f"sip{sip}.")]
    # Of a port's connections the first used: the names are those most on the critical path first.
    ports: dict[tuple[str, str], str] = {}
    for name in [*here, *machine.links_between_cubes(int(sip))]:
        if (ends := links.BETWEEN_CUBES.fullmatch(name)) is not None:
            ports.setdefault((ends[2], ends[3]), name)
    lines = []
    for (cube, heading), name in sorted(ports.items()):
        (x, y), (dx, dy) = places[cube], links.STEPS[heading]
        lines.append(_line(number.get(name, -1), links.curve((x, y), (x + dx, y + dy))))
    return _map(f"links between the cubes of rank {sip}", places, lines)


def _line(link: int, line: Iterable[Point]) -> list[float]:
    return [link, *(round(value, 3) for point in line for value in point)]


def _map(title: str, places: dict[str, Point], lines: list[list[float]]) -> dict[str, Any]:
    nodes = [[re.sub("sip|cube", "", name), round(x, 3), round(y, 3)] for name, (x, y) in places.items()]
    return {"title": title, "nodes": nodes, "lines": lines, "step": round(_step(list(places.values())), 3)}


def _step(points: list[Point]) -> float:
    """The least distance of two neighbours in order."""
    pairs = itertools.pairwise(points)
    return min((math.dist(a, b) for a, b in pairs if a != b), default=1.0)
