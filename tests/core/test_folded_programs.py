"""One rank is simulated for all that do the same, and nothing changes: times of agents, hash and traffic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm
from ahbm._core import Machine, Program, ProgramBuilder
from ahbm.config.topology import load_machine
from ahbm.core.choice import Candidates
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError
from ahbm.runs.measure import prepare

RANKS, CUBES = 16, 4
ELEMENTS = 2048
ROUNDS = 40
"""Enough that comparing agents is worth it."""


def compared(program: Program) -> int:
    """How many times as many events the whole run has; all else of both runs is equal."""
    folded, whole = (program.simulate(record=False, fold=fold) for fold in (True, False))
    facts = [(run.hash, run.latency_ps, run.ends_ps, run.messages, run.bytes) for run in (folded, whole)]
    assert facts[0] == facts[1]
    return whole.events // max(folded.events, 1)


def machine(topology: str, model: str = "cut_through") -> Machine:
    overrides = {"system.sips.count": RANKS, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2, "cube.pe_layout.corners": 1}
    if topology != "ring_1d":
        overrides |= {"system.sips.w": 4, "system.sips.h": 4} if "2d" in topology else {}
    return load_machine(None, {**overrides, "system.sips.topology": topology, "system.network_model": model})


def exchange(
    machine: Machine, moves: list[tuple[int, int, int, int, int]], by: str = "+", uneven: int = -1, local: bool = True
) -> Program:
    """Every rank sends the same messages in every round: from a cube to one of the rank `shift` further, so many
    elements after so much work. Rank `uneven` works longer. Data are in the own cube's memory, or in that of cube 0."""

    def kernel(base: int, me: int, ranks: int, *, tl: Any) -> None:
        cube = tl.program_id(axis=1)
        own = base + (cube if local else 0) * ELEMENTS * 2
        there = (lambda shift: (me + shift) % ranks) if by == "+" else (lambda shift: me ^ shift)
        back = (lambda shift: (me - shift) % ranks) if by == "+" else there
        for _ in range(ROUNDS):
            value = tl.zeros((ELEMENTS,), dtype="f16")
            for source, shift, target, elements, work in moves:
                if cube == source:
                    for _ in range(work + (me == uneven)):
                        value = value + 1.0
                    part = tl.load(own, shape=(elements,), dtype="f16")
                    tl.send(dir=tl.peer(sip=there(shift), cube=target), src=part)
            for source, shift, target, elements, _ in moves:
                if cube == target:
                    got = tl.recv(dir=tl.peer(sip=back(shift), cube=source), shape=(elements,), dtype="f16")
                    tl.store(own, got)

    builder = ProgramBuilder(
        machine, "test", n_slots=8, slot_bytes=None, tier=machine.tiers[0], credit_bytes=16, op_budget=10_000
    )
    size = ELEMENTS * 2
    views = [(1 << 20 | cube * size, size) for cube in range(CUBES)]
    bodies = builder.capture_all(kernel, (1 << 20,), (1 << 20,), (RANKS,), RANKS, CUBES, views, "f16", by_class=True)
    group = builder.group()
    for rank in range(RANKS):
        buffers = [builder.buffer((rank, cube, 0), size) for cube in range(CUBES)]
        for cube in range(CUBES):
            place = (rank, cube, 0)
            builder.agent(group, place, place, bodies[rank * CUBES + cube], buffers)
    return builder.finish()


cubes = st.integers(0, CUBES - 1)


@settings(max_examples=40, deadline=None)
@given(
    topology=st.sampled_from(["ring_1d", "torus_2d", "hypercube", "switch", "fully_connected", "mesh_2d_no_wrap"]),
    model=st.sampled_from(["cut_through", "flit", "analytic"]),
    # Few sizes and works, so that messages often meet at one moment.
    moves=st.lists(
        st.tuples(cubes, st.integers(1, RANKS - 1), cubes, st.sampled_from([16, 640, 2048]), st.integers(0, 1)),
        min_size=3,
        max_size=8,
    ),
    by=st.sampled_from("+^"),
    uneven=st.sampled_from([-1, -1, -1, 5]),
    local=st.booleans(),
)
def test_exchanges(
    topology: str, model: str, moves: list[tuple[int, int, int, int, int]], by: str, uneven: int, local: bool
) -> None:
    try:
        program = exchange(machine(topology, model), moves, by, uneven, local)
    except AhbmError:
        return
    try:
        program.simulate(record=False, fold=False)
    except AhbmError as whole:
        with pytest.raises(type(whole)) as folded:
            program.simulate(record=False)
        assert str(folded.value) == str(whole)
        return
    compared(program)


@pytest.mark.parametrize(
    ("topology", "moves", "times"),
    [
        ("ring_1d", [(cube, 1, cube, 640, 0) for cube in range(CUBES)], RANKS),
        # Both ways over the same cubes: a link carries what one rank sends.
        ("ring_1d", [(cube, shift, cube, 640, 0) for cube in range(CUBES) for shift in (1, RANKS - 1)], RANKS),
        # Over two links: at a link, messages of two ranks meet.
        ("ring_1d", [(cube, 2, cube, 640, 0) for cube in range(CUBES)], 1),
        ("switch", [(cube, 1, cube, 640, 0) for cube in range(CUBES)], RANKS),
        ("mesh_2d_no_wrap", [(cube, 1, cube, 640, 0) for cube in range(CUBES)], 1),
    ],
)
def test_what_folds(topology: str, moves: list[tuple[int, int, int, int, int]], times: int) -> None:
    assert compared(exchange(machine(topology), moves)) == times


def test_a_rank_that_does_something_else_is_seen() -> None:
    moves = [(cube, 1, cube, 640, 1) for cube in range(CUBES)]
    assert compared(exchange(machine("ring_1d"), moves, uneven=5)) == 1


def test_a_budget_is_one_of_the_whole_run() -> None:
    program = exchange(machine("ring_1d"), [(cube, 1, cube, 640, 0) for cube in range(CUBES)])
    events = program.simulate(record=False, fold=False).events
    with pytest.raises(ahbm.errors.BudgetError):
        program.simulate(record=False, max_events=events - 1)


@pytest.mark.parametrize("topology", ["npu_ring_8", "npu_torus_4x4", "npu_hypercube_16", "npu_switch_8", None])
def test_the_catalogue(topology: str | None) -> None:
    sips = 32 if topology in ("npu_ring_8", "npu_hypercube_16", "npu_switch_8") else None
    emulator = Emulator.load(topology, None, {"system.sips.count": sips} if sips else {"system.sips.count": 16})
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for algorithm in Candidates(emulator, collective):
            try:
                case = prepare(collective, algorithm, emulator=emulator, bytes_per_rank=1 << 20)
                program = case.compiled().program
            except AhbmError:
                continue
            assert program is not None
            compared(program)
