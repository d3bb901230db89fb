"""Draws the pictures of README.md, in `docs/pictures`; `--check` only compares, and exits with 1 where one is old.

    python scripts/pictures.py [--check]

`timeline` is a run on the machine at the top of the repository: what each PE does, and the critical path. `machine` is
that machine from outside to inside. Both are drawn on white and on black.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

import yaml

import ahbm
from ahbm._core import Machine, categories
from ahbm.config.topology import load_machine
from ahbm.runs.explanation import Explanation
from ahbm.views.colors import CATEGORIES

ROOT = Path(__file__).resolve().parent.parent
FOLDER, TOPOLOGY = ROOT / "docs" / "pictures", ROOT / "topology.yaml"
ALGORITHM, BYTES_PER_PE = "lrab_hierarchical_allreduce", 16384
WIDTH = 880
INKS = {
    "light": {
        **{"paper": "#ffffff", "ink": "#1b1b1b", "dim": "#5f6368", "line": "#d8dbe0", "mark": "#c22520"},
        **{"sip": "#dbe9ff", "cube": "#f1f4f8", "pe": "#2f6fde", "edge": "#8a94a0", "on": "#ffffff", "io": "#f6d9a8"},
    },
    "dark": {
        **{"paper": "#0d1117", "ink": "#e8eaed", "dim": "#a0a6ae", "line": "#363b43", "mark": "#ff6b62"},
        **{"sip": "#1f3a63", "cube": "#1d232b", "pe": "#6ea2ff", "edge": "#6b7683", "on": "#12161b", "io": "#6b4d1c"},
    },
}
Ink = dict[str, str]


def document(height: float, ink: Ink, title: str, shapes: Iterator[str]) -> str:
    """An SVG on paper of its own, so that it can be read on any page."""
    rules = {
        "text": f'font:13px system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:{ink["ink"]}',
        ".d": f"fill:{ink['dim']};font-size:12px",
        ".h": "font-weight:600;font-size:15px",
        ".b": "font-weight:600",
        ".s": "font-size:12px",
        ".m": "text-anchor:middle",
        ".e": "text-anchor:end",
        ".p": f"fill:{ink['on']};font-size:11px;text-anchor:middle",
    }
    style = "".join(f"{name}{{{rule}}}" for name, rule in rules.items())
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}><title>{escape(title)}</title>'
    paper = box(0, 0, WIDTH, height, ink["paper"], ' rx="8"')
    return "\n".join([head, f"<style>{style}</style>", paper, *shapes, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{more}/>'


def line(points: str, colour: str, more: str = "") -> str:
    return f'<path d="{points}" stroke="{colour}" fill="none"{more}/>'


LEFT, TOP, LANE, GAP, RIGHT, LEGEND = 118, 110, 17, 7, 20, 5
"""Of the timeline: where its lanes begin and end, the height of one, the gap between SIPs, and the words in a row."""


def timeline(ink: Ink, why: Explanation) -> str:
    """A lane for each PE, coloured by what its time is spent on, and the critical path across the lanes."""
    kinds, scale = categories(), (WIDTH - LEFT - RIGHT) / why.latency_ps
    at = [tuple(map(int, re.findall(r"\d+", place))) for place in why.places]
    sips = sorted({sip for sip, *_ in at})
    tops = [TOP + lane * LANE + sips.index(sip) * GAP for lane, (sip, *_) in enumerate(at)]
    foot = tops[-1] + LANE
    title = f"{ALGORITHM} over {len(sips)} packages of {len(at) // len(sips)} cubes"
    shares = [f"{100 * ps / why.latency_ps:.0f} % {name}" for name, ps in list(why.by_category.items())[:3]]

    def x(ps: int) -> float:
        return LEFT + ps * scale

    def shapes() -> Iterator[str]:
        yield text(20, 30, title, "h")
        yield text(
            20,
            52,
            f"{why.latency_ps / 1e6:.2f} us, simulated. A row is a processing element, coloured by what it does.",
            "d",
        )
        yield text(
            20,
            70,
            f"The red line is the critical path, the steps that make up the whole time: {', '.join(shares)}.",
            "d",
        )
        for ps in range(0, why.latency_ps, 500_000):
            yield line(f"M{x(ps):.1f} {TOP - 6}V{foot + 4}", ink["line"])
            yield text(x(ps) + 3, TOP - 10, f"{ps / 1e6:g} us", "d")
        used: dict[str, int] = {}
        for lane, (sip, cube, _) in enumerate(at):
            if cube == 0:
                yield text(20, tops[lane] + 13, f"SIP {sip}", "b")
            yield text(LEFT - 8, tops[lane] + 13, f"cube {cube}", "d e")
            for start, end, _, category in zip(*map(list, why.intervals(lane)), strict=True):
                name, length = kinds[int(category)], int(end) - int(start)
                used[name] = used.get(name, 0) + length
                idle = ' opacity="0.35"' if name.startswith(("waiting", "idle")) else ""
                yield box(x(int(start)), tops[lane] + 2, max(length * scale, 0.3), LANE - 4, CATEGORIES[name], idle)
        steps = [
            f"{x(int(start)):.1f} {tops[int(agent)] + LANE - 2:g}H{x(int(end)):.1f}"
            for start, end, agent, *_ in zip(*map(list, why.path), strict=True)
        ]
        for colour, wide in ((ink["paper"], 5.5), (ink["mark"], 2.5)):
            yield line(f"M{'L'.join(steps)}", colour, f' stroke-width="{wide}" stroke-linejoin="round"')
        names = sorted(used, key=lambda name: -used[name])
        for nth, name in enumerate(names):
            left, below = 20 + nth % LEGEND * 168, foot + 20 + nth // LEGEND * 20
            yield box(left, below, 11, 11, CATEGORIES[name])
            yield text(left + 16, below + 10, name, "d")

    return document(foot + 68, ink, f"Timeline of {title}", shapes())


def machine(ink: Ink, shown: Machine) -> str:
    """The SIPs and their links, one SIP with its cubes, and one cube with its PEs, side by side."""
    said = yaml.safe_load(TOPOLOGY.read_text(encoding="utf-8"))
    link, ucie, tcm = said["system"]["sips"]["link"], said["cube"]["ucie"], said["pe"]["tcm"]
    top, side, edge = 92, 200, f' stroke="{ink["edge"]}"'
    lefts = (24, 334, 650)

    def head(at: int, name: str, about: str, more: str) -> Iterator[str]:
        yield text(lefts[at], 30, name, "h")
        yield text(lefts[at], 50, about, "d")
        yield text(lefts[at], 68, more, "d")

    def shapes() -> Iterator[str]:
        yield from head(
            0, f"{shown.sips} SIPs", "packages; one is one rank, like a GPU", f"links of {link['bandwidth_gbs']} GB/s"
        )
        middle, around = (lefts[0] + side / 2, top + side / 2), side / 2 - 24
        turns = [math.tau * (sip / shown.sips - 1 / 4) for sip in range(shown.sips)]
        spots = [(middle[0] + around * math.cos(turn), middle[1] + around * math.sin(turn)) for turn in turns]
        for (x1, y1), (x2, y2) in zip(spots, spots[1:] + spots[:1], strict=True):
            yield line(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", ink["edge"], ' stroke-width="2"')
        for sip, (x, y) in enumerate(spots):
            yield box(x - 24, y - 24, 48, 48, ink["sip"], f' rx="6"{edge}')
            yield text(x, y + 5, f"SIP {sip}", "m")

        carried = ucie["connections"] * ucie["bandwidth_gbs"]
        yield from head(
            1, f"{shown.cubes} cubes in a SIP", "HBM stacks with processors below", f"{carried} GB/s to the next one"
        )
        yield box(lefts[1], top, side, side, ink["sip"], f' rx="8"{edge}')
        yield box(lefts[1] + 10, top + 8, side - 20, 18, ink["io"], f' rx="4"{edge}')
        yield text(lefts[1] + side / 2, top + 21.5, "I/O, to other SIPs", "m s")
        wide, high = (side - 20) / shown.cube_w, (side - 44) / shown.cube_h
        for cube in range(shown.cubes):
            column, row = cube % shown.cube_w, cube // shown.cube_w
            x, y = lefts[1] + 10 + column * wide, top + 34 + row * high
            if column + 1 < shown.cube_w:
                yield line(f"M{x + wide / 2:.1f} {y + high / 2:.1f}h{wide:.1f}", ink["edge"], ' stroke-width="2"')
            if row + 1 < shown.cube_h:
                yield line(f"M{x + wide / 2:.1f} {y + high / 2:.1f}v{high:.1f}", ink["edge"], ' stroke-width="2"')
        for cube in range(shown.cubes):
            x = lefts[1] + 10 + cube % shown.cube_w * wide
            y = top + 34 + cube // shown.cube_w * high
            yield box(x + 7, y + 5, wide - 14, high - 10, ink["cube"], f' rx="5"{edge}')
            yield text(x + wide / 2, y + high / 2 + 5, f"cube {cube}", "m")

        about = "each runs the kernel, like an SM"
        yield from head(
            2, f"{shown.pes} PEs in a cube", about, f"{tcm['mb']} MB of their own at {tcm['bandwidth_gbs']} GB/s"
        )
        yield box(lefts[2], top, side, side, ink["cube"], f' rx="8"{edge}')
        yield box(lefts[2] + 62, top + 62, side - 124, side - 124, ink["paper"], f' rx="5"{edge}')
        yield text(lefts[2] + side / 2, top + side / 2 + 5, "HBM", "m")
        corner = shown.pes // 4
        for pe in range(shown.pes):
            at, nth = divmod(pe, corner)
            x = lefts[2] + 10 + nth * 42 if at % 2 == 0 else lefts[2] + side - 10 - 36 - nth * 42
            y = top + 10 if at < 2 else top + side - 46
            yield box(x, y, 36, 36, ink["pe"], ' rx="4"')
            yield text(x + 18, y + 22, f"PE {pe}", "p")

        for at in (0, 1):
            whole = (spots[1][0] + 24, spots[1][1] - 24, 48.0)
            if at == 1:
                whole = (lefts[1] + side - 17, top + 39, high - 10)
            for y, to in ((whole[1], top), (whole[1] + whole[2], top + side)):
                yield line(f"M{whole[0]:.1f} {y:.1f}L{lefts[at + 1]} {to}", ink["edge"], ' stroke-dasharray="3 4"')

    return document(top + side + 24, ink, f"{shown.sips} SIPs of {shown.cubes} cubes of {shown.pes} PEs", shapes())


def pictures() -> dict[Path, str]:
    """The text of every picture, by its path."""
    shown = load_machine(TOPOLOGY)
    rows = ahbm.DPPolicy(cube="row_wise")
    report = ahbm.run("all_reduce", ALGORITHM, topology=shown, bytes_per_pe=BYTES_PER_PE, placement=rows, data=False)
    why = report.explain()
    found = {}
    for theme, ink in INKS.items():
        found[FOLDER / f"timeline-{theme}.svg"] = timeline(ink, why)
        found[FOLDER / f"machine-{theme}.svg"] = machine(ink, shown)
    return found


def main(*given: str) -> int:
    old = []
    for path, drawn in pictures().items():
        if path.exists() and path.read_text(encoding="utf-8") == drawn:
            continue
        old.append(path.name)
        if "--check" not in given:
            path.parent.mkdir(exist_ok=True)
            path.write_text(drawn, encoding="utf-8")
    if old and "--check" in given:
        print(f"out of date: {', '.join(old)}; run python scripts/pictures.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
