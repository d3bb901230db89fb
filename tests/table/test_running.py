"""The one loop over runs: an error is what a run gives, Ctrl-C ends all, and rows are there when they are known."""

from __future__ import annotations

import pytest

from ahbm.errors import ConfigError, InterruptedRun
from ahbm.table.cases import Refused, Sweep
from ahbm.table.nccl import columns, row
from ahbm.table.running import attempt, failure, outcome


def test_an_error_is_an_outcome_and_an_interruption_is_none() -> None:
    error = ConfigError("AHBM-C140", "planted")

    def fails() -> int:
        raise error

    def interrupted() -> int:
        raise InterruptedRun("AHBM-X102", "planted")

    assert outcome(lambda: 3) == 3 and outcome(fails) is error
    with pytest.raises(InterruptedRun):
        outcome(interrupted)


def test_a_row_is_there_before_the_next_begins() -> None:
    told: list[str] = []
    sweep = Sweep("all_reduce", 1, 1, listed=(1024, 2048), algorithms=("ring_allreduce",), topology="npu_ring_8")
    rows = attempt([sweep], tell=told.append)
    assert told == []
    assert next(rows).bytes == 1024 and told == ["1,024 B by ring_allreduce, row 1 of 2"]
    assert next(rows).bytes == 2048 and len(told) == 2


def test_a_refused_row_has_the_columns_of_what_was_asked() -> None:
    sweep = Sweep("broadcast", 512, 512, dtype="f32", root=2, algorithms=("ring_allreduce",), topology="npu_ring_8")
    (cell,) = attempt([sweep])
    assert isinstance(cell, Refused) and failure([cell]) is cell.error
    assert row(cell).split() == ["512", "-", "float", "none", "2", "C115"]
    assert columns(cell)[1] == "# algorithm ring_allreduce  machine npu_ring_8"
