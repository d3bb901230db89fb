"""What `tl` refuses, and how it says so."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import re
from typing import Any

import numpy as np
import pytest

from ahbm._core import Machine, ProgramBuilder
from ahbm.config.topology import load_machine
from ahbm.errors import BudgetError, ConfigError, KernelError
from support.core import BASE, Kernel, capture, error, line_of, make_builder


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(None)


@pytest.fixture
def builder(machine: Machine) -> ProgramBuilder:
    return make_builder(machine)


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
    ("AHBM-K220", lambda tl, a: tl.zeros(0), "ValueError"),
    ("AHBM-K206", lambda tl, a: tl.zeros((4, -1)), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros(()), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros("8"), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros((1,) * 9), ""),
    ("AHBM-K206", lambda tl, a: tl.zeros(2.5), ""),
    ("AHBM-K206", lambda tl, a: tl.recv("global_W"), "shape="),
    ("AHBM-K220", lambda tl, a: tl.zeros((4, 0)), "no elements"),
    ("AHBM-K220", lambda tl, a: tl.arange(3, 3), "no elements"),
    ("AHBM-K206", lambda tl, a: tl.arange(3, 2), ""),
    ("AHBM-K207", lambda tl, a: tl.zeros(8, "fp16"), 'did you mean "f16"'),
    ("AHBM-K207", lambda tl, a: tl.cast(a, "float"), "one of f16"),
    ("AHBM-K208", lambda tl, a: tl.send("global_e", a), 'did you mean "global_E"'),
    ("AHBM-K208", lambda tl, a: tl.recv("left", 8), "sip<s>"),
    ("AHBM-K208", lambda tl, a: tl.send("sip0.cube0", a), "queue to itself"),
    ("AHBM-K208", lambda tl, a: tl.send(tl.peer(sip=0, pe=0), a), '"sip0.pe0" is the PE that runs the kernel itself'),
    ("AHBM-K208", lambda tl, a: tl.peer(), "sip=, cube= and pe="),
    ("AHBM-K208", lambda tl, a: tl.peer(sip=-1), "-1 is no index"),
    ("AHBM-K208", lambda tl, a: tl.peer(pe=1 << 32), "4294967296 is no index"),
    ("AHBM-K210", lambda tl, a: tl.peer(sip="1"), "TypeError"),
    ("AHBM-K210", lambda tl, a: tl.send(1, a), "TypeError"),
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
    ("AHBM-K209", lambda tl, a: tl.combine(a, a, "band"), "bitwise and of f16[8]"),
    ("AHBM-K209", lambda tl, a: tl.combine(a, 1, "bxor"), "integers only"),
    ("AHBM-K209", lambda tl, a: tl.load_reduce(BASE, 8, [0, 1], op="bor"), "bitwise or of f16[8]"),
    ("AHBM-K209", lambda tl, a: tl.load(tl.ref(BASE, 8), shape=4), "a reference to f16[8] as f16[4]"),
    ("AHBM-K209", lambda tl, a: tl.load(tl.ref(BASE, 8), 8, "f32"), "leave shape and dtype out"),
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
    assert re.fullmatch(r"test_core_refused\.py:\d+( -> test_core_refused\.py:\d+)*", found.sites[0].origin)
    json.dumps(found.to_json())


def test_a_reference_is_loaded_as_what_it_is(builder: ProgramBuilder) -> None:
    seen: list[tuple[Any, ...]] = []

    def kernel(t_ptr: int, tl: Any) -> None:
        ref = tl.ref(t_ptr, (2, 4))
        for value in (tl.load(ref), tl.load(ref, (2, 4)), tl.load(ref, dtype="f16"), tl.load(t_ptr, (2, 4))):
            seen.append((value.shape, value.dtype))
            tl.store(t_ptr, value)

    capture(builder, kernel)
    assert seen == [((2, 4), "f16")] * 4


def test_too_many_elements_is_a_budget(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        tl.zeros((1 << 20, 1 << 20))

    with pytest.raises(BudgetError, match="AHBM-B102"):
        capture(make_builder(machine), kernel)


@pytest.mark.parametrize(
    "make",
    [
        lambda tl, a: tl.zeros((1 << 31,)),
        lambda tl, a: tl.full((1 << 15, 1 << 15), 1, "f32"),
        lambda tl, a: tl.arange(0, 1 << 28, "i64"),
        lambda tl, a: tl.zeros((1 << 16, 1)) + tl.zeros((1, 1 << 16)),
        lambda tl, a: tl.dot(tl.zeros((1 << 16, 1)), tl.zeros((1, 1 << 16))),
    ],
)
def test_a_value_that_no_host_should_hold_is_a_budget(machine: Machine, make: Kernel) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        make(tl, None)

    with pytest.raises(BudgetError, match=r"AHBM-B102.*bytes, made by the kernel"):
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


def test_an_interruption_passes_through(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
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


def test_a_kernel_returns_nothing(machine: Machine) -> None:
    def generator(t_ptr: int, tl: Any) -> Any:
        yield tl.zeros(4)

    async def coroutine(t_ptr: int, tl: Any) -> None:
        await asyncio.sleep(0)

    async def both(t_ptr: int, tl: Any) -> Any:
        yield tl.zeros(4)

    def number(t_ptr: int, tl: Any) -> Any:
        return 0

    def handle(t_ptr: int, tl: Any) -> Any:
        return tl.load(t_ptr, 8)

    kernels = {"generator": generator, "coroutine": coroutine, "async_generator": both, "int": number, "Handle": handle}
    for kind, kernel in kernels.items():
        found = error(machine, kernel)
        assert found.code == "AHBM-K213" and kind in found.message
        assert found.sites[0].origin == line_of(kernel, 0)


class Unprintable(BaseException):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("thrown", [GeneratorExit, SystemExit, StopIteration, asyncio.CancelledError, Unprintable])
def test_whatever_a_kernel_raises_is_typed(machine: Machine, thrown: type[BaseException]) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        raise thrown

    found = error(machine, kernel)
    assert found.code == "AHBM-K210" and thrown.__name__ in found.message
    assert isinstance(found.__cause__, thrown)


def twice(machine: Machine, kernel: Kernel) -> KernelError:
    builder = make_builder(machine)
    call = kernel, (BASE,), (0, 0, 0), (1, 1), [(BASE, 1024)], "f16"
    body = builder.capture(*call)
    with pytest.raises(KernelError) as caught:
        builder.recapture(*call, body)
    return caught.value


def test_a_second_call_does_the_same(machine: Machine) -> None:
    turns = itertools.count()

    def other_line(t_ptr: int, tl: Any) -> None:
        if next(turns) % 2:
            tl.load(t_ptr, 8)
        tl.zeros(8)

    def other_operand(t_ptr: int, tl: Any) -> None:
        tl.load(t_ptr + 16 * (next(turns) % 2), 8)

    def shorter(t_ptr: int, tl: Any) -> None:
        tl.load(t_ptr, 8)
        if next(turns) % 2 == 0:
            tl.zeros(8)

    def other_calls(t_ptr: int, tl: Any) -> None:
        if next(turns) % 2:
            tl.program_id(0)
        tl.zeros(8)

    for kernel, lines in ((other_line, (3, 2)), (other_operand, (1, 1)), (shorter, (3, 0)), (other_calls, (3, 2))):
        turns = itertools.count()
        found = twice(machine, kernel)
        assert found.code == "AHBM-K216"
        # A line stands for the calls since the operation before it; the last one records.
        assert found.sites[0].origin == line_of(kernel, lines[0])
        assert kernel is other_calls or found.sites[1].origin == line_of(kernel, lines[1])
        assert found.sites[0].label != found.sites[1].label


def test_a_second_call_that_does_the_same_changes_nothing(machine: Machine) -> None:
    def kernel(t_ptr: int, tl: Any) -> None:
        tl.store(t_ptr, tl.load(t_ptr, 8) + 1)

    hashes = []
    for again in (False, True):
        builder = make_builder(machine)
        call = kernel, (BASE,), (0, 0, 0), (1, 1), [(BASE, 1024)], "f16"
        body = builder.capture(*call)
        if again:
            builder.recapture(*call, body)
        builder.agent(builder.group(), (0, 0, 0), (0, 0, 0), body, [builder.buffer((0, 0, 0), 1024)])
        program = builder.finish()
        hashes.append((program.hash, program.calls, program.text()))
    assert hashes[0] == hashes[1]


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
