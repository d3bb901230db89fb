"""Chunks: slices of buffers."""

from __future__ import annotations

from itertools import count

from ahbm.dsl.mscclpp.internal.enums import BufferType
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.numbers import SPACES, natural, space

_objects = count()


class Chunk(tuple[int, int, int, int, int]):
    """Consecutive chunks of a rank's buffer, as a recorder takes them: rank, number of the buffer, first chunk, how
    many, and which object says so. Immutable; equal to another of the same chunks."""

    __slots__ = ()

    def __new__(cls, rank: int, buffer: BufferType | str, index: int, size: int) -> Chunk:
        """Raises `ProgramError` (AHBM-A105, a ValueError) for no chunks, and for numbers that are none."""
        first, length = natural("the index", index), natural("the size", size)
        if length == 0 or first + length >= 2**32:
            raise fault("ValueError", "AHBM-A105", f"{length} chunks from {first} on")
        return cls.of(natural("the rank", rank), space(buffer), first, length)

    @classmethod
    def of(cls, rank: int, space: int, index: int, size: int) -> Chunk:
        """Chunks by numbers that are known to be right."""
        return tuple.__new__(cls, (rank, space, index, size, next(_objects) & 0xFFFFFFFF))

    @property
    def rank(self) -> int:
        """Whose they are."""
        return self[0]

    @property
    def buffer(self) -> BufferType:
        """Which buffer."""
        return SPACES[self[1]]

    @property
    def index(self) -> int:  # type: ignore[override]  # the language's name
        """The first of them."""
        return self[2]

    @property
    def size(self) -> int:
        """How many."""
        return self[3]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunk) and self[:4] == other[:4]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:4])

    def __repr__(self) -> str:
        return f"Chunk(rank={self.rank}, buffer={self.buffer.name}, index={self.index}, size={self.size})"
