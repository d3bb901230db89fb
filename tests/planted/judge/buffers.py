"""The input, output and scratch of a plan's ranks, and what a collective makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .world import Array, InvalidError, Memory, World, early, expected

WIDTH = 2
"""Elements of a chunk."""
NAMES = {name.replace("_", ""): name for name in (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
)}  # fmt: skip


@dataclass
class Buffers:
    """Memory of a plan. A place is a rank and a letter: `i`, `o`, `s`, and `p` for packets."""

    collective: str
    in_place: bool
    chunks: list[dict[str, int]]
    """By rank and letter."""
    op: str = "sum"

    def enter(self, world: World) -> None:
        """New memory."""
        self.memory: dict[tuple[int, str], Memory] = {}
        self.shift: dict[tuple[int, str], int] = {}
        self.inputs: dict[tuple[int, int], Array] = {}
        for rank, sizes in enumerate(self.chunks):
            for letter, size in sizes.items():
                self.memory[rank, letter] = Memory(world, f"rank {rank} {letter}", size, WIDTH)
            if self.in_place and self.collective in ("all_reduce", "broadcast", "all_to_all"):
                sizes["i"] = sizes["o"] = max(sizes["i"], sizes["o"])
                self.memory[rank, "i"] = self.memory[rank, "o"] = Memory(world, f"rank {rank} io", sizes["i"], WIDTH)
            elif self.in_place:
                # The smaller of input and output is the rank's own block of the larger.
                small, large = sorted("io", key=lambda letter: sizes[letter])
                self.memory[rank, small] = self.memory[rank, large]
                if sizes[small] != sizes[large]:
                    self.shift[rank, small] = rank * sizes[small]

    def fill(self, world: World, rank: int, call: int) -> None:
        """New input; garbage elsewhere."""
        for letter in ("o", "i"):
            memory, size = self.memory[rank, letter], self.chunks[rank][letter]
            values = numbers(world, (size, WIDTH))
            if letter == "i":
                self.inputs[rank, call] = values
            if size:
                memory.write(self.shift.get((rank, letter), 0), values)

    def compare(self, rank: int, call: int) -> str | None:
        """The result that a rank reads at its end."""
        ranks = len(self.chunks)
        if told := early(self.collective, ranks, rank, 0, lambda other: (other, call) in self.inputs):
            return told
        given = [self.inputs.get((other, call), self.inputs[rank, call]) for other in range(ranks)]
        want = expected(self.collective, given, rank, 0, self.op)
        if want is None:
            return None
        got = self.read(rank, "o", 0, len(want))
        return None if np.array_equal(got, want) else f"got {got.tolist()}, not {want.tolist()}"

    def read(self, rank: int, letter: str, first: int, count: int) -> Array:
        """Chunks of a place."""
        return self._of(rank, letter, first, count).read(first + self.shift.get((rank, letter), 0), count)

    def write(self, rank: int, letter: str, first: int, values: Array) -> None:
        """Changes chunks of a place."""
        self._of(rank, letter, first, len(values)).write(first + self.shift.get((rank, letter), 0), values)

    def _of(self, rank: int, letter: str, first: int, count: int) -> Memory:
        if not 0 <= first <= first + count <= self.chunks[rank].get(letter, 0):
            raise InvalidError(f"chunks {first}:{first + count} of {letter} of rank {rank}")
        return self.memory[rank, letter]


def numbers(world: World, shape: tuple[int, ...]) -> Array:
    """Numbers that no sum of a few of them gives by accident."""
    return np.frombuffer(world.chance.randbytes(8 * int(np.prod(shape))), np.int64).reshape(shape) >> 16
