"""No calls of a job reach more than all of their bound, however they overlap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ahbm
from ahbm.ranks.calls import Ran, together

KINDS = {"all_reduce": 0, "gather": 3, "scatter": 4, "broadcast": 5, "all_to_all": 6, "reduce_scatter": 7, "reduce": 1}
MIB = 1 << 20


def write(folder: Path, ranks: int, calls: list[tuple[str, int, int, tuple[int, ...]]], chained: bool) -> Path:
    """A job of these calls: collective, bytes, root and ranks of each; every rank makes them in this order."""
    for rank in range(ranks):
        nodes: list[dict[str, object]] = []
        for number, (collective, nbytes, root, group) in enumerate(calls):
            if rank not in group:
                continue
            facts = {"comm_type": KINDS[collective], "comm_size": nbytes, "root": root, "pg_name": f"g{group}"}
            attributes: list[dict[str, object]] = [
                {"name": key, "int64Val" if isinstance(value, int) else "stringVal": value}
                for key, value in facts.items()
            ]
            attributes.append({"name": "ranks", "int64List": {"values": list(group)}})
            node = {"id": number, "name": f"{collective} {number}", "type": "COMM_COLL_NODE", "attr": attributes}
            before = [entry["id"] for entry in nodes][-1:] if chained else []
            nodes.append({**node, "ctrlDeps": before})
        text = "\n".join(json.dumps(document) for document in ({"version": "0.0.4"}, *nodes))
        (folder / f"job.{rank}.json").write_text(text, encoding="utf-8")
    return folder / "job.0.json"


@pytest.mark.parametrize(("topology", "percent"), [("npu_switch_8", 100), ("npu_ring_8", 52)])
def test_gathers_that_follow_each_other(tmp_path: Path, topology: str, percent: float) -> None:
    """The sender goes on to the next gather while the root still takes the last: latencies count once. On a ring, half
    of the data could go the other way."""
    (row,) = ahbm.run(write(tmp_path, 2, [("gather", MIB, 0, (0, 1))] * 4, True), topology=topology).rows()
    assert row.percent_of_bound == pytest.approx(percent, abs=0.1)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(sorted(KINDS)),
            st.sampled_from([1 << 10, 1 << 16, MIB]),
            st.integers(0, 1),
            st.sampled_from([(0, 1), (0, 1, 2, 3), (2, 3), (1, 3)]),
        ).map(lambda call: (call[0], call[1], call[3][call[2]], call[3])),
        min_size=1,
        max_size=12,
    ),
    topology=st.sampled_from(["npu_switch_8", "npu_ring_8", "npu_fully_connected_8", "dgx_h100"]),
    chained=st.booleans(),
)
def test_no_share_is_above_all(
    tmp_path: Path, calls: list[tuple[str, int, int, tuple[int, ...]]], topology: str, chained: bool
) -> None:
    everybody = ("all_reduce", 1024, 0, (0, 1, 2, 3))
    for row in ahbm.run(write(tmp_path, 4, [*calls, everybody], chained), topology=topology).rows():
        assert row.percent_of_bound is not None
        assert 0 < row.percent_of_bound <= 100, row
        assert row.within_ps >= (row.bound_ps or 0)


def test_calls_that_overlap_are_bounded_together() -> None:
    # Three calls of one root, whose senders were there from the start; a latency of 10 counts once.
    calls = [Ran(0, last, end, 0, 90, 10) for last, end in ((0, 90), (90, 170), (170, 250))]
    assert together(calls) == (250, 250)
    # Apart, each has its own bound and time.
    apart = [Ran(100 * at, 100 * at, 100 * at + 95, 0, 90, 10) for at in range(3)]
    assert together(apart) == (270, 285)
    # Roots that differ share nothing for sure.
    roots = [Ran(0, 80, 100, root, 90, 10) for root in range(3)]
    assert together(roots) == (90, 90)
    # What the early ranks did before the last one came.
    assert together([Ran(0, 1000, 1010, 0, 90, 10)]) == (90, 90)
    assert together([]) == (0, 0)
