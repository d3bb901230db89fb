"""MSCCL-IR (XML) as a subject of the judge."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict

from .buffers import NAMES, Buffers
from .world import Agent, Array, InvalidError, Queue, World

RECEIVES, SENDS, ADDS = ("r", "rrc", "rcs", "rrs", "rrcs"), ("s", "rcs", "rrs", "rrcs"), ("rrc", "rrs", "rrcs")
STORES = ("r", "rrc", "rcs", "rrcs")


class Blocks:
    """A plan of thread blocks that send, receive and depend on each other's steps."""

    def __init__(self, text: str, slots: int | None) -> None:
        plan = ET.fromstring(text)
        self.slots = slots
        gpus = sorted(plan.iter("gpu"), key=lambda gpu: int(gpu.get("id", "0")))
        self.ranks = len(gpus)
        self.steps = [[list(block.iter("step")) for block in gpu.iter("tb")] for gpu in gpus]
        self.peers = [[(_int(tb, "send"), _int(tb, "recv"), _int(tb, "chan")) for tb in gpu.iter("tb")] for gpu in gpus]
        sizes = [{letter: _int(gpu, f"{letter}_chunks") for letter in "ios"} for gpu in gpus]
        collective = NAMES[plan.get("coll", "").replace("_", "")]
        self.buffers = Buffers(collective, plan.get("inplace") == "1", sizes)
        ends = [(rank, *end) for rank, blocks in enumerate(self.peers) for end in blocks]
        for at in (1, 2):
            used = [(end[0], end[at], end[3]) for end in ends if end[at] >= 0]
            if len(used) != len(set(used)):
                raise InvalidError("two thread blocks share an end of a connection")
        if any(not -1 <= peer < self.ranks or peer == end[0] for end in ends for peer in end[1:3]):
            raise InvalidError("a peer that is no other rank")

    def blocks(self, rank: int) -> int:
        return len(self.steps[rank])

    def enter(self, world: World) -> None:
        self.buffers.enter(world)
        self.queues: dict[tuple[int, int, int], Queue] = defaultdict(lambda: Queue(self.slots))
        self.reports: dict[tuple[int, int, int], list[tuple[int, Array]]] = defaultdict(list)

    def fill(self, world: World, rank: int, call: int) -> None:
        self.buffers.fill(world, rank, call)

    def compare(self, world: World, rank: int, call: int) -> str | None:
        return self.buffers.compare(rank, call)

    def left(self) -> str | None:
        return next((f"messages in {key}" for key, queue in self.queues.items() if queue.messages), None)

    def block(self, world: World, rank: int, block: int, call: int) -> Agent:
        send, recv, chan = self.peers[rank][block]
        buffers = self.buffers
        for step in self.steps[rank][block]:
            kind, count = step.get("type", ""), _int(step, "cnt", 1)
            source, target = (
                (step.get("srcbuf", ""), _int(step, "srcoff")),
                (step.get("dstbuf", ""), _int(step, "dstoff")),
            )
            on, least = _int(step, "depid", -1), _int(step, "deps", -1)
            if on >= 0:
                reports = self.reports[call, rank, on]

                def first(reports: list[tuple[int, Array]] = reports, least: int = least) -> Array | None:
                    return next((clock for at, clock in reports if at >= least), None)

                yield lambda first=first: first() is not None  # type: ignore[misc]
                clock = first()
                assert clock is not None
                world.hear(clock)
            data = None
            if kind in RECEIVES:
                if recv < 0:
                    raise InvalidError("a receive without a connection")
                arriving = self.queues[recv, rank, chan]
                yield lambda arriving=arriving: bool(arriving.messages)  # type: ignore[misc]
                data = arriving.take(world)
                if len(data) != count:
                    raise InvalidError("a message of another size")
            if kind in ADDS:
                assert data is not None
                data = data + buffers.read(rank, *source, count)
            if kind == "s":
                data = buffers.read(rank, *source, count)
            if kind in STORES:
                assert data is not None
                buffers.write(rank, *target, data)
            if kind in SENDS:
                if send < 0:
                    raise InvalidError("a send without a connection")
                assert data is not None
                leaving = self.queues[rank, send, chan]
                yield leaving.room
                leaving.put(world, data)
            if kind in RECEIVES:
                arriving.free(world)
            if kind == "cpy":
                buffers.write(rank, *target, buffers.read(rank, *source, count))
            if kind == "re":
                added = buffers.read(rank, *target, count) + buffers.read(rank, *source, count)
                buffers.write(rank, *target, added)
            if step.get("hasdep") == "1":
                self.reports[call, rank, block].append((_int(step, "s"), world.clock.copy()))
            yield None


def _int(element: ET.Element, name: str, default: int = 0) -> int:
    return int(element.get(name, str(default)))
