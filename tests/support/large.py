"""Plans of many thread blocks that share memory."""

from __future__ import annotations

import itertools
from typing import Any

Place = tuple[str, int]
"""Buffer and chunk."""
Step = tuple[str, Place, Place, "tuple[int, int] | None"]
"""Type, source, destination, and the block and step it waits for."""


def hierarchical(nodes: int, gpus: int, instances: int, between: int, *, without: int | None = None) -> str:
    """An all-reduce within nodes, between them, and within them again, as MSCCL-IR; one step on each line.

    A rank has 2 * (gpus - 1) * instances + between thread blocks, which share its scratch. The dependency number
    `without` is left out; that line ends in a comment.
    """
    chunks, left = gpus * instances, -1 if without is None else without
    lines = [
        f'<algo name="hierarchical" proto="Simple" nchannels="{2 * instances + between}" nchunksperloop="{chunks}" '
        f'ngpus="{nodes * gpus}" coll="allreduce" inplace="1" outofplace="0" minBytes="0" maxBytes="0">'
    ]
    for rank in range(nodes * gpus):
        lines.append(f'<gpu id="{rank}" i_chunks="{chunks}" o_chunks="0" s_chunks="{chunks + instances * nodes}">')
        blocks = _blocks(rank, nodes, gpus, instances, between)
        waited = {step[3] for *_, steps in blocks for step in steps}
        for block, (send, receive, channel, steps) in enumerate(blocks):
            lines.append(f'<tb id="{block}" send="{send}" recv="{receive}" chan="{channel}">')
            for index, (kind, source, target, on) in enumerate(steps):
                left -= on is not None
                gone = without is not None and on is not None and left == -1
                there = (-1, -1) if on is None or gone else on
                lines.append(
                    f'<step s="{index}" type="{kind}" srcbuf="{source[0]}" srcoff="{source[1]}" dstbuf="{target[0]}" '
                    f'dstoff="{target[1]}" cnt="1" depid="{there[0]}" deps="{there[1]}" '
                    f'hasdep="{int((block, index) in waited)}"/>' + (" <!-- waited for -->" if gone else "")
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def _blocks(rank: int, nodes: int, gpus: int, instances: int, between: int) -> list[tuple[int, int, int, list[Step]]]:
    node, own = divmod(rank, gpus)
    peers = [(peer, c) for peer in range(gpus) if peer != own for c in range(instances)]
    blocks: list[tuple[int, int, int, list[Step]]] = []
    added: dict[int, tuple[int, int] | None] = dict.fromkeys(range(instances))
    for peer, c in peers:
        mine, theirs, arrived = ("i", own * instances + c), ("i", peer * instances + c), ("s", peer * instances + c)
        steps: list[Step] = [("s", theirs, ("s", mine[1]), None), ("r", mine, arrived, None)]
        blocks.append((node * gpus + peer, node * gpus + peer, c, [*steps, ("re", arrived, mine, added[c])]))
        added[c] = (len(blocks) - 1, 2)
    ends: dict[int, tuple[int, int]] = {}
    for line in range(between):
        steps = []
        for c in range(line, instances, between):
            parts: list[Place] = [("s", gpus * instances + c * nodes + hop) for hop in range(nodes)]
            steps.append(("cpy", ("i", own * instances + c), parts[0], added[c]))
            for before, after in itertools.pairwise(parts):
                steps += [("s", before, after, None), ("r", before, after, None)]
            steps += [("re", part, ("i", own * instances + c), None) for part in parts[1:]]
            ends[c] = (len(blocks), len(steps) - 1)
        ring = [(node + hop) % nodes * gpus + own for hop in (1, -1)]
        blocks.append((ring[0], ring[1], 2 * instances + line, steps))
    for peer, c in peers:
        mine, theirs = ("i", own * instances + c), ("i", peer * instances + c)
        steps = [("s", mine, mine, ends[c]), ("r", theirs, theirs, None)]
        blocks.append((node * gpus + peer, node * gpus + peer, instances + c, steps))
    return blocks


def direct(ranks: int, instances: int, *, waits: bool = True) -> dict[str, Any]:
    """An all-reduce as an MSCCL++ plan: each of (ranks - 1) * instances blocks of a rank puts a chunk into a peer's
    scratch; the first ones add what all have got. Without `waits`, block 1 of rank 0 does not wait for what is put."""
    gpus = []
    for rank in range(ranks):
        peers = [peer for peer in range(ranks) if peer != rank]
        pairs = [(at, c) for at in range(ranks - 1) for c in range(instances)]
        together = {"name": "barrier", "barrier_id": 0, "num_threadblocks": len(pairs)}
        blocks = []
        for block, (at, c) in enumerate(pairs):
            channel = {"channel_ids": [0], "channel_type": "memory"}
            meet = [{"name": "signal", **channel}, {"name": "wait", **channel}]
            put = {
                "name": "put",
                "src_buff": [{"type": "i", "index": c, "size": 1}],
                "dst_buff": [{"buffer_id": 0, "index": rank * instances + c, "size": 1}],
                "channel_type": "memory",
            }
            arrived = meet if waits or (rank, block) != (0, 1) else meet[:1]
            ops: list[dict[str, Any]] = [*meet, put, *arrived, together]
            if at == 0:
                held = [{"type": "s", "index": peer * instances + c, "size": 1} for peer in peers]
                own = {"type": "i", "index": c, "size": 1}
                out = {"type": "o", "index": c, "size": 1}
                ops.append({"name": "re", "src_buff": [own, *held], "dst_buff": [out], "reduce_op": "sum"})
            blocks.append(
                {
                    "id": block,
                    "ops": [*ops, together, *(meet if waits or (rank, block) != (0, 1) else [meet[1], *meet])],
                    "channels": [{"channel_type": "memory", "channel_ids": [at * instances + c]}],
                    "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [at]}],
                }
            )
        gpus.append(
            {
                "id": rank,
                "input_chunks": instances,
                "output_chunks": instances,
                "scratch_chunks": ranks * instances,
                "threadblocks": blocks,
                "channels": [
                    {"channel_type": "memory", "connected_to": [peer for peer in peers for _ in range(instances)]}
                ],
                "remote_buffers": [{"rank": peer, "type": "s", "access_channel_types": ["memory"]} for peer in peers],
                "semaphores": [],
            }
        )
    return {
        "name": "direct",
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": False,
        "reuse_resources": False,
        "gpus": gpus,
    }
