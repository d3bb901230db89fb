"""Kernels as a subject of the judge: every rank's `tl` calls as a list."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from .world import Agent, Array, InvalidError, Queue, World, WrongError, early, expected

Call = tuple[Any, ...]
"""Name and arguments of a `tl` call; values are numbered. `load v at n dtype`, `store at v`, `zeros v n dtype`,
`cast v a dtype`, `combine v a b op`, `send dir v`, `sendref dir at n dtype`, `recv v dir n dtype`,
`recvto dir n dtype at`. `at` is in bytes from the rank's array."""

NUMBERS = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
}  # fmt: skip
WIDEST = {"f16": 7, "f32": 20, "f64": 49}
"""Bits of floating-point inputs: all sums of a few of them are exact."""
SCALES = (0.25, 1.0, 16.0)
"""What floating-point inputs are multiplied by, call by call: not all of them are whole, not all of them small."""
WHOLE = ("all_gather", "gather", "all_to_all", "reduce_scatter", "scatter")
"""Collectives whose array has one part per rank."""
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


@dataclass
class Kernel:
    """A kernel: what it computes, on how many elements of a type, and its calls by rank."""

    collective: str
    dtype: str
    n: int
    """Elements of an array, or of one rank's part of it."""
    calls: list[list[Call]]
    slots: int = 4
    root: int = 0
    op: str = "sum"

    @property
    def ranks(self) -> int:
        return len(self.calls)

    @property
    def elements(self) -> int:
        """Elements of a rank's array."""
        return self.n * (self.ranks if self.collective in WHOLE else 1)

    def blocks(self, rank: int) -> int:
        return 1

    def enter(self, world: World) -> None:
        size = self.elements * np.dtype(NUMBERS[self.dtype]).itemsize
        self.memory = [np.zeros(size, np.uint8) for _ in self.calls]
        self.queues: dict[tuple[int, str], Queue] = defaultdict(lambda: Queue(self.slots))
        self.inputs: dict[tuple[int, int], Array] = {}
        self.started: dict[tuple[int, int], int] = {}
        self.turn = [""] * self.ranks

    def fill(self, world: World, rank: int, call: int) -> None:
        self.started[rank, call] = int(world.clock[world.me])
        values = self._numbers(world, SCALES[call % len(SCALES)])
        self.memory[rank][:] = values.view(np.uint8)
        own = slice(rank * self.n, (rank + 1) * self.n)
        self.inputs[rank, call] = values[own] if self.collective in ("all_gather", "gather") else values

    def _numbers(self, world: World, scale: float) -> Array:
        kind = np.dtype(NUMBERS[self.dtype])
        raw = np.frombuffer(world.chance.randbytes(8 * self.elements), np.int64)
        if self.dtype in WIDEST:
            return ((raw >> (63 - WIDEST[self.dtype])) * scale).astype(kind)
        return (raw >> 8).astype(kind)

    def compare(self, world: World, rank: int, call: int) -> str | None:
        if self.collective == "barrier":
            heard = [world.clock[other] >= self.started.get((other, call), np.inf) for other in range(self.ranks)]
            return None if all(heard) else f"it ended without having heard of {heard.index(False)}"
        if told := early(self.collective, self.ranks, rank, self.root, lambda other: (other, call) in self.inputs):
            return told
        given = [self.inputs.get((other, call), self.inputs[rank, call]) for other in range(self.ranks)]
        want = expected(self.collective, given, rank, self.root, self.op)
        got = self.memory[rank].view(NUMBERS[self.dtype])
        if self.collective in ("reduce_scatter", "scatter"):
            got = got[rank * self.n : (rank + 1) * self.n]
        return None if want is None or np.array_equal(got, want) else f"got {got.tolist()}, not {want.tolist()}"

    def left(self) -> str | None:
        return next((f"messages in {key}" for key, queue in self.queues.items() if queue.messages), None)

    def block(self, world: World, rank: int, block: int, call: int) -> Agent:
        values: dict[Any, Array] = {}
        memory = self.memory[rank]

        def part(at: int, n: int, dtype: str) -> Array:
            if dtype != self.dtype:
                raise WrongError("refused", f"an access as {dtype} to an array of {self.dtype}")
            size = n * np.dtype(NUMBERS[dtype]).itemsize
            if not 0 <= at <= at + size <= len(memory):
                raise InvalidError("outside the array")
            return memory[at : at + size]

        for name, *rest in self.calls[rank]:
            if name == "load":
                v, at, n, dtype = rest
                values[v] = part(at, n, dtype).copy().view(NUMBERS[dtype])
            elif name == "store":
                at, v = rest
                value = _value(values, v)
                part(at, len(value), _name(value))[:] = value.view(np.uint8)
            elif name == "zeros":
                v, n, dtype = rest
                values[v] = np.zeros(n, NUMBERS[dtype])
            elif name == "cast":
                v, a, dtype = rest
                with np.errstate(all="ignore"):
                    values[v] = _value(values, a).astype(NUMBERS[dtype])
            elif name == "combine":
                v, a, b, op = rest
                one, two = _value(values, a), _value(values, b)
                if one.dtype != two.dtype or len(one) != len(two):
                    raise InvalidError("operands that do not fit")
                with np.errstate(all="ignore"):
                    values[v] = COMBINE[op](one, two)
            elif name in ("send", "sendref"):
                peer, key = self._peer(rank, rest[0])
                queue = self.queues[peer, key]
                yield queue.room
                message = part(*rest[1:]).view(NUMBERS[rest[3]]) if name == "sendref" else _value(values, rest[1])
                queue.put(world, message.copy())
            elif name in ("recv", "recvto"):
                v, way, n, dtype = rest[:4] if name == "recv" else (None, *rest[:3])
                if way is None:
                    yield lambda: bool(self._ready(rank))
                    ready = self._ready(rank)
                    way = next((key for key in ready if key > self.turn[rank]), ready[0])
                    self.turn[rank] = way
                    queue = self.queues[rank, way]
                else:
                    self._peer(rank, way)
                    queue = self.queues[rank, way]
                yield lambda queue=queue: bool(queue.messages)  # type: ignore[misc]
                data = queue.take(world)
                queue.free(world)
                if len(data) != n or data.dtype != np.dtype(NUMBERS[dtype]):
                    raise WrongError("refused", "a message of another size or type")
                if name == "recv":
                    values[v] = data
                else:
                    part(rest[3], n, dtype)[:] = data.view(np.uint8)
            else:
                raise InvalidError(name)
            yield None

    def _peer(self, rank: int, way: str) -> tuple[int, str]:
        """The receiver of a message, and the name of the queue it arrives in there."""
        back = {"global_E": "global_W", "global_W": "global_E"}
        if way in back:
            return (rank + (1 if way == "global_E" else -1)) % self.ranks, back[way]
        peer = int(way.removeprefix("sip"))
        if not 0 <= peer < self.ranks or peer == rank:
            raise InvalidError("a peer that is no other rank")
        return peer, f"sip{rank}"

    def _ready(self, rank: int) -> list[str]:
        return sorted(key for (peer, key), queue in self.queues.items() if peer == rank and queue.messages)


def _value(values: dict[Any, Array], v: Any) -> Array:
    if v not in values:
        raise InvalidError("a value that does not exist yet")
    return values[v]


def _name(value: Array) -> str:
    return next(name for name, kind in NUMBERS.items() if np.dtype(kind) == value.dtype)
