"""What a step took where it was profiled: the profiler's traces say it, beside the kernels that are replayed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ahbm._core import is_pytorch_trace, pytorch_traces, unpacked
from ahbm.base.load import load_bytes

MOST_BYTES = 1 << 28
"""Of a trace's text: what longer ones recorded is not looked for."""
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
Span = tuple[float, float]
"""Start and end."""
LAUNCHES = ("cuda_runtime", "cuda_driver")


@dataclass(frozen=True)
class Recorded:
    """What the ranks of a job took where it was recorded, in ns."""

    ranks_ns: tuple[float, ...]
    """Per trace, from the start of the device's first activity that is replayed to the end of the last."""
    host_gaps_ns: float | None = None
    """What the host's gaps add to the replay, which leaves them out; None where it has them."""

    @property
    def mean_ns(self) -> float:
        """The mean of the ranks."""
        return sum(self.ranks_ns) / len(self.ranks_ns)

    def __str__(self) -> str:
        least, most = min(self.ranks_ns), max(self.ranks_ns)
        ranks = f" (mean of {len(self.ranks_ns)} ranks, {_ms(least)} to {_ms(most)})" if least < most else ""
        if self.host_gaps_ns is None:
            return f"recorded {_ms(self.mean_ns)}{ranks}; the host's gaps are in the simulated time"
        gaps = f"{_ms(self.host_gaps_ns)} of the host's gaps are left out (--host-gaps)"
        return f"recorded {_ms(self.mean_ns)}{ranks}; {gaps}"


def recorded(path: str | Path, step: int | None) -> Recorded | None:
    """What the profiler's trace of a rank and those beside it, or of a folder, say of a step, or of all; None where
    they say nothing."""
    if not is_pytorch_trace(path):
        return None
    found = [span for file in pytorch_traces(path) if (span := _span(file, step)) is not None]
    return Recorded(tuple(end - start for start, end in found)) if found else None


def _span(file: Path, step: int | None) -> Span | None:
    """Start and end in ns of what was recorded."""
    packed = load_bytes(file)
    text = unpacked(packed, MOST_BYTES + 1)
    if len(text) > MOST_BYTES or text.startswith(b"\x80"):  # a pickle has no times of a device
        return None
    try:
        spans = _spans(json.loads(text), step)
    except (ValueError, RecursionError):
        # A job is read by what it needs; the rest of a file may be no JSON, and says nothing.
        return None
    return (1000 * min(start for start, _ in spans), 1000 * max(end for _, end in spans)) if spans else None


def _spans(document: Any, step: int | None) -> list[Span]:
    """Start and end in us of the device's activities, of a step those that were launched in it."""
    within: list[Span] = []
    launched: dict[Any, float] = {}
    activities: list[tuple[Span, Any]] = []
    events = document.get("traceEvents") if isinstance(document, dict) else None
    for event in events if isinstance(events, list) else ():
        if not isinstance(event, dict):
            continue
        start, took, kind = event.get("ts"), event.get("dur"), event.get("cat")
        if not isinstance(start, int | float) or not isinstance(took, int | float):
            continue
        facts = event.get("args")
        launch = facts.get("correlation") if isinstance(facts, dict) else None
        if kind in ON_DEVICE:
            activities.append(((start, start + took), launch))
        elif kind in LAUNCHES:
            launched[launch] = start
        elif kind == "user_annotation" and event.get("name") == f"ProfilerStep#{step}":
            within.append((start, start + took))
    # What ran before the host's first call is not replayed: it was launched before the recording began.
    began = min(launched.values(), default=float("-inf"))
    activities = [(span, launch) for span, launch in activities if launch in launched or span[0] >= began]
    if step is None:
        return [span for span, _ in activities]
    return [
        span
        for span, launch in activities
        if any(start <= launched.get(launch, span[0]) <= end for start, end in within)
    ]


def _ms(ns: float) -> str:
    ms = ns / 1e6
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"
