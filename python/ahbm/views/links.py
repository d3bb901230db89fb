"""Links drawn where they are: the SIP network, and the cube mesh of the busiest SIP, coloured by use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import altair as alt

from ahbm.runs.explanation import Explanation, Link
from ahbm.views.charts import Chart, tooltip

if TYPE_CHECKING:
    from ahbm._core import Machine

Point = tuple[float, float]
Row = dict[str, Any]

STEP_PX = 62
"""Pixels from a place to the next one; a page shrinks the drawing where it has less room."""
LEAST_PX = 280
"""Width of a drawing of few places."""
ASIDE = 0.075
"""Half the distance between the two directions of a link, in steps of the grid."""
MARGIN = 0.6
"""Around the places, in steps of the grid."""
NODE, NODE_INK = "#dbe9ff", "#1b1f24"
LONG = 1.5
"""A straight line of more steps would run through places in between."""

BETWEEN_SIPS = re.compile(r"(sip\d+|switch)->(sip\d+|switch)")
BETWEEN_CUBES = re.compile(r"sip(\d+)\.(cube\d+)\.ucie_([NESW])\d+")
STEPS = {"N": (0, -1), "E": (1, 0), "S": (0, 1), "W": (-1, 0)}


def positions(machine: Machine) -> dict[str, Point]:
    """The position of each SIP in the drawing: grids as grids, their planes in a square; others on a circle.

    A hypercube is a grid too: rows and columns count in Gray code, so that most links lead to a neighbour.
    """
    count, w, h = machine.sips, machine.sip_w, machine.sip_h
    if machine.topology == "hypercube":
        bits = (count - 1).bit_length()
        low = 1 << (bits + 1) // 2
        return {f"sip{sip}": (_gray(sip % low), _gray(sip // low)) for sip in range(count)}
    if machine.topology.endswith("1d") or not w:
        if count == 2:
            return {"sip0": (0.0, 0.0), "sip1": (1.0, 0.0)}
        radius = max(1.0, count / 5)
        turn = [2 * math.pi * sip / count for sip in range(count)]
        around = {f"sip{sip}": (radius * math.sin(a), -radius * math.cos(a)) for sip, a in enumerate(turn)}
        return around | ({"switch": (0.0, 0.0)} if machine.topology == "switch" else {})
    plane = w * h
    beside = math.ceil(math.sqrt(-(-count // plane)))
    places = {}
    for sip in range(count):
        z = sip // plane
        places[f"sip{sip}"] = (sip % w + z % beside * (w + 0.6), sip // w % h + z // beside * (h + 0.6))
    return places


def _gray(code: int) -> int:
    """The position of a word in Gray code."""
    at = 0
    while code:
        at, code = at ^ code, code >> 1
    return at


def sip_links(machine: Machine, explanation: Explanation) -> Chart | None:
    """The network between the SIPs, each direction of a link a line of its own; None where nothing crossed it."""
    used, latency_ps = _named(explanation.links, BETWEEN_SIPS), explanation.latency_ps
    if not used:
        return None
    places = positions(machine)
    rows = []
    for (start, end), link in (_named(_idle(machine.links_between_sips()), BETWEEN_SIPS) | used).items():
        rows += _rows(link, latency_ps, *lines_of(machine, places, start, end))
    deep = "; links to other planes are slanted" if machine.sip_d > 1 else ""
    return _drawn(rows, places, f"links between SIPs (simulated){deep}")


def lines_of(machine: Machine, places: dict[str, Point], start: str, end: str) -> list[list[Point]]:
    """The lines that stand for the link between two places: one, or two stubs where it would cross others."""
    wraps = machine.topology.startswith("torus") or machine.topology == "hypercube"
    plane = machine.sip_w * machine.sip_h
    a, b = places[start], places[end]
    planes = [int(name[3:]) // plane if plane and name != "switch" else 0 for name in (start, end)]
    if planes[0] != planes[1]:
        ahead = 1 if planes[1] > planes[0] else -1
        return list(_stubs(a, b, (0.34 * ahead, -0.34 * ahead)))
    if wraps and math.dist(a, b) > LONG:
        return list(_stubs(a, b, _towards(b, a)))
    return [curve(a, b, bent=bool(machine.sip_w) and math.dist(a, b) > LONG)]


def cube_links(machine: Machine, explanation: Explanation) -> Chart | None:
    """The cube mesh of the SIP whose cubes were busiest, of a port's connections the busiest. None for none."""
    used, latency_ps = _named(explanation.links, BETWEEN_CUBES), explanation.latency_ps
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
        rows += _rows(link, latency_ps, curve((x, y), (x + dx, y + dy)))
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


def curve(a: Point, b: Point, bent: bool = False) -> list[Point]:
    """The line from a to b, beside that of the opposite direction; bent, it leads around the places in between."""
    length = math.dist(a, b) or 1.0
    dx, dy = -(b[1] - a[1]) / length, (b[0] - a[0]) / length
    points = 9 if bent else 2
    line = []
    for at in (index / (points - 1) for index in range(points)):
        out = ASIDE + (1.6 * at * (1 - at) if bent else 0)
        line.append((a[0] + (b[0] - a[0]) * at + dx * out, a[1] + (b[1] - a[1]) * at + dy * out))
    return line


def _towards(a: Point, b: Point) -> Point:
    """Most of half a step from a in the direction of b."""
    length = math.dist(a, b)
    return 0.46 * (b[0] - a[0]) / length, 0.46 * (b[1] - a[1]) / length


def _stubs(a: Point, b: Point, out: Point) -> tuple[list[Point], list[Point]]:
    """A link that would cross others: out of one place, into the other."""
    return curve(a, (a[0] + out[0], a[1] + out[1])), curve((b[0] - out[0], b[1] - out[1]), b)


def _rows(link: Link, latency_ps: int, *lines: list[Point]) -> list[Row]:
    """The points of the lines that stand for a link, each with the direction that it is reached in, in degrees."""
    facts = {
        "link": link.name,
        "busy": link.busy_ps / max(latency_ps, 1),
        "messages": link.crossed,
        "waited_ns": link.waited_ps / 1000,
    }
    rows = []
    for part, line in enumerate(lines):
        middle = len(line) // 2
        (x0, y0), (x1, y1) = line[middle - 1], line[middle]
        arrow = {
            "ax": x0 + 0.62 * (x1 - x0) if len(line) == 2 else x1,
            "ay": y0 + 0.62 * (y1 - y0) if len(line) == 2 else y1,
            "turn": round(math.degrees(math.atan2(x1 - x0, y0 - y1)), 1),
        }
        for order, (x, y) in enumerate(line):
            row = facts | {"line": f"{link.name}/{part}", "order": order, "x": round(x, 3), "y": round(y, 3)}
            rows.append(row | arrow if order == 0 else row)
    return rows


def _drawn(rows: list[Row], places: dict[str, Point], title: str) -> Chart:
    xs, ys = [p[0] for p in places.values()], [p[1] for p in places.values()]
    wide, high = (max(axis) - min(axis) + 2 * MARGIN for axis in (xs, ys))
    x = alt.Scale(domain=[min(xs) - MARGIN, max(xs) + MARGIN], nice=False, zero=False)
    y = alt.Scale(domain=[max(ys) + MARGIN, min(ys) - MARGIN], nice=False, zero=False)
    # Lines in use over idle ones.
    rows.sort(key=lambda row: row["messages"] > 0)
    legend = alt.Legend(type="gradient", format=".2~p", orient="bottom", gradientLength=200)
    # No range: who draws it gives it, on light ground darker where busy, on dark ground lighter.
    busy = alt.Color("busy:Q", title="busy, part of the time", scale=alt.Scale(domainMin=0), legend=legend)
    tooltips = [*tooltip("link:N"), alt.Tooltip("busy:Q", format=".1%"), *tooltip("messages:Q", "waited_ns:Q")]
    drawn = alt.Chart(alt.InlineData(values=rows))
    in_use = drawn.transform_filter("datum.messages > 0")
    at = {"x": alt.X("x:Q", axis=None, scale=x), "y": alt.Y("y:Q", axis=None, scale=y), "tooltip": tooltips}
    lines = {"detail": alt.Detail("line:N"), "order": alt.Order("order:Q"), **at}
    idle = drawn.transform_filter("datum.messages == 0").mark_line(strokeWidth=1, strokeDash=[2, 3], color="#8a94a0")
    used = in_use.mark_line(strokeWidth=4)
    heads = in_use.transform_filter("datum.order == 0").mark_point(shape="triangle", filled=True, size=90, opacity=1)
    arrows = {"angle": alt.Angle("turn:Q", scale=None), "x": alt.X("ax:Q", scale=x), "y": alt.Y("ay:Q", scale=y)}
    named = [{"node": re.sub("sip|cube", "", name), "x": px, "y": py} for name, (px, py) in places.items()]
    nodes = alt.Chart(alt.InlineData(values=named)).encode(x=alt.X("x:Q", scale=x), y=alt.Y("y:Q", scale=y))
    boxes = nodes.mark_square(size=620, color=NODE, stroke="#8a94a0", strokeWidth=1, opacity=1)
    names = nodes.mark_text(fontSize=12, color=NODE_INK).encode(text="node:N")
    shown = [idle.encode(**lines), used.encode(color=busy, **lines), heads.encode(color=busy, **{**at, **arrows})]
    chart: Chart = alt.layer(*shown, boxes, names)
    step = max(STEP_PX, LEAST_PX / wide)
    return chart.properties(width=round(step * wide), height=round(step * high), title=title, autosize="pad")
