"""MSCCLang: which statement, in which iteration of its loops, an operation is made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from ahbm.dsl.msccl import Buffer, MSCCLProgram, chunk
from ahbm.dsl.msccl.collectives import AllReduce
from ahbm.dsl.msccl.topologies import fully_connected
from ahbm.dsl.written import collected
from ahbm.errors import ProgramError

RANKS = 4


def line_of(function: Callable[..., object], mark: str) -> str:
    lines, first = inspect.getsourcelines(function)
    at = next(first + at for at, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}"))
    return f"test_msccl_lang_origins.py:{at}"


def ring(*, leave_out: tuple[int, int] | None = None) -> None:
    for index in range(RANKS):
        moving = chunk((index + 1) % RANKS, Buffer.input, index)
        for hop in range(2, RANKS + 1):
            if (index, hop) != leave_out:
                moving = chunk((index + hop) % RANKS, Buffer.input, index).reduce(moving)  # reduces
        for hop in range(1, RANKS):
            moving = moving.copy((index + hop) % RANKS, Buffer.input, index)  # copies


def origins(write: Callable[[], object], *, fusion: bool = True) -> set[str]:
    """Those of the findings of a check."""
    with (
        collected() as written,
        MSCCLProgram("p", fully_connected(RANKS), AllReduce(RANKS, RANKS, True), 1, instr_fusion=fusion) as program,
    ):
        write()
        program.generate_xml()
    _, _, findings, _ = written[0].plan.check()
    return {site["origin"] for finding in findings for site in finding["sites"]}


def test_a_finding_names_the_iteration() -> None:
    assert origins(ring) == set()
    found = origins(lambda: ring(leave_out=(2, 2)), fusion=False)
    statements = {f"{line_of(ring, 'copies')} (index=2, hop={hop})" for hop in range(1, RANKS)}
    assert found == statements | {f"{line_of(ring, 'reduces')} (index=2, hop={RANKS})"}


def test_a_fused_step_has_the_lines_of_both_statements() -> None:
    found = origins(lambda: ring(leave_out=(2, 2)))
    reduces, copies = line_of(ring, "reduces"), line_of(ring, "copies")
    passed_on = {f"{copies} (index=2, hop={hop}) and (index=2, hop={hop + 1})" for hop in range(1, RANKS - 1)}
    assert found == passed_on | {
        f"{reduces} (index=2, hop={RANKS}), fused with {copies} (index=2, hop=1)",
        f"{copies} (index=2, hop={RANKS - 1})",
    }


def test_a_refusal_names_the_iteration() -> None:
    def write() -> None:
        for rank in range(RANKS):
            chunk(rank, Buffer.input, rank + 1)  # outside

    with pytest.raises(ProgramError) as caught:
        origins(write)
    assert caught.value.sites[0].origin == f"{line_of(write, 'outside')} (rank=3)"
