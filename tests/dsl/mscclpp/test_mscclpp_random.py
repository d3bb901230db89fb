"""Random programs: notes tell of differences exactly where plans differ."""

from __future__ import annotations

import random

import pytest

from ahbm.dsl.mscclpp import (
    Buffer,
    BufferType,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    ReduceOperationType,
    Semaphore,
    SwitchChannel,
    SyncType,
    ThreadBlockGroup,
)
from support.programs import canonical, lower

SYNCS = (SyncType.none, SyncType.before, SyncType.after, SyncType.both)


def statements(seed: int) -> None:
    """A few statements of rank 0, most of them in one thread block, on few chunks."""
    draw = random.Random(seed)
    rank, scratch, far = Rank(0), Buffer(0, 3), Buffer(1, 3)
    own = {"i": rank.get_input_buffer(), "o": rank.get_output_buffer(), "s": scratch}
    memory, port = [[kind(1, 0) for _ in range(2)] for kind in (MemoryChannel, PortChannel)]
    back = {MemoryChannel: MemoryChannel(0, 1), PortChannel: PortChannel(0, 1)}
    semaphores = [Semaphore(0, 1) for _ in range(2)]
    switch = SwitchChannel([0, 1], BufferType.input).at_rank(0)
    kept = own["o"][0:1]

    def piece(buffer: str = "") -> object:
        at = draw.randrange(2)
        return own[buffer or draw.choice("ios")][at : at + 1]

    def one() -> None:
        tb = 0 if draw.random() < 0.9 else 1
        where = {"tb": tb} if draw.random() < 0.9 else {"tb_group": ThreadBlockGroup([0, 1])}
        sync, channel = draw.choice(SYNCS), draw.randrange(2)
        at = draw.randrange(3)
        match draw.randrange(17):
            case 0 | 1:
                rank.copy(piece(), piece(), **where)
            case 2 | 3:
                others = [piece() for _ in range(draw.randrange(1, 3))]
                rank.reduce(piece(), others, **where, dst_chunk=piece(), reduce_op=draw.choice([*ReduceOperationType]))
            case 4:
                rank.reduce(piece("i"), [piece("s")], **where, dst_chunk=piece(), packet=True)
            case 5:
                rank.copy_packets(piece("s"), piece(), **where)
            case 6:
                rank.unpack_packets(piece("o"), piece("s"), **where)
            case 7:
                rank.barrier(draw.choice([[0], [0, 1], [1, 0]]))
            case 8:
                draw.choice([memory, port])[channel].put(far[at : at + 1], piece(), tb=tb)
            case 9:
                memory[channel].get(piece(), far[at : at + 1], **where)
            case 10:
                memory[channel].put_packets(far[at : at + 1], piece(), **where)
            case 11:
                memory[channel].read_put_packets(far[at : at + 1], piece("s"), **where)
            case 12:
                port[channel].put_with_signal(far[at : at + 1], piece(), tb=tb)
                back[PortChannel].wait(tb=0)
            case 13:
                kind = draw.choice([memory, port])
                kind[channel].signal(tb=tb, data_sync=sync)
                back[type(kind[0])].wait(tb=0)
            case 14:
                getattr(draw.choice(semaphores), draw.choice(["acquire", "release"]))(tb=tb, data_sync=sync)
            case 15:
                switch.reduce(at, 1, draw.choice([kept, piece("i")]), tb=tb)
            case _:
                switch.broadcast(draw.choice([kept, piece("i")]), at, 1, tb=tb)

    for _ in range(draw.randrange(2, 9)):
        if draw.random() < 0.15:
            with LoopIterationContext(16, 1):
                for _ in range(draw.randrange(1, 4)):
                    one()
        else:
            one()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_notes_tell_of_differences_where_there_are_some(first: int) -> None:
    repaired = 0
    for seed in range(first, first + 100):

        def write(seed: int = seed) -> None:
            statements(seed)

        instances = 1 + seed % 2
        try:
            meant, as_is = (lower(write, ranks=2, instances=instances, quirks=quirks) for quirks in (False, True))
        except RuntimeError as error:
            assert "AHBM-A104" in str(error)
            continue
        differ = canonical(meant.written.text) != canonical(as_is.written.text)
        assert differ == ("AHBM-A121" in meant.codes()), seed
        repaired += differ
    assert repaired > 10
