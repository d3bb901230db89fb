"""Plans that are there without a program: all-reduces of several nodes, for small and for larger messages.

In a node, ranks read and write each other's memory; between nodes, ranks of the same place in their nodes exchange
through ports. Every rank adds the chunks of its place within its node, the nodes exchange these sums, and every rank
spreads the totals in its node.
"""

from __future__ import annotations

import json
from pathlib import Path

from ahbm.base.load import load_bytes
from ahbm.base.store import make_folders, store
from ahbm.dsl.mscclpp import (
    AlgoSpec,
    AllReduce,
    Buffer,
    CollectiveProgram,
    MemoryChannel,
    PortChannel,
    Rank,
    SyncType,
)
from ahbm.mscclpp.environment import cache_folder
from ahbm.mscclpp.plans import Algorithm, ExecutionPlan, ExecutionPlanConstraint
from ahbm.mscclpp.types import CollectiveBufferMode

KIB = 1 << 10
PER_NODE = 8
SIZES = {"1K_64K": (KIB, 64 * KIB, 1), "128K_2M": (128 * KIB, 2048 * KIB, 4)}
"""Smallest and largest message in bytes, and instances, by the end of a file's name."""
NODES = (2, 4)


def allreduce_of_nodes(spec: AlgoSpec) -> CollectiveProgram:
    """The program of `spec`: AllReduce(world_size, 1, True)."""
    world, local = spec.world_size, spec.nranks_per_node
    nodes = world // local
    with CollectiveProgram.from_spec(spec) as program:
        near, far = {}, {}
        for me in range(world):
            node, place = divmod(me, local)
            near[me] = {node * local + p: MemoryChannel(node * local + p, me) for p in range(local) if p != place}
            far[me] = {n * local + place: PortChannel(n * local + place, me) for n in range(nodes) if n != node}
        scratch = [Buffer(rank, nodes) for rank in range(world)]
        inputs = [Rank(rank).get_input_buffer() for rank in range(world)]
        for me in range(world):
            for channel in near[me].values():
                channel.signal(tb=0, relaxed=True)
            for channel in near[me].values():
                channel.wait(tb=0, relaxed=True, data_sync=SyncType.after)
        for me in range(world):
            node, place = divmod(me, local)
            own = place * nodes + node
            for chunk in range(place * nodes, (place + 1) * nodes):
                for peer, channel in near[me].items():
                    channel.reduce(inputs[me][chunk : chunk + 1], [inputs[peer][chunk : chunk + 1]], tb=0)
            for peer, port in far[me].items():
                chunk = place * nodes + peer // local
                port.put(scratch[peer][node : node + 1], inputs[me][chunk : chunk + 1], tb=0)
                port.signal(tb=0, data_sync=SyncType.before)
            for port in far[me].values():
                port.wait(tb=0, data_sync=SyncType.after)
            sums = [scratch[me][other : other + 1] for other in range(nodes) if other != node]
            Rank(me).reduce(inputs[me][own : own + 1], sums, tb=0)
            for peer, port in far[me].items():
                port.put(inputs[peer][own : own + 1], inputs[me][own : own + 1], tb=0)
                port.signal(tb=0, data_sync=SyncType.before)
            for port in far[me].values():
                port.wait(tb=0, data_sync=SyncType.after)
            for peer, channel in near[me].items():
                # A chunk at a time, as above: instances share no elements only where all statements cut alike.
                for chunk in range(place * nodes, (place + 1) * nodes):
                    channel.put(inputs[peer][chunk : chunk + 1], inputs[me][chunk : chunk + 1], tb=0)
            for channel in near[me].values():
                channel.signal(tb=0, data_sync=SyncType.before)
            for channel in near[me].values():
                channel.wait(tb=0, data_sync=SyncType.after)
    return program


def folder() -> Path:
    """The folder of the plans that are installed."""
    return cache_folder() / "default"


def install() -> list[Path]:
    """Writes the plans; what was in their files is replaced. Returns the files. Raises OSError."""
    target = folder()
    make_folders(target)
    files = {}
    for nodes in NODES:
        for sizes, (least, most, instances) in SIZES.items():
            name = f"allreduce_{nodes}nodes_{sizes}"
            world = nodes * PER_NODE
            spec = AlgoSpec(
                name=name,
                collective=AllReduce(world, 1, True),
                nranks_per_node=PER_NODE,
                world_size=world,
                in_place=True,
                instances=instances,
                protocol="Simple",
                min_message_size=least,
                max_message_size=most,
            )
            files[target / f"{name}.json"] = allreduce_of_nodes(spec).to_json().encode()
    store(files)
    return list(files)


_read: dict[tuple[str, int], Algorithm] = {}


def installed() -> list[Algorithm]:
    """The plans in `folder()` by name: `*.json`, each for the ranks that it has, eight of them on a node.

    Raises what reading a plan raises.
    """
    found = []
    for path in sorted(folder().glob("*.json")):
        key = (str(path), path.stat().st_mtime_ns)
        if key not in _read:
            plan = ExecutionPlan(path, 0)
            ranks = plan.algorithm.read.ranks
            mode = CollectiveBufferMode.InPlace
            if not json.loads(load_bytes(path)).get("inplace", True):
                mode = CollectiveBufferMode.OutOfPlace
            _read[key] = Algorithm(
                plan.name,
                plan.collective,
                identity=plan.algorithm.digest,
                plan=plan,
                constraints=ExecutionPlanConstraint(ranks, min(PER_NODE, ranks)),
                tags={"default": 1},
                buffer_mode=mode,
            )
        found.append(_read[key])
    return found
