"""Host arrays to and from the buffers of a program, piece by piece."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ahbm._core import Memory, Program, ProgramBuilder
from ahbm.config.topology import load_machine
from ahbm.errors import DataError


@pytest.fixture
def program() -> Program:
    """No kernel, two buffers of 8 and 16 bytes."""
    machine = load_machine(None, {})
    builder = ProgramBuilder(machine, "memory", n_slots=1, slot_bytes=None, tier="tcm", credit_bytes=16, op_budget=10)
    builder.buffer((0, 0, 0), 8)
    builder.buffer((0, 1, 0), 16)
    return builder.finish()


def run(program: Program, array: NDArray[np.int64], operands: list[list[int]], results: list[list[int]]) -> Memory:
    """Takes `operands` from `array` into memory and `results` back; nothing happens between."""
    memory = Memory(program)
    rows = [[np.array(pieces, np.int64).reshape(-1, 4)] for pieces in (operands, results)]
    memory.run(program.simulate(), [array], *rows)
    return memory


def test_what_is_scattered_is_gathered(program: Program) -> None:
    pieces = [[0, 0, 0, 8], [1, 16, 8, 8], [1, 8, 0, 8]]
    data = np.arange(3, dtype=np.int64) + 10
    memory = run(program, data, pieces, [[1, 0, 8, 8]])
    second = np.zeros(2, np.int64)
    memory.read(1, second)
    assert list(second) == [11, 12]
    assert list(data) == [12, 11, 12]


@pytest.mark.parametrize(
    "piece",
    [[0, 0, 0, 9], [2, 0, 0, 1], [0, 20, 0, 8], [0, -1, 0, 1], [0, 0, -1, 1], [0, 2**62, 0, 8], [0, 0, 2**62, 8]],
)
def test_pieces_outside_either_side_are_errors(program: Program, piece: list[int]) -> None:
    for operands, results in (([piece], []), ([], [piece])):
        with pytest.raises(DataError, match="AHBM-V121"):
            run(program, np.zeros(3, np.int64), operands, results)


def test_a_read_only_array_is_an_error(program: Program) -> None:
    array = np.zeros(1, np.int64)
    array.flags.writeable = False
    with pytest.raises(DataError, match="AHBM-V122"):
        run(program, array, [], [[0, 0, 0, 8]])


def test_every_array_has_its_pieces(program: Program) -> None:
    with pytest.raises(DataError, match="AHBM-V121"):
        Memory(program).run(program.simulate(), [np.zeros(1)], [], [])


def test_the_timeline_is_that_of_the_program(program: Program) -> None:
    other = program.delayed([])
    with pytest.raises(DataError, match="AHBM-V120"):
        Memory(program).run(other.simulate(), [], [], [])
