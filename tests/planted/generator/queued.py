"""Right plans of thread blocks with queues, as values that can be changed and written as MSCCL-IR."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

At = tuple[str, int]
"""A buffer's letter and a chunk."""


@dataclass(eq=False)
class Step:
    """A step; others may depend on it."""

    kind: str
    source: At = ("i", 0)
    target: At = ("i", 0)
    count: int = 1
    on: Step | None = None
    reports: bool = False


@dataclass(eq=False)
class Block:
    """A thread block and the peers that it sends to and receives from."""

    send: int = -1
    recv: int = -1
    chan: int = 0
    steps: list[Step] = field(default_factory=list)


@dataclass(eq=False)
class Queued:
    """A plan."""

    collective: str
    in_place: bool
    chunks: tuple[int, int, int]
    ranks: list[list[Block]]

    def text(self) -> str:
        """The plan as MSCCL-IR."""
        n = len(self.ranks)
        head = f'coll="{self.collective}" inplace="{int(self.in_place)}" outofplace="{int(not self.in_place)}"'
        lines = [
            f'<algo name="planted" proto="Simple" nchannels="4" nchunksperloop="{max(self.chunks[:2])}" ngpus="{n}" '
            f'{head} minBytes="0" maxBytes="0">'
        ]
        for rank, blocks in enumerate(self.ranks):
            i, o, s = self.chunks
            lines.append(f'<gpu id="{rank}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">')
            where = {step: (b, at) for b, block in enumerate(blocks) for at, step in enumerate(block.steps)}
            for b, block in enumerate(blocks):
                lines.append(f'<tb id="{b}" send="{block.send}" recv="{block.recv}" chan="{block.chan}">')
                for at, step in enumerate(block.steps):
                    depid, deps = where.get(step.on, (-1, -1)) if step.on else (-1, -1)
                    lines.append(
                        f'<step s="{at}" type="{step.kind}" srcbuf="{step.source[0]}" srcoff="{step.source[1]}" '
                        f'dstbuf="{step.target[0]}" dstoff="{step.target[1]}" cnt="{step.count}" depid="{depid}" '
                        f'deps="{deps}" hasdep="{int(step.reports)}"/>'
                    )
                lines.append("</tb>")
            lines.append("</gpu>")
        return "\n".join([*lines, "</algo>"])


def after(step: Step, kind: str, source: At, target: At) -> Step:
    """A step that depends on `step`."""
    step.reports = True
    return Step(kind, source, target, on=step)


def ring(n: int, chance: Random) -> Queued:
    """All-reduce, around a ring in a random order, fused or not."""
    order, fused = chance.sample(range(n), n), chance.random() < 0.5
    ranks: list[list[Block]] = [[] for _ in range(n)]
    for place, rank in enumerate(order):
        steps = []
        if fused:
            kinds = ["s", *["rrs"] * (n - 2), "rrcs", *["rcs"] * (n - 2), "r"]
            steps = [Step(kind, ("i", (place - k) % n), ("i", (place - k) % n)) for k, kind in enumerate(kinds)]
        else:
            for k in range(2 * (n - 1)):
                out, arriving = ("i", (place - k) % n), ("i", (place - k - 1) % n)
                steps += [Step("s", out, out), Step("rrc" if k < n - 1 else "r", arriving, arriving)]
        ranks[rank] = [Block(order[(place + 1) % n], order[place - 1], 0, steps)]
    return Queued("allreduce", True, (n, n, 0), ranks)


def gathering_ring(n: int, chance: Random) -> Queued:
    """All-gather around a ring, one or two chunks each, in place."""
    size, ranks = chance.choice([1, 2]), []
    for rank in range(n):
        steps = [Step("s", ("o", rank * size), ("o", rank * size), size)]
        for k in range(1, n):
            at = ("o", (rank - k) % n * size)
            steps.append(Step("rcs" if k < n - 1 else "r", at, at, size))
        ranks.append([Block((rank + 1) % n, (rank - 1) % n, 0, steps)])
    return Queued("allgather", True, (size, n * size, 0), ranks)


def tree(n: int, chance: Random, collective: str = "") -> Queued:
    """Broadcast, reduce or all-reduce along a random tree, one thread block for each edge and way."""
    collective = collective or chance.choice(["broadcast", "reduce", "allreduce"])
    parent = {rank: chance.randrange(rank) for rank in range(1, n)}
    chunks = chance.choice([1, 2])
    ranks: list[list[Block]] = [[] for _ in range(n)]
    spaces = ("i", "i") if collective == "allreduce" else ("i", "o")
    for rank in range(n):
        children = [child for child in parent if parent[child] == rank]
        last: list[Step | None] = [None] * chunks
        for chunk in range(chunks):
            own, result = (spaces[0], chunk), (spaces[1], chunk)
            if collective == "reduce" and (rank == 0 or children):
                ranks[rank].append(Block(steps=[Step("cpy", own, result)]))
                last[chunk] = ranks[rank][-1].steps[0]
        if collective in ("reduce", "allreduce"):
            for child in children:
                block = Block(recv=child)
                for chunk in range(chunks):
                    at = (spaces[1], chunk)
                    block.steps.append(_then(last[chunk], Step("rrc", at, at)))
                    last[chunk] = block.steps[-1]
                ranks[rank].append(block)
            if rank:
                source = "o" if collective == "reduce" and children else "i"
                block = Block(send=parent[rank])
                block.steps = [
                    _then(last[chunk], Step("s", (source, chunk), (source, chunk))) for chunk in range(chunks)
                ]
                ranks[rank].append(block)
        if collective in ("broadcast", "allreduce"):
            if rank:
                block = Block(recv=parent[rank], chan=1)
                for chunk in range(chunks):
                    at = (spaces[1], chunk)
                    before = ranks[rank][-1].steps[chunk] if collective == "allreduce" else None
                    block.steps.append(_then(before, Step("r", at, at)))
                    last[chunk] = block.steps[-1]
                ranks[rank].append(block)
            elif collective == "broadcast":
                ranks[rank].append(Block(steps=[Step("cpy", ("i", chunk), ("o", chunk)) for chunk in range(chunks)]))
            for child in children:
                source = spaces[1] if rank else "i"
                block = Block(send=child, chan=1)
                block.steps = [
                    _then(last[chunk], Step("s", (source, chunk), (source, chunk))) for chunk in range(chunks)
                ]
                ranks[rank].append(block)
    return Queued(collective, collective == "allreduce", (chunks, chunks, 0), ranks)


def _then(before: Step | None, step: Step) -> Step:
    if before is not None:
        before.reports = True
        step.on = before
    return step


def direct(n: int, chance: Random, collective: str = "") -> Queued:
    """Everybody exchanges with everybody, or with the root; reductions pass through scratch."""
    collective = collective or chance.choice(
        ["allgather", "alltoall", "reducescatter", "allreduce", "gather", "scatter"]
    )
    spread = collective in ("alltoall", "reducescatter", "scatter")
    collects = collective in ("allgather", "alltoall", "gather")
    ranks: list[list[Block]] = []
    for rank in range(n):
        own = ("i", rank if spread else 0)
        takes = rank == 0 or collective not in ("gather",)
        blocks = [Block(steps=[Step("cpy", own, ("o", rank if collects else 0))])] if takes else []
        if rank and collective == "scatter":
            blocks = []
        added = blocks[0].steps[0] if blocks else None
        adder = Block(steps=[])
        for peer in chance.sample(range(n), n):
            sends = peer != rank and (collective != "gather" or peer == 0) and (collective != "scatter" or rank == 0)
            takes = peer != rank and (collective != "gather" or rank == 0) and (collective != "scatter" or peer == 0)
            if not sends and not takes:
                continue
            block = Block(peer if sends else -1, peer if takes else -1, 0)
            if sends:
                block.steps.append(Step("s", ("i", peer if spread else 0), ("o", 0)))
            if takes and collective in ("allreduce", "reducescatter"):
                block.steps.append(Step("r", ("s", peer), ("s", peer)))
                adder.steps.append(after(block.steps[-1], "re", ("s", peer), ("o", 0)))
            elif takes:
                at = ("o", peer if collects else 0)
                block.steps.append(Step("r", at, at))
            blocks.append(block)
        if adder.steps and added is not None:
            # One thread block adds: the copy of the own input comes first, in the same block.
            adder.steps.insert(0, blocks.pop(0).steps[0])
            blocks.append(adder)
        ranks.append(blocks)
    many = (n if spread else 1, n if collects else 1, n)
    return Queued(collective, False, many, ranks)


def doubling(n: int, chance: Random) -> Queued:
    """All-reduce by recursive doubling, a thread block per round; `n` is a power of two."""
    ranks = []
    for rank in range(n):
        blocks: list[Block] = []
        for k in range(n.bit_length() - 1):
            peer = rank ^ (1 << k)
            send, add = Step("s"), Step("re", ("s", k), ("i", 0))
            if blocks:
                _then(blocks[-1].steps[-1], send)
            blocks.append(Block(peer, peer, 0, [send, Step("r", ("s", k), ("s", k)), add]))
        ranks.append(blocks)
    return Queued("allreduce", True, (1, 1, n.bit_length() - 1), ranks)


def source(chance: Random, n: int) -> Queued:
    """A random right plan among `n` ranks."""
    makers = [ring, gathering_ring, tree, tree, direct, direct, direct]
    if n & (n - 1) == 0:
        makers.append(doubling)
    return chance.choice(makers)(n, chance)
