"""Arrays that a collective works on: the request they make, and whether they fit one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ahbm.base.arrays import BITS, DTYPE_NAMES, kernel_dtype
from ahbm.base.collectives import BITWISE, COLLECTIVES, OPS, require_collective
from ahbm.base.placement import DPPolicy
from ahbm.base.request import Request
from ahbm.base.yaml_source import did_you_mean
from ahbm.errors import ConfigError, DataError, UnsupportedError


def requested(
    collective: str,
    buffers: Sequence[NDArray[Any]],
    *,
    ranks: Sequence[int] | None = None,
    op: str = "sum",
    dtype: str | None = None,
    root: int = 0,
    src: int = 0,
    dst: int = 1,
    placement: DPPolicy | None = None,
) -> Request:
    """The collective that works in place on `buffers`, one per rank of `ranks` (default: the first ones).

    `dtype` names the element type where NumPy cannot: uint16 arrays of "bf16", uint8 arrays of "f8e4m3". With
    a placement, a buffer has the shape (tiles, elements).

    Raises ConfigError (AHBM-C105) for an unknown collective, DataError (AHBM-V101) for unfit buffers, UnsupportedError
    (AHBM-U130) for their dtype.
    """
    require_collective(collective)
    if not buffers:
        raise DataError("AHBM-V101", "no buffers")
    first, axes = buffers[0], 1 if placement is None else 2
    _check_alike(buffers, first.shape, axes, writable=False)
    name = _dtype(first, dtype)
    chunks = COLLECTIVES[collective].chunks(len(buffers))
    size = first.shape[-1]
    if size % chunks:
        raise DataError("AHBM-V101", f"{collective}: {size} elements are no {chunks} equal chunks")
    tiles = 1 if placement is None else len(first)
    group = range(len(buffers)) if ranks is None else tuple(ranks)
    return Request(collective, group, size // chunks, name, op, root, src, dst, placement, tiles)


def check_buffers(request: Request, buffers: Sequence[NDArray[Any]]) -> None:
    """Raises DataError (AHBM-V101), UnsupportedError (AHBM-U130) unless `buffers` are those of `request`: flat,
    contiguous, writable."""
    if len(buffers) != request.world_size:
        raise DataError("AHBM-V101", f"{len(buffers)} buffers for {request.world_size} ranks")
    _check_alike(buffers, buffers[0].shape, len(request.shape), writable=True)
    _dtype(buffers[0], request.dtype)
    if buffers[0].shape != request.shape:
        raise DataError(
            "AHBM-V101", f"{request.collective} of {list(request.shape)} elements got {list(buffers[0].shape)}"
        )


def _check_alike(buffers: Sequence[NDArray[Any]], shape: tuple[int, ...], axes: int, *, writable: bool) -> None:
    first = buffers[0]
    for rank, buffer in enumerate(buffers):
        problem = None
        if buffer.shape != shape or buffer.dtype != first.dtype:
            problem = f"has {buffer.dtype}{list(buffer.shape)}, rank 0 has {first.dtype}{list(first.shape)}"
        elif writable and not (buffer.flags.c_contiguous and buffer.flags.writeable):
            problem = "is not contiguous and writable"
        elif buffer.ndim != axes:
            problem = f"has {buffer.ndim} axes, not {axes}"
        if problem:
            raise DataError("AHBM-V101", f"the buffer of group rank {rank} {problem}")


def _dtype(buffer: NDArray[Any], dtype: str | None) -> str:
    """The element type of a buffer, by the kernels' name."""
    name = kernel_dtype(buffer.dtype)
    if name is None:
        raise UnsupportedError(
            "AHBM-U130",
            f"no kernel computes with dtype {buffer.dtype}",
            hint=f"convert to one of {', '.join(DTYPE_NAMES.values())}",
        )
    if dtype is not None and dtype != name and BITS.get(dtype) != str(buffer.dtype):
        raise DataError("AHBM-V101", f"the buffers hold {name}, not {dtype}")
    return dtype or name


def check_request(request: Request) -> None:
    """Raises ConfigError (AHBM-C120, C123) for ranks and operators that are not, UnsupportedError (AHBM-U115)."""
    if request.op not in OPS:
        raise ConfigError("AHBM-C123", f"unknown reduction operator {request.op!r}", hint=did_you_mean(request.op, OPS))
    kind = request.kind
    if kind.reduces and request.op in BITWISE and request.element.is_float:
        raise UnsupportedError(
            "AHBM-U115", f"{request.op} is not defined on {request.dtype}", hint="use an integer dtype"
        )
    wanted = [("root", request.root)] if kind.rooted else []
    wanted += [("src", request.src), ("dst", request.dst)] if kind.paired else []
    for what, rank in wanted:
        if not 0 <= rank < request.world_size:
            raise ConfigError("AHBM-C120", f"{what} {rank} is not in a group of {request.world_size}")
