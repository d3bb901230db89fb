"""The time of one rank of many that are all like it: its journal, with collectives as long as they take alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ahbm.torch.journal import Event


@dataclass
class Schedule:
    """When a rank's nodes run; times in ps."""

    total: int = 0
    computing: int = 0
    exposed: dict[int, int] = field(default_factory=dict)
    """Per node of a call, the time in which the rank computes nothing and what it computes next waits for the call."""


def schedule(events: Sequence[Event], cost: Callable[[Event], int]) -> Schedule:
    """Runs kernels one at a time, calls of a group one at a time, and everything after what it waits for."""
    found = Schedule()
    ends = [0] * len(events)
    free: dict[object, int] = {}
    last = 0
    for event in events:
        computes = event.kind == "COMP_NODE"
        lane = "" if computes else event.facts["pg_name"]
        ready, blocker = 0, -1
        for dep in event.deps:
            if ends[dep] > ready:
                ready, blocker = ends[dep], dep
        start, takes = max(ready, free.get(lane, 0)), cost(event)
        ends[event.number] = free[lane] = start + takes
        found.total = max(found.total, start + takes)
        if computes:
            found.computing += takes
            if start > last and blocker >= 0 and events[blocker].kind != "COMP_NODE":
                found.exposed[blocker] = found.exposed.get(blocker, 0) + start - last
            last = start + takes
    if found.total > last:
        final = max(range(len(events)), key=lambda number: ends[number])
        found.exposed[final] = found.exposed.get(final, 0) + found.total - last
    return found
