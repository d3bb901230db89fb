"""Plans that are built from Python: right, wrong, refused, saved and run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ahbm import _core
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError, ConfigError, FormatError

RANKS = 4
HERE = Path(__file__).name


def ring(*, planted: str | None = None) -> tuple[_core.Plan, int]:
    """A ring all-reduce over four ranks, in place, and the line of the step at rank 2 that `planted` replaces."""
    builder = _core.PlanBuilder("ring", "all_reduce", ranks=RANKS, chunks=RANKS, in_place=True)
    line = 0
    for rank in range(RANKS):
        block = builder.thread_block(rank, send=(rank + 1) % RANKS, recv=(rank - 1) % RANKS)
        actions = ["s", *["rrs"] * (RANKS - 2), "rrcs", *["rcs"] * (RANKS - 2), "r"]
        for turn, action in enumerate(actions):
            chunk = ("i", (rank - turn) % RANKS)
            if planted and (rank, action) == (2, "rrcs"):
                line = _line() + 1
                builder.step(block, planted, chunk)
            else:
                builder.step(block, action, chunk)
    return builder.finish(), line


def _line() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def origins(findings: list[dict[str, Any]]) -> list[str]:
    return [site["origin"] for finding in findings for site in finding["sites"]]


def test_a_plan_that_is_built_is_right() -> None:
    plan, _ = ring()
    assert (plan.format, plan.collective, plan.ranks, plan.ops) == ("plan", "all_reduce", RANKS, 28)
    assert plan.check()[0] == "correct"


def test_a_planted_bug_is_found_at_the_authors_line() -> None:
    plan, line = ring(planted="rcs")
    found, _, findings, _ = plan.check()
    assert found == "wrong" and "rank 2 missing" in findings[0]["message"]
    assert f"{HERE}:{line}" in origins(findings), findings


def test_a_message_that_is_not_passed_on_is_missed_where_it_is_awaited() -> None:
    plan, line = ring(planted="r")
    found, _, findings, _ = plan.check()
    assert found == "deadlock" and "rank 3 block 0 waits" in findings[0]["sites"][0]["label"]
    assert origins(findings)[0] == f"{HERE}:{line + 2}"


def test_a_front_end_says_where_its_author_wrote() -> None:
    builder = _core.PlanBuilder("pair", "broadcast", ranks=2, chunks=1, place=("mine.py", 1))
    receiver = builder.thread_block(1, recv=0, place=("mine.py", 2))
    builder.step(receiver, "r", dst=("o", 0), place=("mine.py", 3))
    findings = builder.finish().check()[2]
    assert (findings[0]["code"], origins(findings)[0]) == ("AHBM-F128", "mine.py:3")


def test_a_plan_is_saved_and_lowered_as_one_that_was_read(tmp_path: Path) -> None:
    plan, _ = ring()
    machine = load_machine("npu_ring_8", {"system.sips.count": RANKS})
    for name in ("ring.xml", "ring.json"):
        plan.save(tmp_path / name)
        again = _core.read_plan(str(tmp_path / name))
        assert (again.collective, again.in_place, again.check()[0]) == ("all_reduce", True, "correct")
    runs = []
    for one in (plan, _core.read_plan(str(tmp_path / "ring.xml"))):
        program, ranks, chunk_bytes = one.lower(machine, nbytes=1 << 20, dtype="f16")
        timeline = program.simulate()
        runs.append((timeline.hash, timeline.latency_ps, timeline.messages, ranks, chunk_bytes))
    assert runs[0] == runs[1]


def test_steps_of_several_thread_blocks_wait_for_each_other() -> None:
    def doubled(*, ordered: bool) -> str:
        builder = _core.PlanBuilder("two", "all_gather", ranks=2, chunks=2, in_place=True, scratch=1)
        for rank in range(2):
            first = builder.thread_block(rank, send=1 - rank, recv=1 - rank)
            builder.step(first, "s", ("o", rank))
            arrived = builder.step(first, "r", ("s", 0))
            second = builder.thread_block(rank)
            builder.step(second, "cpy", ("s", 0), ("o", 1 - rank), after=[arrived] if ordered else [])
        return builder.finish().check()[0]

    assert (doubled(ordered=True), doubled(ordered=False)) == ("correct", "wrong")


def built() -> tuple[_core.PlanBuilder, int]:
    builder = _core.PlanBuilder("pair", "all_reduce", ranks=2, chunks=2)
    return builder, builder.thread_block(0, send=1)


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("AHBM-C205", lambda: _core.PlanBuilder("x", "all_reduced", ranks=2, chunks=1)),
    ("AHBM-C120", lambda: _core.PlanBuilder("x", "all_reduce", ranks=0, chunks=1)),
    ("AHBM-C120", lambda: _core.PlanBuilder("x", "reduce", ranks=2, chunks=1, root=2)),
    ("AHBM-C210", lambda: _core.PlanBuilder("x", "all_reduce", ranks=2, chunks=1, protocol="simpel")),
    ("AHBM-C211", lambda: _core.PlanBuilder("x", "all_reduce", ranks=2, chunks=1, limits=[("rank", 1)])),
    ("AHBM-F119", lambda: _core.PlanBuilder("x", "all_reduce", ranks=2, chunks=0)),
    ("AHBM-B206", lambda: _core.PlanBuilder("x", "all_reduce", ranks=1 << 31, chunks=1)),
    ("AHBM-C120", lambda: built()[0].thread_block(2)),
    ("AHBM-C120", lambda: built()[0].copy(2, 0, 0)),
    ("AHBM-C204", lambda: built()[0].step(1, "nop")),
    ("AHBM-U201", lambda: built()[0].step(0, "send", ("i", 0))),
    ("AHBM-C203", lambda: built()[0].step(0, "s", ("input", 0))),
    ("AHBM-F115", lambda: built()[0].step(0, "s", ("i", 0), after=[0])),
]


@pytest.mark.parametrize(("code", "call"), REFUSED)
def test_arguments_are_refused(code: str, call: Callable[[], object]) -> None:
    with pytest.raises(AhbmError) as caught:
        call()
    assert caught.value.findings[0].code == code


def test_a_plan_that_cannot_be_followed_is_refused_with_the_authors_line() -> None:
    builder, block = built()
    line = _line() + 1
    builder.step(block, "s", ("i", 2))
    with pytest.raises(FormatError) as caught:
        builder.finish()
    finding = caught.value.findings[0]
    assert (finding.code, finding.sites[0].origin) == ("AHBM-F117", f"{HERE}:{line}")
    with pytest.raises(ConfigError, match="AHBM-C201"):
        builder.step(block, "nop")
