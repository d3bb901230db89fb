"""`ahbm compare recorded.json predicted.et`: what the device did in two traces, operation by operation.

Each is a trace of PyTorch's profiler, a job as `ahbm.torch` records it, whose kernels take what a machine says, or a
timeline of such a job that `ahbm run --trace FILE.json` has written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ahbm._core import Machine, Workload, is_pytorch_trace, kernels_of, read_profile, trace_sort
from ahbm.base.load import is_prefix
from ahbm.calibrate.readers.operations import of_operations
from ahbm.errors import FormatError, Site

NEITHER = "neither a trace of PyTorch's profiler nor a job of Chakra"
SAME = 0.02
"""Part of an operation's time by which counts or times differ without a word."""


ALIKE = {
    "to": "copy", "_to_copy": "copy", "contiguous": "copy", "clone": "copy", "reshape": "copy", "type_as": "copy",
    "index_select": "embedding", "embedding_backward": "embedding_dense_backward", "zero": "fill", "zeros": "fill",
    "zeros_like": "fill", "ones_like": "fill", "new_zeros": "fill", "full": "fill", "full_like": "fill",
    "relu": "clamp_min", "argsort": "sort",
}  # fmt: skip
"""Operations that go by several names, and the name of all."""
MOST_STEPS = 64
"""Steps of a trace that are told from a fraction."""


def label(name: str) -> str:
    """What operations that do the same are called: in place or not, whichever backend."""
    plain = name.rstrip("_") or name
    if "attention" in plain or "conv" in plain:
        what = "attention" if "attention" in plain else "convolution"
        return f"{what}_backward" if "backward" in plain else what
    return ALIKE.get(plain, plain)


@dataclass(frozen=True)
class Side:
    """What the device did in one trace, by operation."""

    name: str
    took: Mapping[str, tuple[int, float]]
    """Kernels, and us that they take together."""


@dataclass(frozen=True)
class Row:
    """An operation in both traces; numbers of the first are those of as many steps as the second has."""

    operation: str
    kernels: tuple[float, float]
    us: tuple[float, float]

    @property
    def more(self) -> float:
        """us of the second beyond the first."""
        return self.us[1] - self.us[0]

    @property
    def by_count(self) -> float:
        """The part of `more` that is of more kernels, each as long as those of the first; else as those of the
        second."""
        each = self.us[0] / self.kernels[0] if self.kernels[0] else self.us[1] / self.kernels[1]
        return (self.kernels[1] - self.kernels[0]) * each

    @property
    def cause(self) -> str:
        """Where the difference is: "only first", "only second", "kernels", "time" or "same"."""
        if not self.kernels[0] or not self.kernels[1]:
            return "only second" if not self.kernels[0] else "only first"
        if abs(self.more) <= SAME * max(self.us):
            return "same"
        return "kernels" if abs(self.by_count) > abs(self.more - self.by_count) else "time"

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        return {
            "operation": self.operation,
            "kernels": [round(each, 3) for each in self.kernels],
            "us": [round(each, 3) for each in self.us],
            "more_us": round(self.more, 3),
            "by_kernels_us": round(self.by_count, 3),
            "cause": self.cause,
        }


@dataclass(frozen=True)
class Aligned:
    """Two traces beside each other."""

    sides: tuple[Side, Side]
    rows: tuple[Row, ...]
    """Those that differ the most first."""
    times: Fraction
    """Steps of the first for each of the second."""

    @property
    def total(self) -> Row:
        """All operations."""
        sums = [[sum(getattr(row, key)[side] for row in self.rows) for side in (0, 1)] for key in ("kernels", "us")]
        return Row("all", (sums[0][0], sums[0][1]), (sums[1][0], sums[1][1]))

    def text(self) -> str:
        """For people."""
        lines = [
            f"# {self.sides[0].name} and {self.sides[1].name}",
            f"{'# operation':<40} {'kernels':>8} {'kernels':>8} {'us':>11} {'us':>11} {'more us':>11}  by",
        ]
        for row in (*self.rows, self.total):
            (a, b), (x, y) = row.kernels, row.us
            lines.append(
                f"{row.operation[:40]:<40} {a:>8.6g} {b:>8.6g} {x:>11.1f} {y:>11.1f} {row.more:>+11.1f}  {row.cause}"
            )
        if self.times != 1:
            (first, second), steps = (side.name for side in self.sides), self.times
            ratio = f"{steps.numerator} steps for {steps.denominator} of {second}"
            lines.append(f"note: {first} has {ratio}: its numbers are divided by that")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        return {
            "files": [side.name for side in self.sides],
            "steps": [self.times.numerator, self.times.denominator],
            "all": self.total.to_json(),
            "operations": [row.to_json() for row in self.rows],
        }


def is_trace(path: str | Path) -> bool:
    """Whether a file, or the prefix of files, is named as a trace."""
    return is_pytorch_trace(str(path)) or str(path).endswith(".et") or is_prefix(path)


def read(path: str | Path, machine: Machine) -> Side:
    """What the device of a trace did; in a job, rank 0 on `machine`, where no duration is stated.

    Raises FormatError (AHBM-F210) for what is no such trace, ConfigError (AHBM-C193) for a machine that does not say
    what it computes at, and as `read_profile` and `Workload.read`.
    """
    found: dict[str, tuple[int, float]] = {}

    def add(name: str, kernels: int, took: float) -> None:
        count, us = found.get(label(name), (0, 0.0))
        found[label(name)] = count + kernels, us + took

    if is_pytorch_trace(str(path)):
        for name, took in of_operations(read_profile(str(path))).items():
            add(name, *took)
        return Side(Path(path).name, found)
    if trace_sort(str(path)) not in ("job", "either"):
        raise FormatError("AHBM-F210", f"{path} is {NEITHER}", sites=(Site("file", str(path)),))
    kernels = kernels_of(Workload.read(str(path)), 0)
    for (name, stated, _), ps in zip(kernels, machine.kernels_ps([of for _, _, of in kernels]), strict=True):
        add(name, 1, (stated or ps) / 1e6)
    return Side(Path(path).name, found)


def aligned(first: Side, second: Side) -> Aligned:
    """Operations of two traces by their names. How many steps the first has for one of the second is what most of them
    say by their numbers."""
    both = sorted(first.took.keys() & second.took.keys())
    ratios = [log(first.took[name][0] / second.took[name][0]) for name in both]
    middle = float(np.exp(median(ratios))) if ratios else 1.0
    # Both have whole steps.
    times = Fraction(middle).limit_denominator(MOST_STEPS) if 1 / MOST_STEPS <= middle <= MOST_STEPS else Fraction(1)
    rows = []
    for name in sorted(first.took.keys() | second.took.keys()):
        (a, x), (b, y) = (side.took.get(name, (0, 0.0)) for side in (first, second))
        rows.append(Row(name, (float(a / times), float(b)), (x / float(times), y)))
    return Aligned((first, second), tuple(sorted(rows, key=lambda row: (-abs(row.more), row.operation))), times)


def difference(paths: Sequence[str | Path], machine: Machine) -> Aligned:
    """Two traces beside each other. Raises as `read`."""
    first, second = (read(path, machine) for path in paths)
    return aligned(first, second)
