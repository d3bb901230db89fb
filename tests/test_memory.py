"""Host arrays to and from the buffers of a program, piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from ahbm._core import Memory, Program, ProgramBuilder
from ahbm.errors import DataError
from ahbm.topology import load_machine


@pytest.fixture
def program() -> Program:
    """No kernel, two buffers of 8 and 16 bytes."""
    machine = load_machine(None, {})
    builder = ProgramBuilder(machine, "memory", n_slots=1, slot_bytes=None, tier="tcm", credit_bytes=16, op_budget=10)
    builder.buffer((0, 0, 0), 8)
    builder.buffer((0, 1, 0), 16)
    return builder.finish()


def test_what_is_scattered_is_gathered(program: Program) -> None:
    memory = Memory(program)
    pieces = np.array([[0, 0, 0, 8], [1, 16, 8, 8], [1, 8, 0, 8]], np.int64)
    data = np.arange(3, dtype=np.int64) + 10
    memory.scatter(data, pieces)
    second = np.zeros(2, np.int64)
    memory.read(1, second)
    assert list(second) == [11, 12]
    out = np.zeros(3, np.int64)
    memory.gather(out, pieces)
    assert list(out) == [10, 11, 12]


@pytest.mark.parametrize(
    "piece",
    [[0, 0, 0, 9], [2, 0, 0, 1], [0, 20, 0, 8], [0, -1, 0, 1], [0, 0, -1, 1], [0, 2**62, 0, 8], [0, 0, 2**62, 8]],
)
def test_pieces_outside_either_side_are_errors(program: Program, piece: list[int]) -> None:
    memory, array, pieces = Memory(program), np.zeros(3, np.int64), np.array([piece], np.int64)
    for move in (memory.scatter, memory.gather):
        with pytest.raises(DataError, match="AHBM-V121"):
            move(array, pieces)


def test_a_read_only_array_gathers_nothing(program: Program) -> None:
    array = np.zeros(1, np.int64)
    array.flags.writeable = False
    with pytest.raises(DataError, match="AHBM-V122"):
        Memory(program).gather(array, np.array([[0, 0, 0, 8]], np.int64))
