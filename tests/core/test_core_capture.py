"""What `tl` records."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ahbm._core import Machine, ProgramBuilder
from ahbm.config.topology import load_machine
from support.core import BASE, Kernel, capture, line_of, make_builder, operations, program


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(None)


@pytest.fixture
def builder(machine: Machine) -> ProgramBuilder:
    return make_builder(machine)


def test_a_ring_step_records_its_operations(machine: Machine) -> None:
    builder = make_builder(machine)
    group = builder.group()

    def kernel(t_ptr: int, tl: Any) -> None:
        acc = tl.load(t_ptr, shape=(512,), dtype="f16")
        tl.send(dir="global_E", src=acc)
        acc = acc + tl.recv(dir="global_W", shape=(512,), dtype="f16")
        tl.store(t_ptr, acc)

    for sip in range(machine.sips):
        body = capture(builder, kernel, coord=(sip, 0, 0))
        builder.agent(group, (sip, 0, 0), (sip, 0, 0), body, [builder.buffer((sip, 0, 0), 1024)])
    made = builder.finish()
    assert made.agents == machine.sips
    assert made.ops == 5 * machine.sips
    assert made.calls == 5 * machine.sips
    text = made.text()
    assert "1 bodies" in text
    assert line_of(kernel, 3) in text
    assert made.hash == made.hash != 0


ARITHMETIC: list[tuple[str, Kernel, int]] = [
    ("add", lambda tl, a, b: a + b, 1),
    ("sub", lambda tl, a, b: a - b, 1),
    ("mul", lambda tl, a, b: a * b, 1),
    ("div", lambda tl, a, b: a / b, 1),
    ("add", lambda tl, a, b: 1 + a, 1),
    ("sub", lambda tl, a, b: 1.5 - a, 1),
    ("mul", lambda tl, a, b: a * np.float32(2), 1),
    ("div", lambda tl, a, b: 1 / a, 1),
    ("neg", lambda tl, a, b: -a, 1),
    ("lt", lambda tl, a, b: a < b, 1),
    ("le", lambda tl, a, b: a <= 0, 1),
    ("gt", lambda tl, a, b: a > b, 1),
    ("ge", lambda tl, a, b: a >= b, 1),
    ("eq", lambda tl, a, b: a == b, 1),
    ("ne", lambda tl, a, b: a != b, 1),
    ("max", lambda tl, a, b: tl.maximum(a, b), 1),
    ("max", lambda tl, a, b: tl.maximum(0, a), 1),
    ("min", lambda tl, a, b: tl.minimum(a, 0.5), 1),
    ("fma", lambda tl, a, b: tl.fma(a, b, a), 1),
    ("fma", lambda tl, a, b: tl.fma(a, 2, b), 2),
    ("clamp", lambda tl, a, b: tl.clamp(a, -1, 1), 1),
    ("exp", lambda tl, a, b: tl.exp(a), 1),
    ("log", lambda tl, a, b: tl.log(a), 1),
    ("sqrt", lambda tl, a, b: tl.sqrt(a), 1),
    ("softmax", lambda tl, a, b: tl.softmax(a), 1),
    ("where", lambda tl, a, b: tl.where(a, a, b), 1),
    ("where", lambda tl, a, b: tl.where(a, 0, b), 2),
    ("cast", lambda tl, a, b: tl.cast(a, "f32"), 1),
    ("sum", lambda tl, a, b: tl.sum(a), 1),
    ("max", lambda tl, a, b: tl.max(a, axis=0), 1),
    ("min", lambda tl, a, b: tl.min(a, axis=-1), 1),
    ("full", lambda tl, a, b: tl.zeros((8,), "f16"), 1),
    ("full", lambda tl, a, b: tl.full(8, 3, dtype="i32"), 1),
    ("arange", lambda tl, a, b: tl.arange(2, 6, "i64"), 1),
    ("add", lambda tl, a, b: tl.combine(a, b, "sum"), 1),
    ("add", lambda tl, a, b: tl.combine(a, b, "avg"), 1),
    ("mul", lambda tl, a, b: tl.combine(a, b, "prod"), 1),
    ("min", lambda tl, a, b: tl.combine(a, b, "min"), 1),
    ("max", lambda tl, a, b: tl.combine(a, b, "max"), 1),
]


@pytest.mark.parametrize(("word", "call", "count"), ARITHMETIC)
def test_every_value_call_records_its_operation(machine: Machine, word: str, call: Kernel, count: int) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        a = tl.load(t_ptr, (8,))
        b = tl.load(t_ptr + 16, 8)
        call(tl, a, b)

    recorded = operations(machine, kernel)
    assert len(recorded) == 2 + count
    assert f" {word} " in recorded[-1]


def test_matrices(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        a = tl.load(t_ptr, (2, 4))
        b = tl.trans(tl.load(t_ptr, (3, 4)))
        assert b.shape == (4, 3)
        assert tl.dot(a, b).shape == (2, 3)
        assert tl.sum(a, axis=0).shape == (4,)
        assert tl.sum(a).shape == ()
        assert (a + tl.zeros((1, 4))).shape == (2, 4)
        tl.composite(op="gemm", a=tl.ref(t_ptr, (2, 4)), b=b, out_ptr=t_ptr)

    words = [
        line.split(" = ")[-1].split()[0] if " = " in line else line.split()[1] for line in operations(machine, kernel)
    ]
    assert words[-3:] == ["load", "dot", "store"]


def test_handles_know_shape_dtype_and_space(machine: Machine) -> None:
    seen: list[object] = []

    def kernel(t_ptr: int, tl: Any) -> None:
        a = tl.load(t_ptr, shape=(4, 2), dtype="f32")
        seen.append((a.shape, a.dtype, a.nbytes, a.space, (a + a).space))
        piece = tl.ref(t_ptr, 4, dtype="f32")
        seen.append((piece.shape, piece.dtype, piece.nbytes, piece.space))
        assert "f32" in repr(a) and "f32" in repr(piece) and "kernel" in repr(tl)

    program(machine, kernel, dtype="f32")
    assert seen == [((4, 2), "f32", 32, "hbm", "tcm"), ((4,), "f32", 16, "hbm")]


def test_program_ids_cost_calls_but_no_operations(machine: Machine) -> None:
    builder = make_builder(machine)
    seen: list[int] = []

    def kernel(t_ptr: int, tl: Any) -> None:
        seen.extend([tl.program_id(0), tl.program_id(axis=1), tl.num_programs(0), tl.num_programs(1), tl.cdiv(7, 2)])
        tl.store(t_ptr, tl.zeros(4))

    body = builder.capture(kernel, (BASE,), (1, 3, 2), (8, 16), [(BASE, 1024)], "f16")
    builder.agent(builder.group(), (1, 3, 2), (0, 0, 0), body, [builder.buffer((0, 0, 0), 1024)])
    made = builder.finish()
    assert seen == [2, 3, 8, 16, 4]
    assert (made.calls, made.ops) == (7, 2)


def test_the_size_of_a_dtype_is_a_constant_that_costs_nothing(machine: Machine) -> None:
    builder = make_builder(machine)
    seen: list[int] = []

    def kernel(t_ptr: int, tl: Any) -> None:
        seen.extend(tl.itemsize(dtype) for dtype in ("f16", "bf16", "f32", "f64", "i8", "u64"))
        tl.store(t_ptr, tl.zeros(4))

    body = builder.capture(kernel, (BASE,), (0, 0, 0), (1, 1), [(BASE, 1024)], "f16")
    builder.agent(builder.group(), (0, 0, 0), (0, 0, 0), body, [builder.buffer((0, 0, 0), 1024)])
    assert seen == [2, 2, 4, 8, 1, 8]
    assert builder.finish().calls == 2


def test_calls_after_the_last_operation_are_charged(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        tl.zeros(4)
        for _ in range(70_000):
            tl.program_id(0)

    made = program(machine, kernel)
    assert made.calls == 70_001
    assert made.ops == 3  # the value, one full counter, the rest


def test_dead_values_give_their_slots_back(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        acc = tl.load(t_ptr, 8)
        for _ in range(50):
            acc = acc + 1
        tl.store(t_ptr, acc)

    used = {int(n) for n in re.findall(r"%(\d+)", program(machine, kernel).text())}
    assert used == {0, 1}


def test_pending_receives_keep_their_slots(machine: Machine) -> None:
    builder = make_builder(machine)
    group = builder.group()

    def kernel(t_ptr: int, tl: Any) -> None:
        future = tl.recv_async("global_W", 8)
        assert future.shape == (8,) and future.dtype == "f16"
        tl.send("global_E", tl.ref(t_ptr, 8))
        tl.store(t_ptr, tl.wait(future))

    for sip in range(machine.sips):
        builder.agent(group, (sip, 0, 0), (sip, 0, 0), capture(builder, kernel), [builder.buffer((sip, 0, 0), 1024)])
    text = builder.finish().text()
    assert {int(n) for n in re.findall(r"%(\d+)", text)} == {0, 1}


def test_copy_to_dst_stores_what_it_receives(machine: Machine) -> None:
    builder = make_builder(machine)
    group = builder.group()

    def kernel(t_ptr: int, tl: Any) -> None:
        tl.send(dir="global_E", src=tl.load(t_ptr, 8))
        tl.recv("global_W", 8, mode="copy_to_dst", dst=t_ptr)

    for sip in range(machine.sips):
        body = capture(builder, kernel)
        builder.agent(group, (sip, 0, 0), (sip, 0, 0), body, [builder.buffer((sip, 0, 0), 1024)])
    made = builder.finish()
    assert made.ops == 4 * machine.sips and made.calls == 3 * machine.sips


def test_peer_names_share_bodies_between_lanes(builder: ProgramBuilder) -> None:
    def kernel(t_ptr: int, name: str, tl: Any) -> None:
        tl.send(name, tl.zeros(4))

    ids = {
        capture(builder, kernel, name, coord=(0, cube, 0))
        for cube in range(2)
        for name in ("sip1", f"sip1.cube{cube}", f"sip1.cube{cube}.pe0", "sip1.pe0")
    }
    assert len(ids) == 1


def test_a_peer_is_the_text_that_says_the_same(builder: ProgramBuilder) -> None:
    def kernel(t_ptr: int, ways: Callable[[Any], list[Any]], tl: Any) -> None:
        for way in ways(tl):
            tl.send(way, tl.zeros(4))

    def peers(tl: Any) -> list[Any]:
        peer = tl.peer(sip=1, cube=2)
        assert peer == "sip1.cube2" == f"{peer}" and peer != tl.peer(sip=1) and {peer: 1}[str(peer)]
        assert repr(peer) == "<peer sip1.cube2>"
        return [peer, tl.peer(sip=1, pe=3), tl.peer(pe=3)]

    texts = ["sip1.cube2", "sip1.pe3", "pe3"]
    assert capture(builder, kernel, peers) == capture(builder, kernel, lambda tl: texts)


def test_integers_stay_exact(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        tl.store(t_ptr, tl.load(t_ptr, 4, dtype="u64") + (2**64 - 1))

    assert str(2**64 - 1) in program(machine, kernel, dtype="u64").text()


def test_capture_leaves_nothing_behind(machine: Machine) -> None:
    class Token:
        pass

    token = Token()
    alive = weakref.ref(token)

    def kernel(t_ptr: int, token: Token, tl: Any) -> None:
        tl.store(t_ptr, tl.load(t_ptr, 4))

    gc.disable()
    try:
        capture(make_builder(machine), kernel, token)
        assert not gc.isenabled()
        del token
        assert alive() is None
    finally:
        gc.enable()
