"""What is in a slot, as programs see it: `Chunk`, `ReduceChunk`, and the buffers of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, overload

from ahbm._core import MscclRecorder
from ahbm.dsl.msccl.refusals import here, refuse


class Buffer(Enum):
    """The buffers of a rank. Slices of scratch have names of their own."""

    input = "i"
    output = "o"
    scratch = "s"

    def __str__(self) -> str:
        return str(self.value)

    def __lt__(self, other: Buffer) -> bool:
        return str(self.value) < str(other.value)

    def __gt__(self, other: Buffer) -> bool:
        return str(self.value) > str(other.value)


@dataclass(eq=False)
class Chunk:
    """A chunk of an input: where it was, and where it has to end (-1: everywhere). Equal by where it was."""

    origin_rank: int
    origin_index: int
    dst_rank: int = -1
    dst_index: int = -1

    def reduce(self, dst: int, chunk: Chunk | ReduceChunk) -> ReduceChunk:
        """The sum of both, made at rank `dst`."""
        if isinstance(chunk, ReduceChunk):
            return chunk.reduce(dst, self)
        return ReduceChunk(dst, [self, chunk])

    def _key(self) -> tuple[int, int]:
        return self.origin_rank, self.origin_index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunk) and self._key() == other._key()

    def __lt__(self, other: Chunk) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(eq=False)
class ReduceChunk:
    """A sum: the rank that began it, and the chunks it is made of, repetitions included. Equal by its chunks."""

    creation_rank: int
    chunks: list[Chunk]

    def reduce(self, dst: int, chunk: Chunk | ReduceChunk) -> ReduceChunk:
        """The sum of both."""
        more = chunk.chunks if isinstance(chunk, ReduceChunk) else [chunk]
        return ReduceChunk(self.creation_rank, self.chunks + more)

    def sort(self) -> None:
        """Sorts the chunks."""
        self.chunks.sort()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReduceChunk) and sorted(self.chunks) == sorted(other.chunks)

    def __hash__(self) -> int:
        return hash((self.creation_rank, *sorted(self.chunks)))


class BufferSlice:
    """A list of chunks that grows when something is written behind its end: a slice of scratch."""

    def __init__(self, buf: Buffer, name: str) -> None:
        self.buf, self.name, self.chunks = buf, name, list[Chunk | None]()

    def instance_size(self) -> int:
        """Slots of one instance."""
        return len(self.chunks)

    def get_buffer(self) -> Buffer:
        """The buffer that it is a slice of."""
        return self.buf

    def __getitem__(self, index: int) -> Chunk | None:
        return self.chunks[index]

    def __setitem__(self, index: int, value: Chunk | None) -> None:
        self.chunks.extend([None] * (index + 1 - len(self.chunks)))
        self.chunks[index] = value

    def __len__(self) -> int:
        return len(self.chunks)


class Slots(Sequence[Chunk | ReduceChunk | None]):
    """The slots of a buffer at this moment; what is in them is computed when it is asked for."""

    def __init__(self, program: MscclRecorder, rank: int, buffer: Any) -> None:
        self._program, self._rank, self._buffer = program, rank, buffer

    def __len__(self) -> int:
        return self._program._length(self._rank, self._buffer) or 0

    def instance_size(self) -> int:
        """Slots of one instance."""
        return len(self)

    @overload
    def __getitem__(self, index: int) -> Chunk | ReduceChunk | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunk | ReduceChunk | None]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        length = len(self)
        if not -length <= index < length:
            refuse("IndexError", "AHBM-A203", f"list index out of range: slot {index} of {length}", origin=here())
        found = self._program._value(self._rank, self._buffer, index % length)
        if found is None:
            return None
        creator, parts = found
        chunks = [Chunk(*part) for part in parts]
        return chunks[0] if creator is None else ReduceChunk(creator, chunks)

    def __setitem__(self, index: int, value: object) -> None:
        refuse("TypeError", "AHBM-A211", "prog.buffers is read: copy() and reduce() write slots", origin=here())


class RankBuffers(Mapping[Any, Slots]):
    """The buffers of a rank, by `Buffer.input`, `Buffer.output`, and the names of slices of scratch."""

    def __init__(self, program: MscclRecorder, rank: int) -> None:
        self._program, self._rank = program, rank

    def __getitem__(self, buffer: Any) -> Slots:
        if self._program._length(self._rank, buffer) is None:
            refuse("KeyError", "AHBM-A203", f"rank {self._rank} has no buffer {buffer!r}", origin=here())
        return Slots(self._program, self._rank, buffer)

    def __contains__(self, buffer: object) -> bool:
        return self._program._length(self._rank, buffer) is not None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._program._names(self._rank))

    def __len__(self) -> int:
        return len(self._program._names(self._rank))
