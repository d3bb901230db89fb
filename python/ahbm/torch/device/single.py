"""The time of one rank of many that are all like it: its journal, with collectives as long as they take alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ahbm.torch.journal import Event

UNKNOWN = -1
"""The end of a node that has not run."""


@dataclass
class Schedule:
    """When a rank's nodes run; times in ps."""

    total: int = 0
    computing: int = 0
    exposed: dict[int, int] = field(default_factory=dict)
    """Per node of a call, the time in which the rank computes nothing and what it computes next waits for the call."""


def schedule(events: Sequence[Event], cost: Callable[[Event], int]) -> Schedule:
    """Runs kernels one at a time, those of a stream in order, and calls of a group one at a time. Of what could start,
    that comes first which can start first; then what other streams than the default one have."""
    found = Schedule()
    ends = [UNKNOWN] * len(events)
    queues: dict[object, deque[Event]] = {}
    for event in events:
        lane = event.stream if event.kind == "COMP_NODE" else event.facts["pg_name"]
        queues.setdefault(lane, deque()).append(event)
    free: dict[object, int] = {}
    last = 0
    for _ in events:
        best: tuple[tuple[int, bool, int], deque[Event], object] | None = None
        for way, queue in queues.items():
            if not queue:
                continue
            event = queue[0]
            before = [ends[dep] for dep in event.deps]
            if UNKNOWN in before:
                continue
            engine: object = "kernels" if event.kind == "COMP_NODE" else way
            start = max(free.get(engine, 0), max(before, default=0))
            rank = (start, event.stream == 0, event.number)
            if best is None or rank < best[0]:
                best = (rank, queue, engine)
        assert best is not None  # dependencies are older nodes
        (start, *_), queue, engine = best
        event = queue.popleft()
        end = start + cost(event)
        ends[event.number] = free[engine] = end
        found.total = max(found.total, end)
        if engine == "kernels":
            found.computing += end - start
            if start > last and event.deps:
                _expose(found, events, max(event.deps, key=lambda dep: ends[dep]), start - last)
            last = end
    if found.total > last:
        _expose(found, events, ends.index(found.total), found.total - last)
    return found


def _expose(found: Schedule, events: Sequence[Event], number: int, ps: int) -> None:
    if events[number].kind != "COMP_NODE":
        found.exposed[number] = found.exposed.get(number, 0) + ps
