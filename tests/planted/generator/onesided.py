"""Right execution plans: written here, or converted from plans of thread blocks."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import ahbm
from planted.files import direct

from . import queued

Json = dict[str, Any]


def local(space: str, index: int = 0) -> Json:
    return {"type": space, "index": index, "size": 1}


def remote(buffer: int, index: int = 0) -> Json:
    return {"buffer_id": buffer, "index": index, "size": 1}


def flag(name: str, *channels: int) -> Json:
    return {"name": name, "channel_ids": list(channels), "channel_type": "memory"}


def move(name: str, source: list[Json], target: list[Json], **more: Any) -> Json:
    return {"name": name, "src_buff": source, "dst_buff": target, "channel_type": "memory", **more}


def plan(collective: str, chunks: tuple[int, int, int], space: str, ops: list[list[list[Json]]], **more: Any) -> Json:
    """A plan of the operations by rank and thread block. Channel and remote buffer k lead to the k-th other rank; the
    buffer is that rank's `space`."""
    gpus, n = [], len(ops)
    for rank, blocks in enumerate(ops):
        peers, ids = [peer for peer in range(n) if peer != rank], list(range(n - 1))
        channels = [{"channel_type": "memory", "channel_ids": ids}]
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": ids}]
        gpus.append(
            {
                "id": rank,
                **dict(zip(("input_chunks", "output_chunks", "scratch_chunks"), chunks, strict=True)),
                "threadblocks": [
                    {"id": at, "ops": block, "channels": channels, "remote_buffer_refs": refs}
                    for at, block in enumerate(blocks)
                ],
                "channels": [{"channel_type": "memory", "connected_to": peers}],
                "remote_buffers": [{"rank": p, "type": space, "access_channel_types": ["memory"]} for p in peers],
                "semaphores": [{"init_value": 0} for _ in range(2 * n)],
            }
        )
    head = {"name": "planted", "collective": collective, "protocol": "Simple", "inplace": False}
    return {**head, "reuse_resources": False, **more, "gpus": gpus}


def putting(n: int, chance: Random) -> Json:
    """All-gather in place: everybody puts its part into everybody's output, once the owner is there."""
    ops = []
    for rank in range(n):
        blocks = []
        for k in range(n - 1):
            put = move("put", [local("o", rank)], [remote(k, rank)])
            blocks.append([flag("signal", k), flag("wait", k), put, flag("signal", k), flag("wait", k)])
        ops.append(blocks if chance.random() < 0.5 else [[op for row in zip(*blocks, strict=True) for op in row]])
    return plan("allgather", (1, n, 0), "o", ops, inplace=True)


def getting(n: int, chance: Random) -> Json:
    """All-gather: everybody gets everybody's input, and tells when it has it."""
    ops = []
    for rank in range(n):
        blocks = [[move("copy", [local("i")], [local("o", rank)])]]
        for k, peer in enumerate(peer for peer in range(n) if peer != rank):
            meet = [flag("signal", k), flag("wait", k)]
            blocks.append([*meet, move("get", [remote(k)], [local("o", peer)]), *meet])
        chance.shuffle(blocks)
        ops.append(blocks)
    return plan("allgather", (1, n, 0), "i", ops)


def reading(n: int, chance: Random) -> Json:
    """Reduce-scatter: everybody reads its part of everybody's input and adds."""
    ops = []
    for rank in range(n):
        order = chance.sample(range(n - 1), n - 1)
        meet = [*(flag("signal", k) for k in range(n - 1)), *(flag("wait", k) for k in range(n - 1))]
        sources = [local("i", rank), *(remote(k, rank) for k in order)]
        ops.append([[*meet, move("rre", sources, [local("o")], reduce_op="sum"), *meet]])
    return plan("reducescatter", (n, 1, 0), "i", ops)


def packets(n: int, chance: Random) -> Json:
    """All-reduce by packets into halves of scratch that calls use in turn."""
    ops = []
    for rank in range(n):
        order = chance.sample(range(n - 1), n - 1)
        puts = [move("ppkt", [local("i")], [remote(k, rank)]) for k in order]
        sources = [local("i"), *(local("s", peer) for peer in range(n) if peer != rank)]
        ops.append([[*puts, move("repkt", sources, [local("o")], reduce_op="sum")]])
    return plan("allreduce", (1, 1, n), "s", ops, protocol="LL", use_double_scratch_buffer=True)


def handing(n: int, chance: Random) -> Json:
    """All-reduce: a thread block per peer puts and waits, then hands over to the one that adds."""
    ops, barrier = [], chance.random() < 0.5
    meet: Json = {"name": "barrier", "barrier_id": 0, "num_threadblocks": n}
    for rank in range(n):
        peers = [peer for peer in range(n) if peer != rank]
        blocks = []
        for k in range(n - 1):
            put = move("put", [local("i")], [remote(k, rank)])
            ready: Json = {"name": "sem_release", "semaphore_ids": [k]}
            freed: Json = {"name": "sem_acquire", "semaphore_ids": [n + k]}
            if barrier:
                ready = freed = meet
            blocks.append([put, flag("signal", k), flag("wait", k), ready, freed, flag("signal", k), flag("wait", k)])
        add = move("re", [local("i"), *(local("s", peer) for peer in peers)], [local("o")], reduce_op="sum")
        before: list[Json] = [{"name": "sem_acquire", "semaphore_ids": [k]} for k in range(n - 1)]
        behind: list[Json] = [{"name": "sem_release", "semaphore_ids": [n + k]} for k in range(n - 1)]
        if barrier:
            before = behind = [meet]
        ops.append([*blocks, [*before, add, *behind]])
    return plan("allreduce", (1, 1, n), "s", ops)


def relaying(n: int, chance: Random) -> Json:
    """All-gather in place: one thread block puts and makes sure that the bytes have arrived, another one tells."""
    ops, ids = [], list(range(n - 1))
    for rank in range(n):
        first = [*(flag("signal", k) for k in ids), *(flag("wait", k) for k in ids)]
        first += [move("put", [local("o", rank)], [remote(k, rank)]) for k in chance.sample(ids, n - 1)]
        first += [flag("flush", *ids), {"name": "sem_release", "semaphore_ids": [0]}]
        told = [*(flag("signal", k) for k in ids), *(flag("wait", k) for k in ids)]
        ops.append([first, [{"name": "sem_acquire", "semaphore_ids": [0]}, *told]])
    return plan("allgather", (1, n, 0), "o", ops, inplace=True)


def source(chance: Random, n: int, folder: Path) -> Json:
    """A random right plan among `n` ranks; conversions pass through files in `folder`."""
    if chance.random() < 0.35:
        text, made = folder / "source.xml", folder / "source.json"
        text.write_text(queued.source(chance, min(n, 5)).text(), encoding="utf-8")
        ahbm.convert(text, made)
        found: Json = json.loads(made.read_text(encoding="utf-8"))
        return found
    makers = [putting, getting, reading, packets, handing, relaying]
    if chance.random() < 0.2:
        hello = chance.random() < 0.5
        return direct(n, hello=hello, goodbye=not hello or chance.random() < 0.5)
    return chance.choice(makers)(n, chance)
