"""Writes docs/accuracy.md and docs/accuracy.svg: machines fitted to every second row of tables, against the rest.

    python scripts/accuracy.py FOLDER     # CSV and nccl-tests text; by default what AHBM_CORPUS names

The tables are no part of this repository: what is written are errors, and the pictures of both curves.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from itertools import permutations
from math import floor, log10
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.interpolate import PchipInterpolator

from ahbm.calibrate import calibration, own, tables, written
from ahbm.calibrate.calibration import Calibrated
from ahbm.calibrate.judged import Error, errors
from ahbm.errors import AhbmError

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs/accuracy.md", ROOT / "docs/accuracy.svg"
W, H, COLUMNS = 260, 190, 4
FEWER = ("polaris_a100_n2_all_reduce_nccl2.18.csv", "polaris_a100_n8_all_reduce_nccl2.18.csv")
MORE = "polaris_a100_n256_all_reduce_nccl2.21.csv"
"""Tables of few ranks that a machine is fitted to, and one of many that it is tried on."""
BOXES: dict[str, tuple[str, ...]] = {
    "vultr_b200_1x8_all_reduce.csv": ("vultr_b200_1x8_all_gather.csv",),
    "gcp_a3mega_h100_2x8_all_reduce.csv": ("gcp_a3mega_h100_2x8_all_gather.csv",),
    "polaris_a100_n8_all_reduce_nccl2.18.csv": (
        "polaris_a100_n8_all_gather_nccl2.18.csv",
        "polaris_a100_n8_alltoall_nccl2.18.csv",
    ),
}
"""Tables of all-reduce, and those of other collectives of the same box."""
CLUSTERS: dict[str, tuple[str, ...]] = {
    "8 H100": ("aws_p5_h100_1x8_all_reduce.csv", "azure_nd_h100_1x8_all_reduce.csv"),
    "8 B200 or B300": ("vultr_b200_1x8_all_reduce.csv", "b300_1x8_all_reduce_default.csv"),
    "2 nodes of 8 A100, 1,600 Gb/s": ("sophia_a100_2x8_all_reduce.csv", "oci_a100_2x8_all_reduce.csv"),
    "2 nodes of 8 H100, 3,200 Gb/s": (
        "nebius_h100_2x8_all_reduce.csv",
        "aws_p5_h100_2x8_all_reduce_nccl2.20.csv",
    ),
}
"""Tables of clusters of one kind."""
NIC_GBS = {"gcp_a3mega_h100_2x8_all_reduce.csv": 25.0, "polaris_a100_n8_all_reduce_nccl2.18.csv": 12.5}
"""Of an accelerator's share of the network interfaces, where it is not the maker's."""
LARGE = 1 << 20
TWO = (1 << 10, 1 << 20)
"""Sizes of two rows of one's own."""


@dataclass(frozen=True)
class Measured:
    """A table, and what a machine that saw every second row says of the others."""

    table: tables.Table
    fitted: Calibrated
    seen: tables.Table
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

    @property
    def curves(self) -> np.ndarray:
        """Errors of a cubic through the rows that were seen, in logarithms, which keeps their order (PCHIP)."""
        seen = self.seen.rows
        curve = PchipInterpolator(np.log([one.bytes for one in seen]), np.log([one.us for one in seen]))
        us = np.exp(curve(np.log([one.bytes for one in self.held.rows])))
        return np.array(
            [100 * abs(at / one.us - 1) for at, one in zip(us, self.held.rows, strict=True) if one.measured]
        )


def measured(path: Path, first: bool = True) -> Measured:
    """One table, through the machine's file as a user has it. first: whether its first row is among those seen."""
    began = time.process_time()
    table = tables.read(path)
    seen, held = table.half(not first), table.half(first)
    fitted = calibration.calibrate([seen])
    seconds = time.process_time() - began
    emulator = written.emulator(fitted.tree)
    predicted = [written.us(emulator, table.collective, table.ranks, row.bytes) for row in held.rows]
    return Measured(table, fitted, seen, held, predicted, errors(held, seen, np.array(predicted)), seconds)


def kind(each: Measured) -> str:
    return "one node" if each.table.nodes == 1 else "two nodes" if each.table.nodes == 2 else "more nodes"


def row(each: Measured) -> str:
    free = sum(one.percent is not None for one in each.fitted.parameters)
    name = each.table.name.removesuffix(".csv")
    return (
        f"| {name} | {each.table.collective} | {each.table.ranks} | {len(each.held.rows)}"
        f" | {each.percents.mean():.1f} |"
        f" {np.median(each.percents):.1f} | {each.percents.max():.0f} | {each.lines.mean():.1f} |"
        f" {each.curves.mean():.1f}"
        f" | {free} |"
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


def summary(found: list[Measured], turned: list[Measured]) -> list[str]:
    """turned: the tables with those rows seen that the machines of `found` have not, and the other way round."""
    means = np.array([each.percents.mean() for each in found])
    lines = np.array([each.lines.mean() for each in found])
    curves = np.array([each.curves.mean() for each in found])
    sentences = [
        f"Of {len(found)} tables, {int((means <= 5).sum())} have a mean error of at most 5 %; the median over them is"
        f" {np.median(means):.1f} %. The straight line between the neighbours, on logarithmic axes, has"
        f" {int((lines <= 5).sum())} and {np.median(lines):.1f} %. A cubic that keeps their order (PCHIP) has"
        f" {int((curves <= 5).sum())} and {np.median(curves):.1f} %: over the sizes of one table, no machine is needed."
        " What it is for is below: other collectives, other clusters, more ranks. What its few parameters leave of the"
        " rows that were seen is a smooth curve ([factors](calibrate.md#what-is-fitted)), whose two numbers, how far it"
        " reaches and how much of a row is its own, were chosen for these tables.",
    ]
    for name in ("one node", "two nodes", "more nodes"):
        mine = [each for each in found if kind(each) == name]
        if mine:
            errors = np.concatenate([each.percents for each in mine])
            sentences.append(f"- {name}: median {np.median(errors):.1f} %, mean {errors.mean():.1f} %.")
    return [*sentences, "", both_ways(turned)]


def both_ways(turned: list[Measured]) -> str:
    means, lines, curves = (
        np.array([getattr(each, name).mean() for each in turned]) for name in ("percents", "lines", "curves")
    )
    of = ((means <= 5).sum(), len(turned), np.median(means))
    beside = [f"{int((each <= 5).sum())} and {np.median(each):.1f} %" for each in (lines, curves)]
    return (
        "The other way round, fitted to the second row, the fourth and so on, and run at the others, where the first"
        f" row is beyond all that was seen: {of[0]} of {of[1]} tables, and {of[2]:.1f} % in the median. The straight"
        f" line has {beside[0]}, PCHIP {beside[1]}. What costs most is a jump of the library's between two rows that"
        " are seen: no fit knows on which side of it the row between them is."
    )


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


def scaled(paths: dict[str, Path]) -> list[str]:
    """How far a machine that was fitted to few ranks is off on many."""
    began = time.process_time()
    fitted = calibration.calibrate([tables.read(paths[name]) for name in FEWER])
    seconds = time.process_time() - began
    table = tables.read(paths[MORE])
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
        " chosen knowing these rows; its numbers come from the few ranks alone, and the steps of LL start from NCCL's"
        " constants.",
        "",
        "| ranks | " + " | ".join(f"1e{decade}" for decade in all_) + " |",
        "|---" * (len(all_) + 1) + "|",
        f"| {table.ranks} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |",
        "",
        "From 2 to 8 MB the library takes Simple on many ranks where LL128 is quicker, which no row of few ranks says.",
    ]


def off_by(tree: dict, table: tables.Table) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of a table, and the errors of a machine in percent."""
    emulator = written.emulator(written.sized(tree, table.ranks))
    us = [written.us(emulator, table.collective, table.ranks, row.bytes) for row in table.rows]
    off = [100 * abs(at / row.us - 1) for at, row in zip(us, table.rows, strict=True)]
    return np.array([row.bytes for row in table.rows]), np.array(off)


def shares(sizes: np.ndarray, off: np.ndarray) -> str:
    """Cells of the mean of all, of those below 1 MiB, and of the others."""
    small, large = off[sizes < LARGE], off[sizes >= LARGE]
    return " | ".join(f"{each.mean():.1f}" if len(each) else "" for each in (off, small, large))


def boxes(paths: dict[str, Path]) -> list[str]:
    """How far machines that were fitted to all-reduce are off with other collectives of the same box."""
    lines = [
        "",
        "## Other collectives of the same box",
        "",
        "Machines that were fitted to all-reduce alone. What rings, and groups of sends and receives, take besides is"
        " NCCL's cost model's ([how](calibrate.md#other-collectives)).",
        "",
        "| fitted to | predicted | mean % | below 1 MiB | from 1 MiB on |",
        "|---|---|---|---|---|",
    ]
    for fitted, others in BOXES.items():
        if not {fitted, *others} <= paths.keys():
            continue
        tree = calibration.calibrate([tables.read(paths[fitted])], nic_gbs=NIC_GBS.get(fitted)).tree
        for name in others:
            cells = shares(*off_by(tree, tables.read(paths[name])))
            lines.append(f"| {fitted.removesuffix('.csv')} | {name.removesuffix('.csv')} | {cells} |")
    lines += [
        "",
        "Where messages between nodes go by another way from some size on, as on Polaris, no all-reduce says so.",
    ]
    return lines


def inside(tree: dict, table: tables.Table) -> str:
    """How many rows of a table are in the band of a machine of its kind."""
    bands, emulator, found = tree["calibration"]["bands"], written.emulator(written.sized(tree, table.ranks)), 0
    for row in table.rows:
        us = written.us(emulator, table.collective, table.ranks, row.bytes)
        band = min(bands, key=lambda of: max(of["from_bytes"] / row.bytes, row.bytes / of["to_bytes"], 1.0))
        found += us * (1 + band["low_percent"] / 100) <= row.us <= us * (1 + band["high_percent"] / 100)
    return f"{found} of {len(table.rows)}"


def apart(one: tables.Table, other: tables.Table) -> float:
    """Mean of what one table is off as a prediction of another, in percent, at the sizes of both."""
    us = {row.bytes: row.us for row in one.rows}
    return float(np.mean([100 * abs(us[row.bytes] / row.us - 1) for row in other.rows if row.bytes in us]))


def two_rows(tree: dict, table: tables.Table) -> str:
    """Cells of the other rows of a cluster of which two rows move a machine of its kind."""
    own_rows = {min(table.rows, key=lambda row: abs(log10(row.bytes / size))) for size in TWO}
    mine = replace(table, rows=tuple(row for row in table.rows if row in own_rows))
    rest = replace(table, rows=tuple(row for row in table.rows if row not in own_rows))
    with TemporaryDirectory() as folder:
        written.save(tree, Path(folder) / "prior.yaml")
        moved = own.calibrated([mine], Path(folder) / "prior.yaml").tree
    return f"{shares(*off_by(moved, rest))} | {inside(moved, rest)}"


def clusters(paths: dict[str, Path]) -> list[str]:
    """How far machines are off on other clusters of their kind, with and without rows of theirs, and how many rows
    their bands hold."""
    lines = [
        "",
        "## Other clusters of the same accelerator",
        "",
        "Machines that were fitted to one cluster, and the rows of another one. The band is what `ahbm calibrate`"
        " prints for eight of ten other clusters. Its widths are of these tables and a few more: they are not held back"
        " from it.",
        "",
        "| accelerators | fitted to | predicted | mean % | below 1 MiB | from 1 MiB on | rows in the band"
        " | the tables themselves, mean % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    own_rows = [
        "",
        "A machine that is true to one cluster is as far from another one as their tables are from each other (the last"
        " column): hosts and networks differ, and no row of the one says how. Two rows of the other one, at 1 KiB and"
        " 1 MiB, say most of that. These are the same machines, moved by"
        " [`--prior`](calibrate.md#clusters-of-one-kind), at all other rows. The form of what carries two rows on to"
        " other sizes was chosen on these tables, and on three of clusters with slower networks or another setup.",
        "",
        "| accelerators | fitted to | moved by two rows of | mean % | below 1 MiB | from 1 MiB on | rows in the band |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, names in CLUSTERS.items():
        for fitted, name in permutations(names, 2):
            if not {fitted, name} <= paths.keys():
                continue
            seen, table = tables.read(paths[fitted]), tables.read(paths[name])
            tree = calibration.calibrate([seen]).tree
            pair = f"| {kind} | {fitted.removesuffix('.csv')} | {name.removesuffix('.csv')} |"
            lines.append(f"{pair} {shares(*off_by(tree, table))} | {inside(tree, table)} | {apart(seen, table):.1f} |")
            own_rows.append(f"{pair} {two_rows(tree, table)} |")
    return [*lines, *own_rows]


HEAD = """# How far from real machines

`python scripts/accuracy.py FOLDER...` writes this page. For each table of measurements, a machine is fitted to every
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
- The library's own algorithms of all-reduce. The fits run rings, whose steps and bandwidths stand for trees and for
  switches that reduce. A fitted step or bandwidth of it is therefore effective, and can be above that of a wire.
- Sizes outside a table, and other numbers of ranks. Reports say so in a note.
"""


def main() -> int:
    folders = [Path(each) for each in sys.argv[1:] or [os.environ.get("AHBM_CORPUS", "")]]
    if not all(folder.is_dir() for folder in folders):
        print("name folders of tables, or set AHBM_CORPUS", file=sys.stderr)
        return 2
    files = {path.name: path for folder in folders for path in sorted(folder.iterdir())}
    found, turned = [], []
    for path in (files[name] for name in sorted(files) if Path(name).suffix in (".csv", ".txt", ".json")):
        try:
            found.append(measured(path))
            turned.append(measured(path, first=False))
        except AhbmError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        print(row(found[-1]), flush=True)
    page = [
        *summary(found, turned),
        "",
        "| table | collective | ranks | rows held back | mean % | median % | worst % | line between neighbours, mean %"
        " | PCHIP, mean %"
        " | free parameters | s of processor time |",
        "|---" * 11 + "|",
        *map(row, found),
        "",
        "Mean error in percent by the power of ten of the size in bytes:",
        "",
        *decades(found),
    ]
    page += boxes(files) + clusters(files)
    if {*FEWER, MORE} <= files.keys():
        page += scaled(files)
    print("\n".join(page[-50:]))
    PAGE.write_text(HEAD + "\n".join(page) + "\n" + TAIL, encoding="utf-8")
    PICTURE.write_text(picture(found), encoding="utf-8")
    print("\n".join(summary(found, turned) + decades(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
