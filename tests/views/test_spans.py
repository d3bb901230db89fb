"""Pictures of operations over time: nothing is cut off, and what is merged or left out is said."""

from __future__ import annotations

import numpy as np
import pytest

from ahbm.job.open import open_
from ahbm.runs.explanation import Explanation
from ahbm.views import colors, spans, why


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
    assert "24 of 64 PEs" in why.agents(torus, "time").to_dict()["title"]


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
    for ramp, ground in ((colors.USE, "#f6f7f9"),):
        steps = [colors.contrast(color, ground) for color in ramp]
        assert steps == sorted(steps)
