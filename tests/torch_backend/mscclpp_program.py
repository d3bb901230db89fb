"""A program of the MSCCL++ DSL for scripts that import `mscclpp`."""

from mscclpp.language.channel import BufferType, MemoryChannel, SwitchChannel, SyncType
from mscclpp.language.collectives import AllReduce
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank

import mscclpp


def by_switch(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
    """All ranks add and spread their chunk through the switch."""
    ranks = range(spec.world_size)
    with CollectiveProgram.from_spec(spec) as program:
        switch = SwitchChannel(rank_list=list(ranks), buffer_type=BufferType.input)
        channels = [MemoryChannel(peer, me) for me in ranks for peer in ranks if peer != me]
        for channel in channels:
            channel.signal(tb=0, relaxed=True)
        for channel in channels:
            channel.wait(tb=0, relaxed=True, data_sync=SyncType.after)
        for me in ranks:
            mine = Rank(me).get_input_buffer()[me : me + 1]
            switch.at_rank(me).reduce(buffer_offset=me, size=1, dst_chunk=mine, tb=0)
            switch.at_rank(me).broadcast(src_chunk=mine, buffer_offset=me, size=1, tb=0)
        for channel in channels:
            channel.signal(tb=0, relaxed=True, data_sync=SyncType.before)
        for channel in channels:
            channel.wait(tb=0, relaxed=True)
    return program


def compiled(rank: int, world: int, name: str = "by_switch") -> mscclpp.Algorithm:
    """For 1 KiB to 1 MiB."""
    spec = mscclpp.AlgoSpec(
        name=name,
        collective=AllReduce(world, 1, True),
        nranks_per_node=world,
        world_size=world,
        in_place=True,
        instances=2,
        protocol="Simple",
        min_message_size=1 << 10,
        max_message_size=1 << 20,
        tags={"switch": 1},
    )
    return mscclpp.compile(algo=by_switch, algo_spec=spec, rank=rank)
