"""The program builder, and what its programs do."""

from __future__ import annotations

import _thread
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from ahbm._core import Machine, Memory, Program, ProgramBuilder
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError, BudgetError, ConfigError, DeadlockError, KernelError, LintError, TopologyError
from support.core import capture, error, line_of, make_builder, program


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(None)


@pytest.fixture
def builder(machine: Machine) -> ProgramBuilder:
    return make_builder(machine)


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
    memory.replay(timeline)
    for sip in range(machine.sips):
        out = np.zeros(8, np.float16)
        memory.read(sip, out)
        assert (out == (sip - 1) % machine.sips + 1).all()
    other = program(machine, kernel=lambda t_ptr, tl: tl.store(t_ptr, tl.zeros(4)))
    with pytest.raises(AhbmError, match="AHBM-V120"):
        Memory(other).replay(timeline)


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
    memory.replay(made.simulate())
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
