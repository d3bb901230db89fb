"""Kernels captured on one PE, for the tests of the recording context and of the builder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ahbm._core import Machine, Program, ProgramBuilder
from ahbm.errors import KernelError

BASE = 0x1000
Kernel = Callable[..., Any]


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
    """File and line of a kernel's line, as origins name it."""
    return f"{Path(kernel.__code__.co_filename).name}:{kernel.__code__.co_firstlineno + offset}"
