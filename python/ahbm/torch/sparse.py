"""all_reduce of sparse tensors as gloo does it: every rank gets all indices and values, and adds them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from ahbm.errors import DistributedError, UnsupportedError
from ahbm.torch.tensors import hollow

_SUM: Any = ReduceOp.RedOpType.SUM


def own(tensor: Tensor, op: Any) -> Tensor:
    """What a rank contributes: `tensor` without duplicate indices.

    Raises UnsupportedError: AHBM-U150 for a tensor without data, AHBM-U151 for another operator than SUM.
    """
    kind = getattr(op, "op", op)
    if kind != _SUM:
        raise UnsupportedError(
            "AHBM-U151",
            f"{kind.name}: all_reduce of sparse tensors only works with ReduceOp.SUM",
            hint="call to_dense() first",
        )
    if hollow(tensor):
        raise UnsupportedError(
            "AHBM-U150",
            "all_reduce of a sparse tensor without data",
            hint="its size is not known: call to_dense() first",
        )
    return tensor.detach().coalesce()


def head(x: Tensor) -> Tensor:
    """What ranks tell each other first, int64: the number of `x`'s elements, that of its sparse axes, and its shape."""
    return torch.tensor([x._nnz(), x.sparse_dim(), *x.shape])


def rooms(x: Tensor, heads: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Room for the indices and for the values of every rank. Raises DistributedError (AHBM-X110) for ranks whose
    tensors differ in shape."""
    shapes = [message[1:].tolist() for message in heads]
    if any(shape != shapes[0] for shape in shapes):
        message = ", ".join(f"rank {rank} has {shape[1:]}" for rank, shape in enumerate(shapes))
        raise DistributedError("AHBM-X110", f"all_reduce: Sparse dimensions do not match: {message}")
    counts = [int(message[0]) for message in heads]
    indices, values = x.indices(), x.values()
    return (
        [indices.new_empty((x.sparse_dim(), count)) for count in counts],
        [values.new_empty((count, *values.shape[1:])) for count in counts],
    )


def add_up(tensor: Tensor, indices: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """`tensor` becomes the sum of all ranks' contributions, in the order of ranks, without duplicate indices."""
    total, *others = (
        torch.sparse_coo_tensor(at, those, tensor.shape, is_coalesced=True, check_invariants=False)
        for at, those in zip(indices, values, strict=True)
    )
    for other in others:
        total = total + other
    with torch.no_grad():
        tensor.copy_(total.coalesce())
