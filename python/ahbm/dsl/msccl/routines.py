"""Rings in place, as parts of larger programs."""

from __future__ import annotations

from ahbm.dsl.msccl import Buffer, chunk


def allgather_ring_inplace(gpus: int, gpu_offset: int = 0, index_offset: int = 0, ch: int = 0) -> None:
    """The first input chunk of each of `gpus` ranks from `gpu_offset` on goes round their ring, on channel 0."""
    for rank in range(gpu_offset, gpu_offset + gpus):
        index = index_offset + rank - gpu_offset
        moving = chunk(rank, Buffer.input, 0)
        for hop in range(1, gpus):
            moving = moving.copy((rank + hop) % gpus + gpu_offset, Buffer.output, index, ch=0)


def allreduce_ring_inplace(gpus: int, gpu_offset: int = 0, index_offset: int = 0, ch: int = 0) -> None:
    """A ring of `gpus` ranks from `gpu_offset` on reduces as many chunks from `index_offset` on, on one channel."""
    for rank in range(gpu_offset, gpu_offset + gpus):
        index = index_offset + rank - gpu_offset
        moving = chunk(rank, Buffer.input, index)
        for hop in range(1, gpus):
            peer = (rank + hop) % gpus + gpu_offset
            moving = chunk(peer, Buffer.input, index).reduce(moving, ch=ch)
        for hop in range(gpus - 1):
            moving = moving.copy((rank + hop) % gpus + gpu_offset, Buffer.input, index, ch=ch)
