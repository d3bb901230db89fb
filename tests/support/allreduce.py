"""Programs of the MSCCL++ DSL, as their authors write them, and what they are compiled for."""

from __future__ import annotations

from typing import Any

from ahbm.dsl.mscclpp import AlgoSpec, AllReduce, CollectiveProgram, MemoryChannel, Rank, SyncType


def allreduce_by_reading(spec: AlgoSpec, between: SyncType = SyncType.before) -> CollectiveProgram:
    ranks = range(spec.world_size)
    with CollectiveProgram.from_spec(spec) as program:
        channels = {(me, peer): MemoryChannel(peer, me) for me in ranks for peer in ranks if peer != me}
        pairs = list(channels)
        for pair in pairs:
            channels[pair].signal(tb=0, relaxed=True)
        for pair in pairs:
            channels[pair].wait(tb=0, relaxed=True, data_sync=SyncType.after)
        for me in ranks:
            mine = Rank(me).get_input_buffer()[me : me + 1]
            others = {peer: Rank(peer).get_input_buffer()[me : me + 1] for peer in ranks if peer != me}
            for peer, theirs in others.items():
                channels[me, peer].reduce(mine, [theirs], tb=0)
            for peer, theirs in others.items():
                channels[me, peer].put(theirs, mine, tb=0)
        for pair in pairs:
            channels[pair].signal(tb=0, data_sync=between)
        for pair in pairs:
            channels[pair].wait(tb=0, data_sync=SyncType.after)
    return program


def allgather_by_putting(spec: AlgoSpec) -> CollectiveProgram:
    ranks = range(spec.world_size)
    with CollectiveProgram.from_spec(spec) as program:
        channels = {(me, peer): MemoryChannel(peer, me) for me in ranks for peer in ranks if peer != me}
        for channel in channels.values():
            channel.signal(tb=0, relaxed=True)
        for channel in channels.values():
            channel.wait(tb=0, relaxed=True, data_sync=SyncType.after)
        for (me, peer), channel in channels.items():
            mine, theirs = (Rank(rank).get_output_buffer()[me : me + 1] for rank in (me, peer))
            channel.put(theirs, mine, tb=0)
        for channel in channels.values():
            channel.signal(tb=0, data_sync=SyncType.before)
        for channel in channels.values():
            channel.wait(tb=0, data_sync=SyncType.after)
    return program


def spec(**changes: Any) -> AlgoSpec:
    """Of two ranks, and 1 KiB to 1 MiB."""
    given: dict[str, Any] = {
        "name": "by_reading",
        "collective": AllReduce(changes.get("world_size", 2), 1, True),
        "nranks_per_node": 2,
        "world_size": 2,
        "in_place": True,
        "instances": 1,
        "protocol": "Simple",
        "min_message_size": 1 << 10,
        "max_message_size": 1 << 20,
        "tags": {"reads": 1},
    }
    return AlgoSpec(**given | changes)
