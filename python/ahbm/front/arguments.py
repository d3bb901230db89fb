"""The rules for the arguments of `ahbm.distributed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ahbm.base.arrays import Flat, flat_host
from ahbm.errors import DistributedError
from ahbm.ranks.groups import ProcessGroup


def given(tensor: Any, what: str) -> Flat:
    """A tensor that is read."""
    return flat_host(tensor, writable=False, what=what)


def own(tensor: Any, what: str) -> Flat:
    """A tensor that receives a result."""
    return flat_host(tensor, writable=True, what=what)


def root_of(group: ProcessGroup, rank: int, name: str) -> int:
    """Group rank of the global rank `rank`. Raises DistributedError (AHBM-X131) where it has none."""
    root = group.rank_of(rank)
    if root < 0:
        raise DistributedError(
            "AHBM-X131", f"{name}={rank} is no rank of {group.name}", hint=f"its ranks are {list(group.ranks)}"
        )
    return root


def only_root(is_root: bool, name: str, tensors: Sequence[Any] | None) -> Sequence[Any]:
    """The list that the root passes and nobody else. Raises DistributedError (AHBM-X131)."""
    if is_root != bool(tensors):
        raise DistributedError(
            "AHBM-X131",
            f"{name} is {'missing on' if is_root else 'given outside'} of the root",
            hint=f"pass {name} on the root and nowhere else",
        )
    return tensors or ()


def expect(got: Flat, like: Flat, times: int, name: str, other: str) -> None:
    """Raises DistributedError (AHBM-X130) unless `got` has `times` the elements of `like` and its dtype."""
    if got.dtype != like.dtype or got.size != like.size * times:
        need = f"{like.size * times} elements of {like.dtype}"
        raise DistributedError("AHBM-X130", f"{name} has {got.size} elements of {got.dtype}; {other} asks for {need}")


def each(group: ProcessGroup, name: str, tensors: Sequence[Any], like: Flat, *, writable: bool) -> list[Flat]:
    """One tensor like `like` per rank of the group. Raises DistributedError (AHBM-X130, AHBM-X131)."""
    if len(tensors) != group.size():
        raise DistributedError("AHBM-X131", f"{name} has {len(tensors)} tensors for {group.size()} ranks")
    found = [flat_host(tensor, writable=writable, what=f"{name}[{i}]") for i, tensor in enumerate(tensors)]
    for i, tensor in enumerate(found):
        expect(tensor, like, 1, f"{name}[{i}]", "the rank's tensor" if i else "the call")
    return found


def splits(x: Flat, sizes: Sequence[int] | None, ranks: int, name: str) -> tuple[int, ...]:
    """Elements of each rank's chunk of `x`: `sizes` rows of the first axis each, all equal without `sizes`.

    Raises DistributedError (AHBM-X130) when they do not add up.
    """
    if sizes:
        rows = x.shape[0] if x.shape else 1
        if len(sizes) == ranks and min(sizes) >= 0 and sum(sizes) == rows:
            return tuple(size * (x.size // max(rows, 1)) for size in sizes)
        message = f"{name} has {rows} rows, {name}_split_sizes={list(sizes)} for {ranks} ranks do not add up to them"
        raise DistributedError("AHBM-X130", message)
    if x.size % max(ranks, 1):
        raise DistributedError("AHBM-X130", f"{name} has {x.size} elements, which {ranks} ranks cannot share equally")
    return (x.size // max(ranks, 1),) * ranks
