"""Links drawn where they are: the SIP network, and the cube mesh of the busiest SIP, coloured by use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from ahbm.runs.explanation import Link
from ahbm.views.charts import WIDTH, Chart, tooltip

if TYPE_CHECKING:
    from ahbm._core import Machine

Point = tuple[float, float]
Row = dict[str, Any]

ASIDE_PX = 4
"""Half the distance between the two directions of a link."""
MARGIN = 0.6
"""Around the places, in steps of the grid."""

BETWEEN_SIPS = re.compile(r"(sip\d+|switch)->(sip\d+|switch)")
BETWEEN_CUBES = re.compile(r"sip(\d+)\.(cube\d+)\.ucie_([NESW])\d+")
USE = ["#a9b4c0", "#2f87c8", "#d99a1c", "#d1322a"]
"""Idle, a quarter, half and all of the time; on white and on black."""
STEPS = {"N": (0, -1), "E": (1, 0), "S": (0, 1), "W": (-1, 0)}


def positions(machine: Machine) -> dict[str, Point]:
    """The position of each SIP in the drawing: grids as grids (planes beside each other), others on a circle."""
    count, w, h = machine.sips, machine.sip_w, machine.sip_h
    if machine.topology.endswith("1d") or not w:
        if machine.topology == "hypercube":
            bits = (count - 1).bit_length()
            low = 1 << (bits + 1) // 2
            return {f"sip{sip}": (sip % low, sip // low) for sip in range(count)}
        if count == 2:
            return {"sip0": (0.0, 0.0), "sip1": (1.0, 0.0)}
        radius = max(1.0, count / 5)
        turn = [2 * math.pi * sip / count for sip in range(count)]
        around = {f"sip{sip}": (radius * math.sin(a), -radius * math.cos(a)) for sip, a in enumerate(turn)}
        return around | ({"switch": (0.0, 0.0)} if machine.topology == "switch" else {})
    plane = w * h
    return {f"sip{sip}": (sip % w + sip // plane * (w + 1), sip // w % h) for sip in range(count)}


def sip_links(machine: Machine, links: Iterable[Link], latency_ps: int) -> Chart | None:
    """The network between the SIPs, each direction of a link a line of its own; None where nothing crossed it."""
    used = _named(links, BETWEEN_SIPS)
    if not used:
        return None
    places = positions(machine)
    rows = []
    wraps = machine.topology.startswith("torus")
    for (start, end), link in (_named(_idle(machine.links_between_sips()), BETWEEN_SIPS) | used).items():
        a, b = places[start], places[end]
        if wraps and math.dist(a, b) > 1.5:
            rows += [_row(link, latency_ps, *stub, places) for stub in _stubs(a, b)]
        else:
            rows.append(_row(link, latency_ps, a, b, places))
    return _drawn(rows, places, "links between SIPs (simulated)")


def cube_links(machine: Machine, links: Iterable[Link], latency_ps: int) -> Chart | None:
    """The cube mesh of the SIP whose cubes were busiest, of a port's connections the busiest. None for none."""
    used = _named(links, BETWEEN_CUBES)
    if not used:
        return None
    busy: dict[str, int] = {}
    for (sip, *_), link in used.items():
        busy[sip] = busy.get(sip, 0) + link.busy_ps
    shown = max(busy, key=lambda sip: (busy[sip], -int(sip)))
    ports = _named(_idle(machine.links_between_cubes(int(shown))), BETWEEN_CUBES)
    ports |= {ends: link for ends, link in used.items() if ends[0] == shown}
    places: dict[str, Point] = {f"cube{cube}": divmod(cube, machine.cube_w)[::-1] for cube in range(machine.cubes)}
    rows = []
    for (_, cube, heading), link in ports.items():
        (x, y), (dx, dy) = places[cube], STEPS[heading]
        rows.append(_row(link, latency_ps, (x, y), (x + dx, y + dy), places))
    return _drawn(rows, places, f"links between the cubes of sip{shown} (simulated)")


def _named(links: Iterable[Link], pattern: re.Pattern[str]) -> dict[tuple[str, ...], Link]:
    """The links whose names match, by the groups of the match; of those with equal groups the busiest."""
    found: dict[tuple[str, ...], Link] = {}
    for link in links:
        if (ends := pattern.fullmatch(link.name)) is not None:
            found[ends.groups()] = max(found.get(ends.groups(), link), link, key=lambda link: link.busy_ps)
    return found


def _idle(names: Iterable[str]) -> list[Link]:
    """Links that nothing crossed."""
    return [Link(name, 0, 0, 0, 0, 0) for name in names]


def _scale(places: dict[str, Point]) -> float:
    """Pixels of a step."""
    xs = [p[0] for p in places.values()]
    return (WIDTH - 60) / (max(xs) - min(xs) + 2 * MARGIN)


def _row(link: Link, latency_ps: int, a: Point, b: Point, places: dict[str, Point]) -> Row:
    """A line beside the one of the opposite direction."""
    length = math.dist(a, b) or 1.0
    aside = ASIDE_PX / _scale(places)
    dx, dy = -(b[1] - a[1]) / length * aside, (b[0] - a[0]) / length * aside
    return {
        "x": a[0] + dx,
        "y": a[1] + dy,
        "x2": b[0] + dx,
        "y2": b[1] + dy,
        "link": link.name,
        "busy": link.busy_ps / max(latency_ps, 1),
        "messages": link.crossed,
        "waited_ns": link.waited_ps / 1000,
    }


def _stubs(a: Point, b: Point) -> Sequence[tuple[Point, Point]]:
    """A link that wraps round: out over one edge, in over the other."""
    dx, dy = (0.4 * ((p > q) - (p < q)) for p, q in ((a[0], b[0]), (a[1], b[1])))
    return (a, (a[0] + dx, a[1] + dy)), ((b[0] - dx, b[1] - dy), b)


def _drawn(rows: list[Row], places: dict[str, Point], title: str) -> Chart:
    xs, ys = [p[0] for p in places.values()], [p[1] for p in places.values()]
    high = max(ys) - min(ys) + 2 * MARGIN
    x = alt.Scale(domain=[min(xs) - MARGIN, max(xs) + MARGIN], nice=False, zero=False)
    y = alt.Scale(domain=[max(ys) + MARGIN, min(ys) - MARGIN], nice=False, zero=False)
    # Lines in use over idle ones.
    rows.sort(key=lambda row: row["messages"] > 0)
    named = [{"node": name, "x": px, "y": py} for name, (px, py) in places.items()]
    lines = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rule()
        .encode(
            x=alt.X("x:Q", axis=None, scale=x),
            y=alt.Y("y:Q", axis=None, scale=y),
            x2="x2:Q",
            y2="y2:Q",
            size=alt.condition("datum.messages > 0", alt.value(4), alt.value(1)),
            color=alt.Color(
                "busy:Q",
                title="busy",
                scale=alt.Scale(domain=[0, 0.25, 0.5, 1], range=USE),
                legend=alt.Legend(format=".0%", orient="right"),
            ),
            tooltip=[*tooltip("link:N"), alt.Tooltip("busy:Q", format=".1%"), *tooltip("messages:Q", "waited_ns:Q")],
        )
    )
    nodes = alt.Chart(alt.InlineData(values=named)).encode(x=alt.X("x:Q", scale=x), y=alt.Y("y:Q", scale=y))
    dots = nodes.mark_point(filled=True, size=160, color="#8a8a8a", opacity=1)
    names = nodes.mark_text(fontSize=9, align="left", dx=9, dy=-13, color="#8a8a8a").encode(text="node:N")
    shown = [lines, dots, names] if len(places) <= 100 else [lines]
    height = max(120, min(_scale(places) * high, WIDTH))
    return alt.layer(*shown).properties(width=WIDTH - 60, height=height, title=title)
