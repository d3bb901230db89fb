"""Writes docs/accuracy.md and docs/accuracy.svg: machines fitted to every second row of tables, against the rest.

    python scripts/accuracy.py FOLDER     # CSV and nccl-tests text; by default what AHBM_CORPUS names

The tables are no part of this repository: what is written are errors, and the pictures of both curves.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path

import numpy as np

from ahbm.calibrate import calibration, tables, written
from ahbm.calibrate.calibration import Calibrated
from ahbm.calibrate.judged import Error, errors
from ahbm.errors import AhbmError

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs/accuracy.md", ROOT / "docs/accuracy.svg"
W, H, COLUMNS = 260, 190, 4
FEWER = ("polaris_a100_n2_all_reduce_nccl2.18.csv", "polaris_a100_n8_all_reduce_nccl2.18.csv")
MORE = "polaris_a100_n256_all_reduce_nccl2.21.csv"
"""Tables of few ranks that a machine is fitted to, and one of many that it is tried on."""


@dataclass(frozen=True)
class Measured:
    """A table, and what a machine that saw every second row says of the others."""

    table: tables.Table
    fitted: Calibrated
    held: tables.Table
    predicted: list[float]
    errors: list[Error]
    seconds: float

    @property
    def percents(self) -> np.ndarray:
        return np.array([each.percent for each in self.errors])

    @property
    def lines(self) -> np.ndarray:
        return np.array([each.interpolated for each in self.errors])


def measured(path: Path) -> Measured:
    """One table, through the machine's file as a user has it."""
    began = time.process_time()
    table = tables.read(path)
    seen, held = table.half(False), table.half(True)
    fitted = calibration.calibrate([seen])
    seconds = time.process_time() - began
    emulator = written.emulator(fitted.tree)
    predicted = [written.us(emulator, table.collective, table.ranks, row.bytes) for row in held.rows]
    return Measured(table, fitted, held, predicted, errors(held, seen, np.array(predicted)), seconds)


def kind(each: Measured) -> str:
    return "one node" if each.table.nodes == 1 else "two nodes" if each.table.nodes == 2 else "more nodes"


def row(each: Measured) -> str:
    free = sum(one.percent is not None for one in each.fitted.parameters)
    name = each.table.name.removesuffix(".csv")
    return (
        f"| {name} | {each.table.collective} | {each.table.ranks} | {len(each.held.rows)}"
        f" | {each.percents.mean():.1f} |"
        f" {np.median(each.percents):.1f} | {each.percents.max():.0f} | {each.lines.mean():.1f} | {free} |"
        f" {each.seconds:.0f} |"
    )


def decades(found: list[Measured]) -> list[str]:
    all_ = sorted({floor(log10(error.bytes)) for each in found for error in each.errors})
    lines = ["| machines | " + " | ".join(f"1e{decade}" for decade in all_) + " |", "|---" * (len(all_) + 1) + "|"]
    for name in ("one node", "two nodes", "more nodes"):
        cells = []
        for decade in all_:
            mine = [
                error.percent
                for each in found
                if kind(each) == name
                for error in each.errors
                if floor(log10(error.bytes)) == decade
            ]
            cells.append(f"{np.mean(mine):.1f}" if mine else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def summary(found: list[Measured]) -> list[str]:
    means = np.array([each.percents.mean() for each in found])
    lines = np.array([each.lines.mean() for each in found])
    sentences = [
        f"Of {len(found)} tables, {int((means <= 5).sum())} have a mean error of at most 5 %; the median over them is"
        f" {np.median(means):.1f} %. The straight line between the neighbours, on logarithmic axes, has"
        f" {int((lines <= 5).sum())} and {np.median(lines):.1f} %.",
    ]
    for name in ("one node", "two nodes", "more nodes"):
        mine = [each for each in found if kind(each) == name]
        if mine:
            errors = np.concatenate([each.percents for each in mine])
            sentences.append(f"- {name}: median {np.median(errors):.1f} %, mean {errors.mean():.1f} %.")
    return sentences


def picture(found: list[Measured]) -> str:
    rows = -(-len(found) // COLUMNS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * W} {rows * H}" font-family="sans-serif"'
        ' font-size="9">',
        f'<rect width="{COLUMNS * W}" height="{rows * H}" fill="#fff"/>',
    ]
    for number, each in enumerate(found):
        left, top = number % COLUMNS * W, number // COLUMNS * H
        x = np.log10([one.bytes for one in each.table.rows])
        y = np.log10([one.us for one in each.table.rows])
        p = np.log10(each.predicted)
        low, high = min(y.min(), p.min()), max(y.max(), p.max())

        across = (W - 24) / max(x.max() - x.min(), 1e-9)
        up = (H - 46) / max(high - low, 1e-9)

        def at(bytes_: float, us: float, to: tuple[float, ...] = (left, top, across, up, x.min(), low)) -> str:
            return f"{to[0] + 12 + (bytes_ - to[4]) * to[2]:.1f},{to[1] + H - 22 - (us - to[5]) * to[3]:.1f}"

        name = each.table.name.removesuffix(".csv")
        parts.append(f'<text x="{left + 10}" y="{top + 13}">{name}: {each.percents.mean():.1f} %</text>')
        ends = f"{each.table.rows[0].bytes} to {each.table.rows[-1].bytes} B, {10**low:.0f} to {10**high:.0f} us"
        parts.append(f'<text x="{left + 10}" y="{top + H - 6}" fill="#666">{ends}</text>')
        for bytes_, us in zip(x, y, strict=True):
            cx, cy = at(bytes_, us).split(",")
            parts.append(f'<circle cx="{cx}" cy="{cy}" r="2" fill="#888"/>')
        line = " ".join(at(np.log10(one.bytes), us) for one, us in zip(each.held.rows, p, strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="#c33" stroke-width="1.2"/>')
    return "\n".join([*parts, "</svg>", ""])


def scaled(folder: Path) -> list[str]:
    """How far a machine that was fitted to few ranks is off on many."""
    began = time.process_time()
    fitted = calibration.calibrate([tables.read(folder / name) for name in FEWER])
    seconds = time.process_time() - began
    table = tables.read(folder / MORE)
    emulator = written.emulator(written.sized(fitted.tree, table.ranks))
    off = [
        (row.bytes, 100 * abs(written.us(emulator, table.collective, table.ranks, row.bytes) / row.us - 1))
        for row in table.rows
    ]
    all_ = sorted({floor(log10(nbytes)) for nbytes, _ in off})
    cells = [np.mean([percent for nbytes, percent in off if floor(log10(nbytes)) == decade]) for decade in all_]
    percents = np.array([percent for _, percent in off])
    free = sum(one.percent is not None for one in fitted.parameters)
    fewer = " and ".join(str(judged.table.ranks) for judged in fitted.judged)
    return [
        "",
        "## On more ranks",
        "",
        f"A machine that is fitted to all-reduce on {fewer} ranks of Polaris, with {free} free parameters in"
        f" {seconds:.0f} s of processor time, is off by {percents.mean():.1f} % on average on {table.ranks:,} ranks, by"
        f" {np.median(percents):.1f} % in the median. The form of its law, trees below a border and rings above it, was"
        " chosen knowing these rows; its numbers come from the few ranks alone.",
        "",
        "| ranks | " + " | ".join(f"1e{decade}" for decade in all_) + " |",
        "|---" * (len(all_) + 1) + "|",
        f"| {table.ranks} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |",
        "",
        "From 2 to 8 MB the library takes Simple on many ranks where LL128 is quicker, which no row of few ranks says.",
    ]


HEAD = """# How far from real machines

`python scripts/accuracy.py FOLDER` writes this page. For each table of measurements, a machine is fitted to every
second row ([how](calibrate.md)). It is then run at the other rows, which it has not seen. The error of a row is
|predicted / measured - 1|.

"""

TAIL = """
![predicted and measured times](accuracy.svg)

Grey points are measured, red lines predicted, both on logarithmic axes.

## Beside other tools

| tool | stated error | on what |
|---|---|---|
| ASTRA-sim | 3 to 11 %, 10 to 21 % | rings on V100 and HGX-H100, parameters from the same measurements |
| ATLAHS | below 5 % | whole applications |
| SimAI | 1.9 % | mean deviation |
| Echo | 8 % | training steps |
| WSE-2's model | below 4 % | closed forms of a wafer |

None of them states errors at sizes that were held back, or by size.

## What is not modelled

- Noise. The same machine measured twice differs by 1 % above 1 MiB and by 4 to 10 % below.
- A choice of the library that depends on more than the size: a bump of a single row stays unknown until it is measured.
- What other jobs do on the same network. Tables of large machines have rows of two kinds, disturbed and not.
- The library's own algorithms. The fits run rings, whose steps and bandwidths stand for trees and for switches that
  reduce. A fitted step or bandwidth is therefore effective, and can be above that of a wire.
- Sizes outside a table, and other numbers of ranks. Reports say so in a note.
"""


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("AHBM_CORPUS", ""))
    if not folder.is_dir():
        print("name a folder of tables, or set AHBM_CORPUS", file=sys.stderr)
        return 2
    found = []
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".csv", ".txt", ".json")):
        try:
            found.append(measured(path))
        except AhbmError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        print(row(found[-1]), flush=True)
    page = [
        *summary(found),
        "",
        "| table | collective | ranks | rows held back | mean % | median % | worst % | line between neighbours, mean %"
        " | free parameters | s of processor time |",
        "|---" * 10 + "|",
        *map(row, found),
        "",
        "Mean error in percent by the power of ten of the size in bytes:",
        "",
        *decades(found),
    ]
    if all((folder / name).exists() for name in (*FEWER, MORE)):
        page += scaled(folder)
        print("\n".join(page[-3:]))
    PAGE.write_text(HEAD + "\n".join(page) + "\n" + TAIL, encoding="utf-8")
    PICTURE.write_text(picture(found), encoding="utf-8")
    print("\n".join(summary(found) + decades(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
