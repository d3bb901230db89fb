"""Between the tensors of a call and the flat buffer of a collective's in-place layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.arrays import HostTensor, host_tensor
from ahbm.errors import DistributedError
from ahbm.groups import ProcessGroup
from ahbm.operation import Operation
from ahbm.rank import member


def terms_of(x: HostTensor, **more: object) -> dict[str, object]:
    """What all ranks must agree on for a tensor like `x`."""
    return {**more, "dtype": x.dtype, "shape": x.shape}


def own(tensor: Any, what: str) -> HostTensor:
    """A tensor that receives a result."""
    return host_tensor(tensor, writable=True, what=what)


def check_root(group: ProcessGroup | None, rank: int, name: str) -> int:
    """`rank` if it is in the group. Raises DistributedError (AHBM-X131)."""
    _, _, members = member(group)
    if members.rank_of(rank) < 0:
        raise DistributedError(
            "AHBM-X131", f"{name}={rank} is no rank of {members.name}", hint=f"its ranks are {list(members.ranks)}"
        )
    return rank


def only_root(is_root: bool, name: str, tensors: Sequence[Any] | None) -> Sequence[Any]:
    """The list that the root passes and nobody else. Raises DistributedError (AHBM-X131)."""
    if is_root != bool(tensors):
        raise DistributedError(
            "AHBM-X131",
            f"{name} is {'missing on' if is_root else 'given outside'} of the root",
            hint=f"pass {name} on the root and nowhere else",
        )
    return tensors or ()


def chunks_like(group: ProcessGroup | None, one: HostTensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """Room for one chunk like `one` per rank of the group, and this rank's chunk of it."""
    context, _, members = member(group)
    flat = np.zeros(one.size * members.size(), one.array.dtype)
    mine = members.rank_of(context.rank) * one.size
    return flat, flat[mine : mine + one.size]


def expect(got: HostTensor, like: HostTensor, times: int, name: str, other: str) -> None:
    """Raises DistributedError (AHBM-X130) unless `got` has `times` the elements of `like` and its dtype."""
    if got.dtype != like.dtype or got.size != like.size * times:
        need = f"{like.size * times} elements of {like.dtype}"
        raise DistributedError("AHBM-X130", f"{name} has {got.size} elements of {got.dtype}; {other} asks for {need}")


def host_list(
    group: ProcessGroup | None, name: str, tensors: Sequence[Any], like: HostTensor, *, writable: bool
) -> list[HostTensor]:
    """One tensor like `like` per rank of the group. Raises DistributedError (AHBM-X130, AHBM-X131)."""
    ranks = member(group)[2].size()
    if len(tensors) != ranks:
        raise DistributedError("AHBM-X131", f"{name} has {len(tensors)} tensors for {ranks} ranks")
    found = [host_tensor(tensor, writable=writable, what=f"{name}[{i}]") for i, tensor in enumerate(tensors)]
    for i, tensor in enumerate(found):
        expect(tensor, like, 1, f"{name}[{i}]", "the rank's tensor" if i else "the call")
    return found


def splits(x: HostTensor, sizes: Sequence[int] | None, ranks: int, name: str) -> tuple[int, ...]:
    """Elements of each rank's chunk of `x`: `sizes` rows of the first axis each, all equal without `sizes`.

    Raises DistributedError (AHBM-X130) when they do not add up.
    """
    if sizes:
        rows = x.shape[0] if x.shape else 1
        if len(sizes) == ranks and min(sizes) >= 0 and sum(sizes) == rows:
            return tuple(size * (x.size // max(rows, 1)) for size in sizes)
        told = f"{name} has {rows} rows, {name}_split_sizes={list(sizes)} for {ranks} ranks do not add up to them"
        raise DistributedError("AHBM-X130", told)
    if x.size % max(ranks, 1):
        raise DistributedError("AHBM-X130", f"{name} has {x.size} elements, which {ranks} ranks cannot share equally")
    return (x.size // max(ranks, 1),) * ranks


def fill(flat: NDArray[Any], tensors: Sequence[HostTensor]) -> None:
    """Writes `tensors` into the equal chunks of `flat`."""
    for chunk, tensor in zip(np.split(flat, len(tensors)), tensors, strict=True):
        chunk[:] = tensor.flat()


def back(tensor: object, x: HostTensor, flat: NDArray[Any]) -> Callable[[Operation], object]:
    """A finish that takes `flat` back to `tensor`."""

    def finish(_: Operation) -> object:
        x.assign(flat)
        return tensor

    return finish


def deal(tensors: Sequence[object], outs: Sequence[HostTensor], flat: NDArray[Any]) -> Callable[[Operation], object]:
    """A finish that deals the equal chunks of `flat` out to `tensors`."""

    def finish(_: Operation) -> object:
        for chunk, out in zip(np.split(flat, len(outs)), outs, strict=True) if outs else ():
            out.array[...] = chunk.reshape(out.shape)
        return list(tensors)

    return finish
