"""Collectives as upstream's synthesizer describes them: which ranks begin and end with each chunk.

Programs of MSCCLang import this module without using it; `ahbm synth` takes collectives by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

Holds: TypeAlias = Callable[[int, int], bool]
"""Whether a rank has a chunk."""


@dataclass(frozen=True)
class Chunk:
    """The ranks that begin with a chunk, those that end with it, and its place in their buffers."""

    precondition: frozenset[int]
    postcondition: frozenset[int]
    address: int


class Collective:
    """Chunks of `num_nodes` ranks."""

    def __init__(self, name: str, num_nodes: int, chunks: Iterable[Chunk], runtime_name: str = "custom") -> None:
        self.name, self.num_nodes, self.runtime_name = name, num_nodes, runtime_name
        self._chunks = list(chunks)
        self.num_chunks = len(self._chunks)

    def ranks(self) -> range:
        """The ranks."""
        return range(self.num_nodes)

    def chunks(self) -> range:
        """The numbers of the chunks."""
        return range(self.num_chunks)

    def precondition(self, rank: int, chunk: int) -> bool:
        """Whether the rank begins with the chunk."""
        return rank in self._chunks[chunk].precondition

    def postcondition(self, rank: int, chunk: int) -> bool:
        """Whether the rank ends with the chunk."""
        return rank in self._chunks[chunk].postcondition

    def address(self, chunk: int) -> int:
        """The place of the chunk."""
        return self._chunks[chunk].address

    def chunk_up(self, div: int) -> Collective:
        """With every chunk in `div` parts. Raises ValueError for less than one."""
        if div < 1:
            raise ValueError(f"a chunk in {div} parts")
        parts = [
            Chunk(chunk.precondition, chunk.postcondition, chunk.address * div + i)
            for chunk in self._chunks
            for i in range(div)
        ]
        return self if div == 1 else Collective(f"{self.name},chunks={div}", self.num_nodes, parts, self.runtime_name)


def build_collective(
    name: str,
    num_nodes: int,
    num_chunks: int,
    precondition: Holds,
    postcondition: Holds,
    address: Callable[[int], int] = lambda chunk: chunk,
    runtime_name: str = "custom",
) -> Collective:
    """A collective by what holds before and after."""

    def ranks(chunk: int, holds: Holds) -> frozenset[int]:
        return frozenset(rank for rank in range(num_nodes) if holds(rank, chunk))

    chunks = [Chunk(ranks(i, precondition), ranks(i, postcondition), address(i)) for i in range(num_chunks)]
    return Collective(name, num_nodes, chunks, runtime_name)


def broadcast(num_nodes: int, root: int) -> Collective:
    """The root's chunk everywhere."""
    return build_collective(
        f"Broadcast(n={num_nodes},root={root})", num_nodes, 1, lambda r, c: r == root, lambda r, c: True
    )


def scatter(num_nodes: int, root: int) -> Collective:
    """Chunk i of the root at rank i."""
    return build_collective(
        f"Scatter(n={num_nodes},root={root})", num_nodes, num_nodes, lambda r, c: r == root, lambda r, c: r == c
    )


def gather(num_nodes: int, root: int) -> Collective:
    """The chunk of every rank at the root."""
    return build_collective(
        f"Gather(n={num_nodes},root={root})", num_nodes, num_nodes, lambda r, c: r == c, lambda r, c: r == root
    )


def allgather(num_nodes: int) -> Collective:
    """The chunk of every rank everywhere."""
    return build_collective(
        f"Allgather(n={num_nodes})",
        num_nodes,
        num_nodes,
        lambda r, c: r == c,
        lambda r, c: True,
        runtime_name="allgather",
    )


def alltoall(num_nodes: int) -> Collective:
    """Chunk d of rank r at rank d, as its chunk r."""
    return build_collective(
        f"Alltoall(n={num_nodes})",
        num_nodes,
        num_nodes * num_nodes,
        lambda r, c: r == c % num_nodes,
        lambda r, c: r == c // num_nodes,
        runtime_name="alltoall",
    )
