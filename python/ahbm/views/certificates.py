"""The section of synthesized schedules: how close each is to what no schedule can beat, and what makes that limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ahbm.views.page import Section
from ahbm.views.words import time

if TYPE_CHECKING:
    from ahbm.source.synthesis import Synthesis

COLUMNS = ("algorithm", "method", "rounds", "chunks", "transfers", "time (us)", "bound (us)", "% of bound", "tight cut")


def section(found: Mapping[str, Synthesis]) -> Section:
    """The section of schedules, by the names of their algorithms."""
    rows = [_row(name, schedule) for name, schedule in found.items()]
    text = (
        "Times of the schedule by itself: a link is busy for a chunk's bytes, and the chunk arrives one latency later. "
        "Rounds and time stand before the least that any schedule needs."
    )
    return Section("synthesis", "Synthesis", text, COLUMNS, rows)


def _row(name: str, found: Synthesis) -> list[str]:
    schedule = found.schedule
    parts, gbs, links, shares = schedule.cut
    sides = f"{len(parts[0])} of {found.machine.sips} NPUs" if len(parts) == 1 else f"{len(parts)} parts"
    least = "" if schedule.rounds_bound is None else f" (least {schedule.rounds_bound})"
    return [
        name,
        schedule.method,
        f"{schedule.rounds}{least}",
        f"{len(schedule.chunk_bytes)}",
        f"{len(schedule):,}",
        f"{found.time_us:,.3f}",
        f"{found.bound_us:,.3f}",
        f"{found.percent_of_bound:.1f}",
        f"{sides}: {shares} shares over {links} links, {gbs:g} GB/s",
    ]


def sentence(section: Section) -> str:
    """The best schedule, in words."""
    best = max(section.rows, key=lambda row: float(row[7]))
    us = float(best[5].replace(",", ""))
    return (
        f"The schedule of {best[0]} takes {time(us * 1e6)} by itself, {best[7]} % of what no schedule can beat; "
        f"its tight cut is {best[8]}."
    )
