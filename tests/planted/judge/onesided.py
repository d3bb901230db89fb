"""MSCCL++ execution plans (JSON) as a subject of the judge."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np

from .buffers import NAMES, Buffers
from .world import Agent, Array, Counter, InvalidError, World

Op = dict[str, Any]
Place = tuple[int, str, int, int]
"""Rank, letter, first chunk, chunks."""
REDUCE = {"sum": np.add, "min": np.minimum, "max": np.maximum}
MOVES = ("put", "pws", "pwsf", "get", "copy", "ppkt", "rppkt", "cpkt", "upkt")
REDUCES = ("re", "res", "rre", "rres", "repkt", "respkt")
READS_PACKETS = ("upkt", "rppkt", "repkt", "respkt")
WRITES_PACKETS = ("ppkt", "rppkt", "cpkt")


class OneSided:
    """A plan of thread blocks that read and write each other's memory, and of signals, semaphores and barriers."""

    def __init__(self, text: str) -> None:
        plan = json.loads(text)
        self.gpus = sorted(plan["gpus"], key=lambda gpu: int(gpu["id"]))
        self.ranks, self.double = len(self.gpus), plan.get("use_double_scratch_buffer", False)
        letters = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}
        sizes = [{letter: gpu[key] for letter, key in letters.items()} for gpu in self.gpus]
        for size in sizes:
            size["p"] = size["s"] = size["s"] * (2 if self.double else 1)
        # The operator is the plan's own, if it has one.
        blocks = [block for gpu in self.gpus for block in gpu["threadblocks"]]
        named = {op["reduce_op"] for block in blocks for op in block["ops"] if "reduce_op" in op}
        op = named.pop() if len(named) == 1 else "sum"
        self.buffers = Buffers(NAMES[plan["collective"].replace("_", "")], plan["inplace"], sizes, op)

    def blocks(self, rank: int) -> int:
        return len(self.gpus[rank]["threadblocks"])

    def enter(self, world: World) -> None:
        self.buffers.enter(world)
        self.ends: dict[tuple[str, int, int, int], Counter] = defaultdict(Counter)
        given = {(g, s): semaphore["init_value"] for g, gpu in enumerate(self.gpus)
                 for s, semaphore in enumerate(gpu.get("semaphores", []))}  # fmt: skip
        self.semaphores = {key: Counter(initial) for key, initial in given.items()}
        self.barriers: dict[tuple[int, int], list[Array]] = defaultdict(list)
        self.packets: dict[tuple[int, int], tuple[int, Array]] = {}

    def fill(self, world: World, rank: int, call: int) -> None:
        self.buffers.fill(world, rank, call)

    def compare(self, world: World, rank: int, call: int) -> str | None:
        return self.buffers.compare(rank, call)

    def left(self) -> str | None:
        counters = {**self.ends, **self.semaphores}
        return next((f"signals at {key}" for key, counter in counters.items() if counter.left()), None)

    def block(self, world: World, rank: int, block: int, call: int) -> Agent:
        place = (rank, block)
        for op in self.gpus[rank]["threadblocks"][block]["ops"]:
            name = op["name"]
            if name in ("signal", "rlxsignal"):
                self._signal(world, place, op)
            elif name in ("wait", "rlxwait"):
                for index in op["channel_ids"]:
                    kind, peer, nth = self._end(place, op, index)
                    counter = self.ends[kind, rank, peer, nth]
                    yield counter.ready
                    counter.wait(world)
            elif name == "sem_release":
                for index in op["semaphore_ids"]:
                    self._semaphore(rank, index).signal(world)
            elif name == "sem_acquire":
                for index in op["semaphore_ids"]:
                    semaphore = self._semaphore(rank, index)
                    yield semaphore.ready
                    semaphore.wait(world)
            elif name == "barrier":
                yield from self._barrier(world, place, op)
            elif name == "flush":
                yield from world.flush(place)
            elif name in MOVES or name in REDUCES:
                yield from self._move(world, place, op, call)
            elif name != "nop":
                raise InvalidError(f"operation {name}")
            yield None

    def _move(self, world: World, place: tuple[int, int], op: Op, call: int) -> Agent:
        """Reads the sources, then writes the results: at once in the rank's own memory, later in another's."""
        name = op["name"]
        if "tbg_info" in op:
            raise InvalidError("a group of thread blocks")
        sources = [self._operand(place, op, ref) for ref in op["src_buff"]]
        targets = [self._operand(place, op, ref) for ref in op["dst_buff"]]
        packets = [name in READS_PACKETS and (name in ("upkt", "rppkt") or at > 0) for at in range(len(sources))]
        read = []
        for source, packed in zip(sources, packets, strict=True):
            rank, letter, first, count = source = self._half(source, call)
            if packed:
                chunks = range(first, first + count)
                if letter != "s" or first + count > self.buffers.chunks[rank]["s"]:
                    raise InvalidError("packets outside scratch")
                yield lambda rank=rank, chunks=chunks: all(  # type: ignore[misc]
                    self.packets.get((rank, c), (-1, None))[0] >= call for c in chunks
                )
                for chunk in chunks:
                    world.hear(self.packets[rank, chunk][1])
            read.append(self.buffers.read(rank, "p" if packed else letter, first, count))
            yield None
        if name in REDUCES:
            if len({len(values) for values in read}) != 1:
                raise InvalidError("operands of different sizes")
            total = read[0]
            for values in read[1:]:
                total = REDUCE[op["reduce_op"]](total, values)
            read = [total] * len(targets)
        elif len(read) != len(targets):
            raise InvalidError("as many destinations as sources")
        for at, (target, values) in enumerate(zip(targets, read, strict=True)):
            target = self._half(target, call)
            if len(values) != target[3]:
                raise InvalidError("a destination of another size")
            packed = name in WRITES_PACKETS or (name == "respkt" and at > 0)

            def arrive(target: Place = target, values: Array = values, packed: bool = packed) -> None:
                rank, letter, first, count = target
                self.buffers.write(rank, "p" if packed else letter, first, values)
                if packed:
                    clock = world.clock.copy()
                    self.packets.update({(rank, chunk): (call, clock) for chunk in range(first, first + count)})

            if target[0] == place[0]:
                arrive()
            else:
                world.post(place, arrive)
            yield None
        if name in ("pws", "pwsf"):
            self._signal(world, place, op)
        if name == "pwsf":
            yield from world.flush(place)

    def _signal(self, world: World, place: tuple[int, int], op: Op) -> None:
        for index in op["channel_ids"]:
            kind, peer, nth = self._end(place, op, index)
            counter = self.ends[kind, peer, place[0], nth]
            world.post(place, lambda counter=counter: counter.signal(world), signal=True)  # type: ignore[misc]

    def _barrier(self, world: World, place: tuple[int, int], op: Op) -> Agent:
        arrived, needed = self.barriers[place[0], op["barrier_id"]], op["num_threadblocks"]
        yield from world.flush(place)
        turn = len(arrived) // needed
        arrived.append(world.clock.copy())
        yield lambda: len(arrived) >= (turn + 1) * needed
        for clock in arrived[turn * needed : (turn + 1) * needed]:
            world.hear(clock)

    def _end(self, place: tuple[int, int], op: Op, index: int) -> tuple[str, int, int]:
        """Kind and peer of a channel, and which of the channels to that peer it is."""
        rank, block = place
        kind = op["channel_type"]
        mine = next((c["channel_ids"] for c in self.gpus[rank]["threadblocks"][block]["channels"]
                     if c["channel_type"] == kind), [])  # fmt: skip
        peers = next((c["connected_to"] for c in self.gpus[rank]["channels"] if c["channel_type"] == kind), [])
        if index >= len(mine) or mine[index] >= len(peers):
            raise InvalidError("a channel that does not exist")
        at = mine[index]
        return kind, peers[at], peers[:at].count(peers[at])

    def _semaphore(self, rank: int, index: int) -> Counter:
        if (rank, index) not in self.semaphores:
            raise InvalidError("a semaphore that does not exist")
        return self.semaphores[rank, index]

    def _operand(self, place: tuple[int, int], op: Op, ref: Op) -> Place:
        rank, block = place
        if "type" in ref:
            return rank, ref["type"], ref["index"], ref["size"]
        kind = op.get("channel_type", "memory")
        ids = next((r["remote_buffer_ids"] for r in self.gpus[rank]["threadblocks"][block]["remote_buffer_refs"]
                    if r["access_channel_type"] == kind), [])  # fmt: skip
        buffers = self.gpus[rank]["remote_buffers"]
        if ref["buffer_id"] >= len(ids) or ids[ref["buffer_id"]] >= len(buffers):
            raise InvalidError("a buffer that does not exist")
        buffer = buffers[ids[ref["buffer_id"]]]
        return buffer["rank"], buffer["type"], ref["index"], ref["size"]

    def _half(self, place: Place, call: int) -> Place:
        """With a double scratch, calls use the halves in turn."""
        rank, letter, first, count = place
        if letter != "s" or not self.double:
            return place
        half = self.buffers.chunks[rank]["s"] // 2
        if first + count > half:
            raise InvalidError("outside its half of scratch")
        return rank, letter, first + call % 2 * half, count
