"""Capture by class: one call of a kernel for all ranks that take the same path, and the same program as by rank."""

from __future__ import annotations

import contextlib
import itertools
import logging
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ahbm._core import Machine, Program, ProgramBuilder
from ahbm.base.collectives import COLLECTIVES
from ahbm.choose.outcomes import request_of
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, KernelError

BASE, RANKS, CUBES, SLOTS = 1 << 20, 24, 2, 512
"""Address of the first cube's buffer, ranks, cubes of each, and elements of a buffer."""


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(None, {"system.sips.count": RANKS, "sip.cube_mesh.w": CUBES, "sip.cube_mesh.h": 1})


def captured(machine: Machine, kernel: Callable[..., None], by_class: bool, ranks: int = RANKS) -> Program:
    """`kernel(BASE, rank, RANKS)` on both cubes of every rank."""
    builder = ProgramBuilder(
        machine, "test", n_slots=64, slot_bytes=None, tier=machine.tiers[0], credit_bytes=16, op_budget=3_000
    )
    views = [(BASE + cube * SLOTS * 2, SLOTS * 2) for cube in range(CUBES)]
    bodies = builder.capture_all(kernel, (BASE,), (BASE,), (RANKS,), ranks, CUBES, views, "f16", by_class=by_class)
    group = builder.group()
    for rank in range(ranks):
        buffers = [builder.buffer((rank, cube, 0), SLOTS * 2) for cube in range(CUBES)]
        for cube in range(CUBES):
            place = (rank, cube, 0)
            builder.agent(group, place, place, bodies[rank * CUBES + cube], buffers)
    return builder.finish()


def outcome(machine: Machine, kernel: Callable[..., None], by_class: bool) -> tuple[object, ...]:
    """All that there is to know about a captured program, or what was raised."""
    try:
        program = captured(machine, kernel, by_class)
    except AhbmError as error:
        return (type(error), str(error))
    lines = [program.line(agent, op) for agent in range(program.agents) for op in range(program.lengths[agent])]
    return (program.hash, program.calls, program.text(), lines)


def same(machine: Machine, kernel: Callable[..., None]) -> tuple[object, ...]:
    found = outcome(machine, kernel, by_class=True)
    assert found == outcome(machine, kernel, by_class=False)
    return found


BINARY = ("+", "-", "*", "//", "%", "&", "|", "^", "<", "<=", "==", "!=", ">", ">=", "and", "or")
FORMS = (
    "({a} << {b} % 5)",
    "({a} >> {b} % 70)",
    "min({a}, {b})",
    "max({a}, {b}, 3)",
    "abs({a})",
    "(-{a})",
    "(~{a})",
    "(+{a})",
    "(not {a})",
    "({a} if {b} else {c})",
    "divmod({a}, {b})[1]",
    "divmod(9, {a})[0]",
    "TABLE[{a} % 5]",
    "{{0: 7, 1: 9}}.get({a} % 3, {b})",
    "int(format({a}, 'd'))",
    "int(str({a}))",
    "len(range({a} % 6))",
    "helper({a}, {b})",
    "({a}).bit_length()",
    "({a}).bit_count()",
    "int({a} / 4)",
    "({a} ** 2)",
    "(2 ** ({a} % 4))",
    "sum([{a}, {b}])",
    "round({a})",
    "round({a}, -1)",
    "math.gcd({a}, {b})",
    "math.floor({a})",
    "({a} in (1, 2, {b}))",
    "({a} * True)",
    "int({a})",
    "(hash({a}) % 7)",
    "sorted([{a}, {b}])[0]",
    "tl.cdiv({a}, 3)",
    "[{b}, {a}].index({a})",
    "({a} > 2.5)",
    "(1 < {a} <= {b})",
    "operator.index({a})",
    "copy.deepcopy({a})",
    "isinstance({a}, int)",
    "int(numpy.int64({a}) + {b})",
    "int(numpy.int64(3) * {a})",
    "({a} * 10**30 // 10**29)",
    "({a} << 61 >> 61)",
    "functools.reduce(operator.xor, [{a}, {b}, {c}])",
    "({a}).real",
    "int({a} == 'text')",
    "[*range(9)][{a} % 9]",
    "pickle.loads(pickle.dumps({a}))",
)

numbers = st.one_of(st.sampled_from(("rank", "cube", "k", "x", "n")), st.integers(-5, 40).map(str))


def forms(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = st.builds("({1} {0} {2})".format, st.sampled_from(BINARY), inner, inner)
    return st.one_of(
        plain,
        plain,
        st.builds(lambda form, a, b, c: form.format(a=a, b=b, c=c), st.sampled_from(FORMS), inner, inner, inner),
    )


expressions = st.recursive(numbers, forms, max_leaves=6)


def indented(lines: list[str]) -> str:
    return textwrap.indent("\n".join(lines), "    ")


def compounds(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block = st.lists(inner, min_size=1, max_size=3).map(indented)
    return st.one_of(
        st.builds("if {}:\n{}\nelse:\n{}".format, expressions, block, block),
        st.builds("for k in range({} % 4):\n{}".format, expressions, block),
        st.builds("for _ in range(5):\n    if x <= 3:\n        break\n    x //= 2\n{}".format, block),
    )


statements = st.recursive(
    st.one_of(
        expressions.map("x = {}".format),
        expressions.map("observe({})".format),
        expressions.map("exchange({})".format),
        st.builds("tl.zeros({} % 9 + 1, 'f16')".format, expressions),
        expressions.map("tl.full(1, {} % 99, 'f16')".format),
    ),
    compounds,
    max_leaves=6,
)

FRAME = """
import copy, functools, math, numpy, operator, pickle

TABLE = (3, 1, 4, 1, 5)

def helper(a, b):
    if a % 3 == 0:
        return b
    return a - 1 if a & 1 else helper(a // 2, b + 1)

def kernel(t_ptr, rank, n, *, tl):
    cube = tl.program_id(1)
    k = x = 0
    own = tl.zeros(1)

    def observe(value):
        tl.load(t_ptr + cube * {slots} * 2 + value % {slots} * 2, 1)

    def exchange(distance):
        # The distance is the same for everybody, or whoever receives is not who was sent to.
        tl.send(tl.peer(sip=(rank + distance % n) % n, cube=1 - cube), own)
        tl.recv(tl.peer(sip=(rank - distance % n) % n, cube=1 - cube), 1)

{body}
    observe(x)
"""


def written(lines: list[str]) -> Callable[..., None]:
    names: dict[str, Any] = {}
    source = FRAME.format(slots=SLOTS, body=indented(lines))
    exec(compile(source, "generated.py", "exec"), names)
    kernel: Callable[..., None] = names["kernel"]
    return kernel


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(statements, min_size=1, max_size=5))
@example(["x = rank // (rank - 7)"])
@example(["x = TABLE[rank - 20]"])
@example(["tl.load(t_ptr + rank * 44, 1)"])
@example(["tl.send(tl.peer(sip=rank ^ 5), own)", "tl.recv(tl.peer(sip=rank ^ 5), 1)"])
@example(["tl.send(tl.peer(sip=rank - 1), own)"])
@example(["x = rank << 59"])
@example(["x = rank // (rank - 7)", "x = 0"])
@example(["x = 5 >> (20 - rank)", "x = 0"])
@example(["try:\n    k = 1 % (rank - 3)\nexcept ZeroDivisionError:\n    tl.zeros(3)"])
@example(["tl.peer(sip=rank - 1)"])
@example(["tl.ref(t_ptr + rank * 100, 1)"])
def test_generated_kernels(machine: Machine, lines: list[str]) -> None:
    same(machine, written(lines))


def calls_of(kernel: Callable[..., None]) -> tuple[Callable[..., None], list[object]]:
    """The kernel, and a list that gets the type of the rank in every call."""
    seen: list[object] = []

    def counted(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        seen.append(type(rank))
        kernel(t_ptr, rank, n, tl=tl)

    return counted, seen


def test_two_calls_stand_for_all_ranks(machine: Machine) -> None:
    def ring(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        cube = tl.program_id(1)
        own = tl.load(t_ptr + (cube * SLOTS + rank) * 2, 1)
        for step in range(1, n):
            tl.send(tl.peer(sip=(rank + step) % n), own)
            own = tl.recv(tl.peer(sip=(rank - step) % n), 1)

    kernel, seen = calls_of(ring)
    same(machine, kernel)
    assert [seen[0] is int, seen[1]] == [False, int]
    # By rank: every place once, and 8 of them twice.
    assert seen[2:] == [int] * (RANKS * CUBES + 8)


def test_a_branch_makes_classes(machine: Machine) -> None:
    def odd_and_even(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        tl.load(t_ptr + (tl.program_id(1) * SLOTS + rank) * 2, 2 if rank % 2 else 1)

    kernel, seen = calls_of(odd_and_even)
    captured(machine, kernel, by_class=True)
    assert len(seen) == 4


def test_many_that_are_alike_count_before_few_that_are_not(machine: Machine) -> None:
    def irregular_below(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        tl.load(t_ptr + (tl.program_id(1) * SLOTS + rank) * 2, 1 + int(rank) if rank < 7 else 1)

    kernel, seen = calls_of(irregular_below)
    captured(machine, kernel, by_class=True)
    # Two for the cubes of the first rank, two for those of the 17 ranks that are alike; the cubes of the other 6 ranks
    # are called alone, 8 of them twice.
    assert len(seen) == 2 + 2 + 12 + 8
    same(machine, irregular_below)


def test_what_defeats_it_costs_no_more_than_by_rank(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    def by_name(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        tl.send(f"sip{rank ^ 1}", tl.load(t_ptr + tl.program_id(1) * SLOTS * 2, 1))
        tl.recv(f"sip{rank ^ 1}", 1)

    kernel, seen = calls_of(by_name)
    caplog.set_level(logging.INFO, "ahbm.capture")
    same(machine, kernel)
    assert len(seen) <= 2 * (RANKS * CUBES + 8) + RANKS
    line = by_name.__code__.co_firstlineno + 1
    assert f"its ranks take different paths at test_classes.py:{line}" in caplog.text


def test_a_kernel_that_looks_behind_the_symbol(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    def suspicious(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        first = t_ptr + tl.program_id(1) * SLOTS * 2
        if type(rank) is not int:
            tl.load(first + 2, 1)
        tl.load(first, 1)

    def raising(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        assert type(rank) is int
        tl.load(t_ptr + tl.program_id(1) * SLOTS * 2, 1)

    caplog.set_level(logging.INFO, "ahbm.capture")
    for kernel, line in ((suspicious, 3), (raising, 1)):
        caplog.clear()
        same(machine, kernel)
        line += kernel.__code__.co_firstlineno
        assert "with a symbolic rank it does something else at" in caplog.text
        assert f"test_classes.py:{line}" in caplog.text


def test_a_kernel_of_another_mind_is_refused(machine: Machine) -> None:
    turns = itertools.count()

    def moody(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        tl.load(t_ptr + (tl.program_id(1) * SLOTS + next(turns) % 3) * 2, 1)

    with pytest.raises(KernelError, match="AHBM-K216") as caught:
        captured(machine, moody, by_class=True)
    line = f"test_classes.py:{moody.__code__.co_firstlineno + 1}"
    assert [site.origin for site in caught.value.sites] == [line] * 2


RANK_BY_RANK = {"all_pairs_allreduce", "pairwise_all_to_all"}
"""Packaged algorithms whose ranks take different paths."""


def test_packaged_algorithms_are_captured_once_for_all_ranks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ahbm.capture")
    emulator = Emulator.load("npu_switch_8", overrides={"system.sips.count": 64})
    compiled = set()
    for collective in COLLECTIVES:
        for algorithm in emulator.algorithms(collective):
            with contextlib.suppress(AhbmError):
                emulator.compile(request_of(collective, 1 << 14, 64, "f16"), algorithm)
                compiled.add(algorithm)
    found = {record.getMessage().split()[0] for record in caplog.records if "rank by rank" in record.getMessage()}
    assert found == RANK_BY_RANK and len(compiled) > 20


@pytest.mark.parametrize("odd", [1, 2])
@pytest.mark.parametrize("alone", [False, True])
def test_a_call_of_another_mind_is_refused_when_it_is_the_first_too(machine: Machine, odd: int, alone: bool) -> None:
    turns = itertools.count(1)

    def moody(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        turn = next(turns)
        first = t_ptr + tl.program_id(1) * SLOTS * 2
        if alone and rank == 0 and tl.program_id(1) == 0:
            tl.load(first + 2, 1)
        tl.load(first + 4 * (turn == odd), 1)

    with pytest.raises(KernelError, match="AHBM-K216"):
        captured(machine, moody, by_class=True)


def test_a_first_call_that_raises_is_no_matter_of_the_symbol(machine: Machine) -> None:
    turns = itertools.count(1)

    def moody(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        if next(turns) == 1:
            raise OSError("not yet")
        tl.load(t_ptr + tl.program_id(1) * SLOTS * 2, 1)

    with pytest.raises(KernelError, match=r"AHBM-K210.*not yet"):
        captured(machine, moody, by_class=True)


def test_a_rank_that_outlives_its_call_is_plain(machine: Machine) -> None:
    kept: list[Any] = []

    def keeping(t_ptr: int, rank: int, n: int, *, tl: Any) -> None:
        kept.append((rank, tl.peer(sip=rank + 1)))
        tl.load(t_ptr + (tl.program_id(1) * SLOTS + rank) * 2, 1)

    captured(machine, keeping, by_class=True)
    rank, peer = kept[0]
    assert (rank + 1, rank == 0, [5][rank], str(peer), f"{rank:03}") == (1, True, 5, "sip1", "000")
    assert (type(rank) is int, type(rank + 1) is int) == (False, True)
