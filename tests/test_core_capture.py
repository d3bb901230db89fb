"""What `tl` records, and what it refuses."""

from __future__ import annotations

import _thread
import asyncio
import gc
import json
import pickle
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ahbm._core import Machine, Memory, Program, ProgramBuilder
from ahbm.errors import AhbmError, BudgetError, ConfigError, DeadlockError, KernelError, LintError, TopologyError
from ahbm.topology import load_machine

BASE = 0x1000
Kernel = Callable[..., Any]


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(None)


@pytest.fixture
def builder(machine: Machine) -> ProgramBuilder:
    return make_builder(machine)


def make_builder(machine: Machine, op_budget: int = 100_000) -> ProgramBuilder:
    return ProgramBuilder(
        machine, "test", n_slots=4, slot_bytes=None, tier=machine.tiers[0], credit_bytes=16, op_budget=op_budget
    )


def capture(
    builder: ProgramBuilder, kernel: Kernel, *args: object, coord: tuple[int, int, int] = (0, 0, 0), dtype: str = "f16"
) -> int:
    return builder.capture(kernel, (BASE, *args), coord, (1, 1), [(BASE, 1024)], dtype)


def program(machine: Machine, kernel: Kernel, *args: object, dtype: str = "f16") -> Program:
    """`kernel` on one PE, with a buffer of 1024 bytes at BASE."""
    builder = make_builder(machine)
    body = capture(builder, kernel, *args, dtype=dtype)
    builder.agent(builder.group(), (0, 0, 0), (0, 0, 0), body, [builder.buffer((0, 0, 0), 1024)])
    return builder.finish()


def operations(machine: Machine, kernel: Kernel, *args: object, dtype: str = "f16") -> list[str]:
    """The operations of `kernel` in words, without numbers of lines."""
    text = program(machine, kernel, *args, dtype=dtype).text()
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if re.match(r"\s+\d+  ", line)]


def error(machine: Machine, kernel: Kernel, *args: object, dtype: str = "f16") -> KernelError:
    with pytest.raises(KernelError) as caught:
        capture(make_builder(machine), kernel, *args, dtype=dtype)
    return caught.value


def line_of(kernel: Kernel, offset: int) -> str:
    return f"test_core_capture.py:{kernel.__code__.co_firstlineno + offset}"


# What is recorded


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


# What is refused

BAD_CALLS: list[tuple[str, Kernel, str]] = [
    ("AHBM-K202", lambda tl, a: a.data, "tl.where"),
    ("AHBM-K202", lambda tl, a: a.numpy(), ""),
    ("AHBM-K202", lambda tl, a: a.item(), ""),
    ("AHBM-K202", lambda tl, a: a.tolist(), ""),
    ("AHBM-K202", lambda tl, a: np.asarray(a), ""),
    ("AHBM-K202", lambda tl, a: bool(a > 0), ""),
    ("AHBM-K202", lambda tl, a: float(a), ""),
    ("AHBM-K202", lambda tl, a: int(a), ""),
    ("AHBM-K202", lambda tl, a: range(a), ""),
    ("AHBM-K202", lambda tl, a: a[0], ""),
    ("AHBM-K202", lambda tl, a: a.__setitem__(0, 1), ""),
    ("AHBM-K202", lambda tl, a: list(a), ""),
    ("AHBM-K202", lambda tl, a: len(a), ""),
    ("AHBM-K204", lambda tl, a: tl.load(0, 8), "0x1000"),
    ("AHBM-K204", lambda tl, a: tl.load(BASE + 1020, 8), "0x1400"),
    ("AHBM-K204", lambda tl, a: tl.store(BASE - 2, a), ""),
    ("AHBM-K204", lambda tl, a: tl.ref(BASE, 513), ""),
    ("AHBM-K204", lambda tl, a: tl.recv("global_W", 8, mode="copy_to_dst", dst=0), ""),
    ("AHBM-K205", lambda tl, a: tl.load(BASE, 8, "f32"), "tl.cast"),
    ("AHBM-K205", lambda tl, a: tl.store(BASE, tl.cast(a, "i16")), ""),
    ("AHBM-K205", lambda tl, a: tl.ref(BASE, 8, "bf16"), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros(0), "(n_elem,)"),
    ("AHBM-K206", lambda tl, a: tl.zeros((4, -1)), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros(()), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros("8"), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros((1,) * 9), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros(2.5), ""),
    ("AHBM-K206", lambda tl, a: tl.recv("global_W"), "shape="),
    ("AHBM-K206", lambda tl, a: tl.arange(3, 3), ""),
    ("AHBM-K207", lambda tl, a: tl.zeros(8, "fp16"), 'did you mean "f16"'),
    ("AHBM-K207", lambda tl, a: tl.cast(a, "float"), "one of f16"),
    ("AHBM-K208", lambda tl, a: tl.send("global_e", a), 'did you mean "global_E"'),
    ("AHBM-K208", lambda tl, a: tl.recv("left", 8), "sip<s>"),
    ("AHBM-K208", lambda tl, a: tl.send("sip0.cube0", a), "queue to itself"),
    ("AHBM-K209", lambda tl, a: a + "x", "plain numbers"),
    ("AHBM-K209", lambda tl, a: a + np.ones(8), "t_ptr"),
    ("AHBM-K209", lambda tl, a: np.ones(8) + a, ""),
    ("AHBM-K209", lambda tl, a: a == None, ""),  # noqa: E711
    ("AHBM-K209", lambda tl, a: a + tl.zeros(3), "shapes must be equal"),
    ("AHBM-K209", lambda tl, a: a + tl.zeros(8, "f32"), "tl.cast"),
    ("AHBM-K209", lambda tl, a: tl.zeros(8, "i8") + 200, "wider"),
    ("AHBM-K209", lambda tl, a: tl.zeros(8, "u8") - -1, ""),
    ("AHBM-K209", lambda tl, a: tl.zeros(8, "i32") * 0.5, "tl.cast"),
    ("AHBM-K209", lambda tl, a: tl.exp(tl.zeros(8, "i32")), "floats only"),
    ("AHBM-K209", lambda tl, a: tl.softmax(tl.zeros(8, "u8")), "floats only"),
    ("AHBM-K209", lambda tl, a: tl.dot(a, a), "matrices only"),
    ("AHBM-K209", lambda tl, a: tl.dot(tl.zeros((2, 3)), tl.zeros((2, 3))), "rows"),
    ("AHBM-K209", lambda tl, a: tl.trans(a), "matrices only"),
    ("AHBM-K209", lambda tl, a: tl.fma(a, tl.zeros(4), a), "one shape"),
    ("AHBM-K209", lambda tl, a: tl.fma(1, 2, 3), ""),
    ("AHBM-K209", lambda tl, a: tl.where(tl.zeros(4), a, a), "one shape"),
    ("AHBM-K209", lambda tl, a: tl.maximum(1, 2), ""),
    ("AHBM-K209", lambda tl, a: tl.store(BASE, 3), ""),
    ("AHBM-K209", lambda tl, a: tl.load("x", 8), "t_ptr"),
    ("AHBM-K209", lambda tl, a: tl.wait(3), "recv_async"),
    ("AHBM-K209", lambda tl, a: tl.cdiv(1, 0), "zero"),
    ("AHBM-K207", lambda tl, a: tl.itemsize("f8"), "f16"),
    ("AHBM-K214", lambda tl, a: tl.combine(a, a, "mean"), "avg"),
    ("AHBM-K214", lambda tl, a: tl.composite("conv", a, a, BASE), "gemm"),
    ("AHBM-K214", lambda tl, a: tl.recv("global_W", 8, mode="copy"), "return_slot"),
    ("AHBM-K214", lambda tl, a: tl.recv("global_W", 8, dst=BASE), ""),
    ("AHBM-K214", lambda tl, a: tl.recv("global_W", 8, mode="copy_to_dst"), ""),
    ("AHBM-K214", lambda tl, a: tl.sum(a, axis=1), "-1 to 0"),
    ("AHBM-K214", lambda tl, a: tl.program_id(2), "axis 1 the cube"),
    ("AHBM-K210", lambda tl, a: tl.send(a), "missing"),
    ("AHBM-K210", lambda tl, a: tl.nonsense(a), "AttributeError"),
]


@pytest.mark.parametrize(("code", "call", "part"), BAD_CALLS)
def test_bad_calls_say_what_and_where(machine: Machine, code: str, call: Kernel, part: str) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        a = tl.load(t_ptr, 8)
        call(tl, a)

    found = error(machine, kernel)
    assert found.code == code
    assert part in str(found)
    assert "kernel kernel at sip 0 cube 0 pe 0" in found.sites[0].label
    assert re.fullmatch(r"test_core_capture\.py:\d+", found.sites[0].origin)
    json.dumps(found.to_json())


def test_too_many_elements_is_a_budget(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        tl.zeros((1 << 20, 1 << 20))

    with pytest.raises(BudgetError, match="AHBM-B102"):
        capture(make_builder(machine), kernel)


def test_the_line_of_the_failing_call_is_named(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        tl.load(t_ptr, 8)
        tl.load(
            t_ptr + 4096,
            8,
        )

    assert error(machine, kernel).sites[0].origin == line_of(kernel, 2)


@pytest.mark.parametrize(
    ("body", "calls"),
    [("tl.send('global_E', a)", "operations"), ("tl.program_id(0)", "tl calls")],
)
def test_endless_kernels_hit_the_budget(machine: Machine, body: str, calls: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def kernel(t_ptr, tl):\n    a = tl.load(t_ptr, 8)\n    while True:\n        {body}\n", scope)
    with pytest.raises(BudgetError) as caught:
        capture(make_builder(machine, op_budget=5000), scope["kernel"])
    assert caught.value.code == "AHBM-B101"
    assert "5000" in caught.value.message and "recorded" in caught.value.message


def test_recursion_is_a_kernel_error(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        kernel(t_ptr, tl)

    found = error(machine, kernel)
    assert found.code == "AHBM-K211"
    assert isinstance(found.__cause__, RecursionError)


def test_exceptions_are_chained_with_their_line(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        raise ValueError("unsupported topology kind 7")

    found = error(machine, kernel)
    assert found.code == "AHBM-K210"
    assert "ValueError: unsupported topology kind 7" in found.message
    assert isinstance(found.__cause__, ValueError)
    assert found.sites[0].origin == line_of(kernel, 1)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_error_passes_through(machine: Machine, kind: type[BaseException]) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        raise kind

    with pytest.raises(kind):
        capture(make_builder(machine), kernel)
    assert gc.isenabled()


def test_typed_errors_pass_through(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        raise ConfigError("AHBM-C999", "not today", hint="tomorrow")

    with pytest.raises(ConfigError, match="not today"):
        capture(make_builder(machine), kernel)


def test_arity_is_checked_before_the_call(machine: Machine) -> None:
    def kernel(t_ptr: int, n_elem: int, *, tl: Any) -> None:
        raise AssertionError("never called")

    found = error(machine, kernel, 1, 2)
    assert found.code == "AHBM-K212"
    assert "n_elem" in found.message and "3 positional" in found.message
    assert found.sites[0].origin == line_of(kernel, 0)

    def no_tl(t_ptr: int) -> None: ...

    assert error(machine, no_tl).code == "AHBM-K212"


def test_generators_and_coroutines_are_no_kernels(machine: Machine) -> None:
    def generator(t_ptr: int, tl: Any) -> Any:
        yield tl.zeros(4)

    async def coroutine(t_ptr: int, tl: Any) -> None:
        await asyncio.sleep(0)

    assert error(machine, generator).code == "AHBM-K213"
    assert "coroutine" in error(machine, coroutine).message


def test_what_a_kernel_returns_is_its_own_business(machine: Machine) -> None:
    assert operations(machine, lambda t_ptr, tl: tl.load(t_ptr, 8))


def test_tl_and_handles_end_with_their_kernel(machine: Machine) -> None:
    kept: list[Any] = []

    def keep(t_ptr: int, tl: Any) -> None:
        kept.extend([tl, tl.load(t_ptr, 8), tl.recv_async("global_W", 8), tl.ref(t_ptr, 8)])

    capture(make_builder(machine), keep)
    tl, handle, future, piece = kept
    for late in (lambda: tl.program_id(0), lambda: tl.zeros(4), lambda: handle + 1, lambda: handle.data):
        with pytest.raises(KernelError) as caught:
            late()
        assert caught.value.code in {"AHBM-K201", "AHBM-K202"}
    assert handle.shape == (8,)

    def use(t_ptr: int, thing: Any, call: Kernel, tl: Any) -> None:
        call(tl, thing)

    uses: list[tuple[Any, Kernel]] = [
        (handle, lambda tl, h: tl.store(BASE, h)),
        (handle, lambda tl, h: tl.zeros(8) + h),
        (handle, lambda tl, h: tl.fma(1, h, tl.zeros(8))),
        (handle, lambda tl, h: tl.dot(h, h)),
        (handle, lambda tl, h: tl.wait(h)),
        (future, lambda tl, f: tl.wait(f)),
        (piece, lambda tl, p: tl.load(p)),
        (piece, lambda tl, p: tl.send("global_E", p)),
    ]
    for thing, call in uses:
        assert error(machine, use, thing, call).code == "AHBM-K203"


def test_a_future_is_waited_for_once(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        future = tl.recv_async("global_W", 8)
        value = tl.wait(future)
        assert tl.wait(value) is value
        tl.wait(future)

    assert error(machine, kernel).code == "AHBM-K215"


def test_a_failed_capture_leaves_the_builder_usable(machine: Machine) -> None:
    builder = make_builder(machine)

    def bad(t_ptr: int, tl: Any) -> None:
        raise ValueError

    def good(t_ptr: int, tl: Any) -> None:
        tl.store(t_ptr, tl.zeros(4))

    with pytest.raises(KernelError):
        capture(builder, bad)
    assert capture(builder, good) == 0


# The builder and what it makes


def test_builder_arguments_are_checked(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="AHBM-C202"):
        ProgramBuilder(machine, "x", n_slots=4, slot_bytes=None, tier="dram", credit_bytes=16, op_budget=1)
    builder = make_builder(machine)
    group = builder.group()
    body = capture(builder, lambda t_ptr, tl: tl.store(t_ptr, tl.zeros(4)))
    buffer = builder.buffer((0, 0, 0), 1024)
    with pytest.raises(TopologyError, match="AHBM-T201"):
        builder.buffer((machine.sips, 0, 0), 8)
    with pytest.raises(ConfigError, match="AHBM-C203"):
        builder.buffer((0, 0, 0), 8, "hmb")
    with pytest.raises(TopologyError, match="AHBM-T202"):
        builder.agent(group, (machine.sips, 0, 0), (0, 0, 0), body, [buffer])
    for bad in (
        (group + 1, body, [buffer]),
        (group, body + 1, [buffer]),
        (group, body, []),
        (group, body, [buffer + 1]),
    ):
        with pytest.raises(ConfigError, match="AHBM-C204"):
            builder.agent(bad[0], (0, 0, 0), (0, 0, 0), bad[1], bad[2])
    builder.agent(group, (0, 0, 0), (0, 0, 0), body, [buffer])
    with pytest.raises(LintError, match="AHBM-L106"):
        builder.agent(group, (0, 0, 0), (0, 0, 0), body, [buffer])
    builder.finish()
    with pytest.raises(ConfigError, match="AHBM-C201"):
        builder.finish()


def test_group_shapes(builder: ProgramBuilder) -> None:
    assert [builder.group(), builder.group(topology="torus_2d", sips=6, w=3, h=2)] == [0, 1]
    assert builder.group(topology="mesh_2d_no_wrap", sips=9, cube_w=1, cube_h=1, pes=1) == 2
    assert builder.group(topology="torus_3d", sips=8) == 3
    assert builder.group(topology="hypercube", sips=8) == 4
    for name, sips in (("torus_2d", 6), ("mesh_3d", 9), ("hypercube", 6)):
        with pytest.raises(TopologyError, match="AHBM-T203"):
            builder.group(topology=name, sips=sips)
    with pytest.raises(TopologyError, match="ring_1d"):
        builder.group(topology="ring")


def test_lints_come_all_at_once(machine: Machine) -> None:
    builder = make_builder(machine)

    def kernel(t_ptr: int, tl: Any) -> None:
        tl.send("N", tl.zeros(4))
        tl.send("W", tl.zeros(4))

    builder.agent(builder.group(), (0, 0, 0), (0, 0, 0), capture(builder, kernel), [builder.buffer((0, 0, 0), 1024)])
    with pytest.raises(LintError) as caught:
        builder.finish()
    assert [f.code for f in caught.value.findings] == ["AHBM-L101"] * 2
    assert caught.value.findings[1].sites[0].origin == line_of(kernel, 2)


def test_memory_moves_bytes_of_any_dtype(machine: Machine) -> None:
    made = program(machine, lambda t_ptr, tl: tl.store(t_ptr, tl.zeros(4)))
    memory = Memory(made)
    for dtype in ("f2", "f4", "f8", "i1", "u8", "?"):
        data = (np.arange(10) % 2).astype(dtype).reshape(2, 5)
        out = np.ones_like(data)
        memory.write(0, data, offset=8)
        memory.read(0, out, 8)
        np.testing.assert_array_equal(data, out)
    memory.write(0, np.empty(0))
    readonly = np.zeros(4)
    readonly.flags.writeable = False
    for bad in (
        lambda: memory.write(0, np.zeros((4, 4)).T[:, 1:]),
        lambda: memory.write(0, np.zeros(4, object)),
        lambda: memory.write(0, np.zeros(4, ">f8")),
        lambda: memory.write(0, np.zeros(129)),
        lambda: memory.write(0, np.zeros(1), offset=2**64 - 1),
        lambda: memory.write(1, np.zeros(1)),
        lambda: memory.read(0, readonly),
    ):
        with pytest.raises(AhbmError, match=r"AHBM-V12[12]"):
            bad()


def test_timing_and_data_of_a_ring_step(machine: Machine) -> None:
    builder = make_builder(machine)
    group = builder.group(topology="ring_1d")

    def kernel(t_ptr: int, tl: Any) -> None:
        tl.send(dir="global_E", src=tl.load(t_ptr, 8))
        tl.store(t_ptr, tl.recv(dir="global_W", shape=8) + 1)

    for sip in range(machine.sips):
        body = capture(builder, kernel, coord=(sip, 0, 0))
        builder.agent(group, (sip, 0, 0), (sip, 0, 0), body, [builder.buffer((sip, 0, 0), 1024)])
    made = builder.finish()
    timeline = made.simulate()
    assert timeline.latency_ps == max(timeline.ends_ps) > 0
    assert (timeline.messages, timeline.bytes) == (machine.sips, 16 * machine.sips)
    assert made.simulate(record=False).hash == timeline.hash
    memory = Memory(made)
    for sip in range(machine.sips):
        memory.write(sip, np.full(8, sip, np.float16))
    made.replay(timeline, memory)
    for sip in range(machine.sips):
        out = np.zeros(8, np.float16)
        memory.read(sip, out)
        assert (out == (sip - 1) % machine.sips + 1).all()
    other = program(machine, kernel=lambda t_ptr, tl: tl.store(t_ptr, tl.zeros(4)))
    with pytest.raises(AhbmError, match="AHBM-V120"):
        made.replay(timeline, Memory(other))


def test_receiving_from_any_direction(machine: Machine) -> None:
    builder = make_builder(machine)
    group = builder.group()

    def collect(t_ptr: int, tl: Any) -> None:
        tl.store(t_ptr, tl.recv(shape=8) + tl.recv(dir=None, shape=8))

    def give(t_ptr: int, tl: Any) -> None:
        tl.send("cube0", tl.load(t_ptr, 8))

    for cube, kernel in enumerate((collect, give, give)):
        body = capture(builder, kernel, coord=(0, cube, 0))
        builder.agent(group, (0, cube, 0), (0, cube, 0), body, [builder.buffer((0, cube, 0), 1024)])
    made = builder.finish()
    memory = Memory(made)
    for cube in (1, 2):
        memory.write(cube, np.full(8, cube, np.float16))
    made.replay(made.simulate(), memory)
    out = np.zeros(8, np.float16)
    memory.read(0, out)
    assert (out == 3).all()


def test_deadlocks_and_budgets_are_typed(machine: Machine) -> None:
    builder = make_builder(machine)
    group = builder.group()

    def kernel(t_ptr: int, tl: Any) -> None:
        received = tl.recv("global_W", 8)
        tl.send("global_E", received)

    for sip in range(machine.sips):
        builder.agent(group, (sip, 0, 0), (sip, 0, 0), capture(builder, kernel), [])
    with pytest.raises(DeadlockError) as caught:
        builder.finish().simulate()
    assert any(site.origin == line_of(kernel, 1) for site in caught.value.sites)
    with pytest.raises(BudgetError, match="AHBM-B120"):
        exchange(machine, 100).simulate(max_events=5)


def exchange(machine: Machine, steps: int) -> Program:
    """All PEs of SIP 0 and SIP 1 send and receive `steps` messages."""
    builder = make_builder(machine, op_budget=10 * steps)
    group = builder.group()

    def kernel(t_ptr: int, peer: str, tl: Any) -> None:
        value = tl.zeros(8)
        for _ in range(steps):
            tl.send(peer, value)
            value = tl.recv(peer, 8)

    for sip in range(2):
        body = capture(builder, kernel, f"sip{1 - sip}", coord=(sip, 0, 0))
        for cube in range(machine.cubes):
            for pe in range(machine.pes):
                builder.agent(group, (sip, cube, pe), (sip, cube, pe), body, [])
    return builder.finish()


def test_a_run_can_be_interrupted(machine: Machine) -> None:
    made = exchange(machine, 20_000)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                made.simulate()
    finally:
        timer.cancel()
    assert exchange(machine, 1).simulate().messages == 2 * machine.cubes * machine.pes


def test_errors_survive_pickling(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        tl.load(0, 8)

    found = error(machine, kernel)
    copy = pickle.loads(pickle.dumps(found))
    assert type(copy) is KernelError
    assert copy.findings == found.findings and str(copy) == str(found)
