"""Pictures of operations over time: nothing is cut off, and what is merged or left out is said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ahbm._core import categories
from ahbm.job.open import open_
from ahbm.runs.explanation import Explanation
from ahbm.views import colors, spans, timeline, why


@pytest.fixture(scope="module")
def torus() -> Explanation:
    """28,352 operations on 64 PEs: more than any picture has bars."""
    return open_("all_reduce", topology="npu_torus_4x4x4", algorithm="ring_allreduce", bytes_per_rank=65536).explain()


@pytest.mark.parametrize("most", [200, 2000, 100_000])
def test_the_operations_of_all_times_are_there(torus: Explanation, most: int) -> None:
    picture = spans.operations(torus, most)
    assert picture.lanes[0] == torus.places[0] and picture.lanes[-1] == torus.places[-1]
    assert len(picture.spans) <= max(most, len(picture.lanes))
    assert max(span.end_ps for span in picture.spans) == torus.latency_ps
    assert bool(picture.note) == (most < 28_352) and ("merged" in picture.note) == bool(picture.note)
    for lane, place in enumerate(picture.lanes):
        starts, ends = torus.spans(torus.places.index(place))
        here = [span for span in picture.spans if span.lane == lane]
        assert sum(span.count for span in here) == len(starts)
        assert (min(s.start_ps for s in here), max(s.end_ps for s in here)) == (starts.min(), ends.max())


@pytest.mark.parametrize("most", [200, 100_000])
def test_waits_stand_on_the_lanes_of_their_agents(torus: Explanation, most: int) -> None:
    """Each with its reason; the intervals that they are taken from add up to the time of their agent."""
    picture = spans.waits(torus, [0, 9, 63], most)
    assert {span.agent for span in picture.spans} == {0, 9, 63}
    assert {span.category for span in picture.spans} <= set(colors.CATEGORIES)
    assert "waiting for message" in {span.category for span in picture.spans}
    times = dict(zip(categories(), torus.time_of_agents[9].tolist(), strict=True))
    assert sum(times.values()) == torus.latency_ps
    start, end, _, _ = torus.intervals(9)
    assert (start[0], end[-1]) == (0, torus.latency_ps) and (start[1:] == end[:-1]).all()
    if not picture.note:
        here = [span for span in picture.spans if span.agent == 9]
        for name in ("waiting for message", "idle after its end"):
            assert sum(s.end_ps - s.start_ps for s in here if s.category == name) == times[name]
        assert all(torus.operation(s.agent, s.op)[0].startswith("recv") for s in here if s.category.endswith("message"))


@pytest.mark.parametrize("most", [10, 100, 100_000])
def test_the_path_is_whole(torus: Explanation, most: int) -> None:
    picture = spans.path(torus, most)
    assert picture.spans[0].start_ps == 0
    assert max(span.end_ps for span in picture.spans) == torus.latency_ps
    assert sum(span.count for span in picture.spans) == len(list(torus.stretches()))
    covered = np.zeros(1000, bool)
    for span in picture.spans:
        covered[span.start_ps * 1000 // torus.latency_ps : -(-span.end_ps * 1000 // torus.latency_ps)] = True
    assert covered.all()


def test_charts_say_what_they_merge(torus: Explanation) -> None:
    chart = why.gantt(torus, "operations").to_dict()
    assert "shorter than" in chart["title"] and "merged" in chart["title"]
    (rows,) = chart["datasets"].values()
    ends = [row["end"] for row in rows]
    assert max(ends) == pytest.approx(torus.latency_ps / 1e6)
    assert "24 of 64 agents" in why.agents(torus, "time").to_dict()["title"]


@pytest.mark.parametrize(("count", "most"), [(1, 64), (64, 64), (65, 64), (512, 64), (100_001, 24)])
def test_the_first_and_the_last_are_shown(count: int, most: int) -> None:
    chosen = spans.evenly(count, most)
    assert chosen == sorted(set(chosen)) and len(chosen) == min(count, most)
    assert (chosen[0], chosen[-1]) == (0, count - 1)


def test_many_lanes_are_some_of_all() -> None:
    many = {"system.sips.count": 96}
    explanation = open_("all_gather", topology="npu_ring_8", bytes_per_rank=96 * 16, overrides=many).explain()
    assert len(explanation.places) > spans.MOST_LANES
    picture = spans.operations(explanation, 500)
    assert picture.note.startswith(f"{spans.MOST_LANES} of {len(explanation.places)} agents; ")
    path = spans.path(explanation, 500)
    assert len(path.lanes) <= spans.MOST_LANES and path.left_out == "2 agents share a lane"
    assert timeline.timeline(explanation, "t")["note"].startswith(f"{spans.MOST_LANES} of ")
    assert "share a lane" not in timeline.timeline(explanation, "t")["note"]


def test_the_timeline_holds_whole_texts_and_small_columns(torus: Explanation) -> None:
    data = timeline.timeline(torus, "t")
    for part, groups in (("operations", "kinds"), ("path", "categories")):
        columns = data[part]
        assert len({len(column) for column in columns.values()}) == 1
        assert max(columns["group"]) < len(data[groups]) and max(columns["text"]) < len(data["texts"])
        assert max(columns["lane"]) < len(data["lanes"])
    ends = np.array(data["operations"]["start"]) + np.array(data["operations"]["length"])
    assert ends.max() == data["latency"] == torus.latency_ps
    assert any("ring_allreduce.py:" in text[1] for text in data["texts"])
    assert len(json.dumps(data)) < 900_000


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("load f16[4]", "load"),
        ("post store f16[4]", "store"),
        ('recv_async(dir="E") f16[4]', "recv"),
        ('await a slot (dir="E")', "wait"),
        ("wait counter 3 >= 4", "wait"),
        ("post signal counter 3 +1", "signal"),
        ("barrier 0", "barrier"),
        ("maximum f16[4]", "math"),
    ],
)
def test_a_kind_of_operation_has_one_colour(what: str, kind: str) -> None:
    assert colors.kind(what) == kind


def test_colours_can_be_told_apart() -> None:
    """Texts on cells have a contrast of 4.5 to 1, scales of use only get darker, or lighter."""
    for color in (*colors.SERIES, *colors.CATEGORIES.values(), *colors.KINDS.values()):
        assert colors.contrast(colors.ink_on(color), color) >= 4.5
    assert len(set(colors.KINDS.values())) == len(colors.KINDS)
    for ramp, ground in ((colors.USE, "#f6f7f9"), (colors.USE_DARK, "#1d2026")):
        steps = [colors.contrast(color, ground) for color in ramp]
        assert steps == sorted(steps)
