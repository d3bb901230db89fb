"""A ring all-reduce in place."""

from __future__ import annotations

from ahbm.dsl.msccl import Buffer, chunk


def allreduce_ring(size: int, channels: int) -> None:
    """`size` ranks reduce `size` chunks along a ring and pass them on; chunk i takes channel and thread block
    i % channels."""
    for step in range(2 * size - 2):
        for index in range(size):
            # The second time round starts where the first one ended.
            at = step if step < size - 1 else step - size
            rank, following = (index + at) % size, (index + at + 1) % size
            channel = index % channels
            moving, there = chunk(rank, Buffer.input, index), chunk(following, Buffer.input, index)
            if step < size - 1:
                there.reduce(moving, ch=channel, recvtb=channel, sendtb=channel)
            else:
                moving.copy(following, Buffer.input, index, ch=channel, recvtb=channel, sendtb=channel)
