"""The timeline that a page shows itself: bars on a canvas, to zoom and pan, with the critical path marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ahbm.views import colors, spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ahbm.runs.explanation import Explanation

MOST_OPERATIONS = 16_000
MOST_WAITS = 8_000
MOST_STRETCHES = 4_000


def timeline(explanation: Explanation, title: str) -> dict[str, Any]:
    """What `timeline.js` draws, as JSON-serialisable data: times in ps, columns for bars, each text once."""
    operations = spans.operations(explanation, MOST_OPERATIONS)
    waits = spans.waits(explanation, operations.agents, MOST_WAITS)
    path = spans.path(explanation, MOST_STRETCHES)
    texts: dict[tuple[str, ...], int] = {}
    lane_of = {agent: lane for lane, agent in enumerate(operations.agents)}
    places = spans.names(explanation)

    def columns(found: Sequence[spans.Span], groups: list[str], on_path: bool = False) -> dict[str, list[int]]:
        rows = []
        for span in found:
            words = explanation.operation(span.agent, span.op)
            text = texts.setdefault((*words, places[span.agent]) if on_path else words, len(texts))
            group = groups.index(span.category or colors.kind(words[0]))
            lane = lane_of.get(span.agent, -1) if on_path else span.lane
            rows.append((lane, span.start_ps, span.end_ps - span.start_ps, group, text, span.count))
        names = ("lane", "start", "length", "group", "text", "count")
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}

    kinds, categories = list(colors.KINDS), list(colors.CATEGORIES)
    return {
        "title": title,
        "note": spans.joined(operations.left_out, operations.merged, waits.merged, path.merged),
        "latency": explanation.latency_ps,
        "lanes": list(operations.lanes),
        "kinds": list(colors.KINDS.items()),
        "categories": list(colors.CATEGORIES.items()),
        "operations": columns(operations.spans, kinds),
        "waits": columns(waits.spans, categories),
        "path": columns(path.spans, categories, on_path=True),
        "texts": list(texts),
    }
