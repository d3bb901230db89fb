"""What is known of the error of a calibrated machine: the band of a run, and what to tell where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ahbm._core import Machine
from ahbm.config.topology import COUNT

_NEAR, _CHANGED, _CHOSEN, _OTHER, _OUTSIDE = (
    "calibrated: near",
    "not the calibrated machine",
    "not the library's own choice",
    "calibrated with",
    "outside the calibrated range",
)
"""Beginnings of notes, by kind."""
_BY, _NOT_KNOWN = ": the error of ", " is not known"
_HELD = ", of held-back measurements"
_OTHERS = re.compile(r"clusters of its kind take ([+-]\d+) to ([+-]\d+) %")
_PERCENT = re.compile(r"([\d.]+) % on average, ([\d.]+) % at worst")


@dataclass(frozen=True)
class Band:
    """How far a machine was off, at sizes near a run's that were measured and held back from its fit."""

    percent: float
    """Mean error."""
    worst_percent: float
    """Largest error."""
    others: tuple[float, float] | None = None
    """What eight of ten other clusters of its kind take more than the machine, least and most, in percent; None where
    that is not known."""

    @staticmethod
    def of(data: Mapping[str, Any]) -> Band:
        """The inverse of `dataclasses.asdict`, of JSON."""
        others = data.get("others")
        return Band(**{**data, "others": None if others is None else tuple(others)})


def band(machine: Machine, collective: str, algorithm: str, ranks: int, nbytes: int, knobs: str = "") -> Band | None:
    """The band of a run of `nbytes` bytes of one rank's array, under knobs in words; None where the machine is not
    calibrated for it."""
    if machine.bands is None or _changes(machine) or knobs or not _fitted(machine, collective, algorithm):
        return None
    rows = sorted(row for row in machine.bands if row[:2] == (collective, ranks))
    if not rows or not rows[0][2] <= nbytes <= max(row[3] for row in rows):
        return None
    # Between the last size of a decade and the first of the next, the nearer one's error holds.
    *_, mean, worst, others = min(rows, key=lambda row: max(row[2] / nbytes, nbytes / max(row[3], 1), 1.0))
    return Band(mean, worst, others)


def note_of(machine: Machine, collective: str, algorithm: str, ranks: int, nbytes: int, knobs: str = "") -> str | None:
    """The note of a run, under knobs in words; None on machines that nothing was measured for."""
    if machine.bands is None:
        return None
    if changes := _changes(machine):
        keys = ", ".join(f"{key}={value}" for key, value in changes)
        return f"{_CHANGED}: it was changed by {keys}, and its error is not known"
    if knobs:
        return f"{_CHOSEN}, but {knobs}: the error is not known"
    if not _fitted(machine, collective, algorithm):
        known = ", ".join(dict(machine.library)[collective])
        return f"{_OTHER} {known}{_BY}{algorithm}{_NOT_KNOWN}"
    found = band(machine, collective, algorithm, ranks, nbytes)
    if found is None:
        known = _ranges(machine.bands)
        return f"{_OUTSIDE}, which is {known}: the error is not known"
    percent = f"{found.percent:.1f} % on average, {found.worst_percent:.1f} % at worst"
    return f"{_NEAR} this size, {percent}{_HELD}" + ("" if found.others is None else _of_others(*found.others))


class Noted(NamedTuple):
    """A run, of which something is told."""

    machine: str
    """In words."""
    case: int
    """Its size, or the number of a call."""
    note: str | None
    """As `note_of` has it."""
    times: int = 1
    """For how many it stands."""


def of(notes: Iterable[str]) -> str | None:
    """The one of a run's notes that `note_of` has made."""
    return next((note for note in notes if note.startswith((_NEAR, _CHANGED, _CHOSEN, _OTHER, _OUTSIDE))), None)


def over(runs: Iterable[Noted], cases: str = "sizes") -> list[str]:
    """What is told of many runs: each kind once for each machine, and of how many sizes, or other `cases`, it is."""
    all_of: dict[str, _Cases] = {}
    found: dict[str, dict[str, _Cases]] = {}
    for machine, case, note, times in runs:
        all_of.setdefault(machine, {})[case] = times
        if note is not None:
            found.setdefault(machine, {}).setdefault(note, {})[case] = times
    return [
        f"{machine}: {line}" if len(all_of) > 1 else line
        for machine, notes in found.items()
        for line in _lines(notes, _count([all_of[machine]]), cases)
    ]


_Cases = dict[int, int]
"""Cases, and for how many each stands."""


def _count(lists: Iterable[_Cases]) -> int:
    return sum({case: times for cases in lists for case, times in cases.items()}.values())


def of_rows(rows: Iterable[tuple[str, str | None, int | None, str | None]]) -> list[str]:
    """What is told of rows of a sweep, by machine, job, size and note: of sizes as `over`, of each job its own."""
    known = list(rows)
    found = over(Noted(machine, nbytes or 0, note) for machine, job, nbytes, note in known if job is None)
    jobs = (f"{job} on {machine}: {note}" for machine, job, _, note in known if job is not None and note)
    return [*found, *dict.fromkeys(jobs)]


def _lines(notes: Mapping[str, _Cases], count: int, cases: str) -> Iterable[str]:
    if count == 1 and len(notes) == 1:
        yield from notes
        return
    near = {note: match for note in notes if note.startswith(_NEAR) and (match := _PERCENT.search(note))}
    if near:
        some = _count(notes[note] for note in near)
        means, worst = (sorted((match[group] for match in near.values()), key=float) for group in (1, 2))
        mean = means[0] if means[0] == means[-1] else f"{means[0]} to {means[-1]}"
        percent = f"{mean} % on average, {worst[-1]} % at worst"
        apart = [match for note in near if (match := _OTHERS.search(note))]
        low, high = ([int(match[group]) for match in apart] for group in (1, 2))
        clusters = _of_others(min(low), max(high)) if apart else ""
        yield f"{_NEAR} {some} of {count} {cases}, {percent}{_HELD}{clusters}"
    others: dict[str, dict[str, _Cases]] = {}
    for note, at in notes.items():
        if note.startswith(_OTHER):
            start, _, name = note.partition(_BY)
            others.setdefault(start, {})[name.removesuffix(_NOT_KNOWN)] = at
        elif note not in near:
            yield f"{_count([at])} of {count} {cases} are {note}" if note.startswith((_CHOSEN, _OUTSIDE)) else note
    for start, names in others.items():
        some = _count(names.values())
        where = f" ({some} of {count} {cases})" if some < count else ""
        yield f"{start}{_BY}{', '.join(names)}{_NOT_KNOWN}{where}"


def _of_others(low: float, high: float) -> str:
    return f"; eight of ten clusters of its kind take {low:+.0f} to {high:+.0f} %"


def _fitted(machine: Machine, collective: str, algorithm: str) -> bool:
    """Whether the measurements say something of the algorithm: the library's own were fitted to them."""
    return algorithm in dict(machine.library).get(collective, [algorithm])


def _changes(machine: Machine) -> list[tuple[str, str]]:
    """The overrides that make another machine of it; its size is a matter of the bands."""
    return [(key, value) for key, value in machine.overrides if key != COUNT]


def _ranges(rows: Iterable[tuple[str, int, int, int, float, float, tuple[float, float] | None]]) -> str:
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    for collective, ranks, least, most, *_ in rows:
        before = ranges.get((collective, ranks), (least, most))
        ranges[collective, ranks] = min(before[0], least), max(before[1], most)
    texts = [f"{kind} of {ranks} ranks and {low} to {high} B" for (kind, ranks), (low, high) in ranges.items()]
    return ", ".join(texts) or "empty"
