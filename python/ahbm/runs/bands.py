"""What is known of the error of a calibrated machine: the band of a run, and what to tell where there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ahbm._core import Machine
from ahbm.config.topology import COUNT


@dataclass(frozen=True)
class Band:
    """How far a machine was off, at sizes near a run's that were measured and held back from its fit."""

    percent: float
    """Mean error."""
    worst_percent: float
    """Largest error."""


def band(machine: Machine, collective: str, algorithm: str, ranks: int, nbytes: int) -> Band | None:
    """The band of a run of `nbytes` bytes of one rank's array; None where the machine is not calibrated for it."""
    if machine.bands is None or _changes(machine) or not _fitted(machine, collective, algorithm):
        return None
    rows = sorted(row for row in machine.bands if row[:2] == (collective, ranks))
    if not rows or not rows[0][2] <= nbytes <= max(row[3] for row in rows):
        return None
    # Between the last size of a decade and the first of the next, the nearer one's error holds.
    *_, mean, worst = min(rows, key=lambda row: max(row[2] / nbytes, nbytes / max(row[3], 1), 1.0))
    return Band(mean, worst)


def told(machine: Machine, collective: str, algorithm: str, ranks: int, nbytes: int) -> str | None:
    """The note of a run; None on machines that nothing was measured for."""
    if machine.bands is None:
        return None
    if changes := _changes(machine):
        keys = ", ".join(f"{key}={value}" for key, value in changes)
        return f"not the calibrated machine: it was changed by {keys}, and its error is not known"
    if not _fitted(machine, collective, algorithm):
        known = ", ".join(dict(machine.library)[collective])
        return f"calibrated with {known}: the error of {algorithm} is not known"
    found = band(machine, collective, algorithm, ranks, nbytes)
    if found is None:
        known = _ranges(machine.bands)
        return f"outside the calibrated range, which is {known}: the error is not known"
    percent = f"{found.percent:.1f} % on average, {found.worst_percent:.1f} % at worst"
    return f"calibrated: near this size, {percent}, of held-back measurements"


def _fitted(machine: Machine, collective: str, algorithm: str) -> bool:
    """Whether the measurements say something of the algorithm: the library's own were fitted to them."""
    return algorithm in dict(machine.library).get(collective, [algorithm])


def _changes(machine: Machine) -> list[tuple[str, str]]:
    """The overrides that make another machine of it; its size is a matter of the bands."""
    return [(key, value) for key, value in machine.overrides if key != COUNT]


def _ranges(rows: Iterable[tuple[str, int, int, int, float, float]]) -> str:
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    for collective, ranks, least, most, *_ in rows:
        before = ranges.get((collective, ranks), (least, most))
        ranges[collective, ranks] = min(before[0], least), max(before[1], most)
    told = [f"{kind} of {ranks} ranks and {low} to {high} B" for (kind, ranks), (low, high) in ranges.items()]
    return ", ".join(told) or "empty"
