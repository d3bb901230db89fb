"""What a user of a kernel behind `ahbm.distributed` sees: an error, a warning, right or silently wrong results."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import ahbm
import ahbm.distributed as dist
from ahbm.base.request import Request
from ahbm.check.reference import Reference, inputs
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError
from ahbm.ranks.firsts import first_checks
from ahbm.ranks.setup import Setup
from ahbm.runs.measure import prepare

OUTCOMES = ("error", "warning", "right", "silently wrong")
MODES = ("integers", "wide")
"""The data of the two calls that each rank makes."""
SEED = 7
NO_NUMPY = ("bf16", "f8e4m3", "f8e5m2")


def outcome(path: str, checks: str | None = None, **arguments: Any) -> str:
    """One of OUTCOMES for two calls of the kernel in a file, with what `ahbm.run` takes."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            wrong = _performed(path, checks, arguments)
        except AhbmError:
            return "error"
    if any(issubclass(warning.category, ahbm.errors.ProgramWarning) for warning in heard):
        return "warning"
    return "silently wrong" if wrong else "right"


def _performed(path: str, checks: str | None, arguments: dict[str, Any]) -> bool:
    """Whether a result of the calls is wrong."""
    overrides = arguments.pop("overrides", None)
    emulator = Emulator.load(None, None, overrides)
    collective = emulator.algorithm(path).collectives[0]
    request = prepare(collective, path, emulator=emulator, **arguments).request
    given = [inputs(request, mode, SEED) for mode in MODES]
    if request.placement is not None or request.dtype in NO_NUMPY or collective not in CALLS:
        results = _performed_by_emulator(request, emulator, path, checks, given)
    else:
        call = CALLS[collective]

        def worker(rank: int) -> list[Any]:
            dist.init_process_group(algorithm=path, check=checks)
            return [call(request, rank, arrays[rank].copy()) for arrays in given]

        ranks = ahbm.spawn(worker, nprocs=request.world_size, overrides=overrides)
        results = [[found[at] for found in ranks] for at in range(len(MODES))]
    return collective != "barrier" and any(_wrong(request, *both) for both in zip(given, results, strict=True))


def _wrong(request: Request, given: Sequence[Any], results: Sequence[Any]) -> bool:
    reference = Reference(request, given, exact=True)
    return any(len(reference.wrong(party, results[party])) for party in range(request.parties))


def _performed_by_emulator(
    request: Request, emulator: Emulator, path: str, checks: str | None, given: Sequence[Any]
) -> list[Any]:
    """The calls as a session makes them."""
    verify, tiles, found = first_checks(emulator, Setup(check=checks)), request.tiles, []
    for arrays in given:
        rows = [np.stack(arrays[rank * tiles : (rank + 1) * tiles]) for rank in range(request.world_size)]
        emulator.perform(request, [row.reshape(request.shape) for row in rows], path, verify=verify)
        found.append([tile for row in rows for tile in row])
    return found


def _into(request: Request, rank: int, part: Any) -> Any:
    """A rank's array of which only what the collective defines is known."""
    whole = np.zeros(request.size, request.element.storage)
    whole[request.part(rank)] = part
    return whole


def _of(request: Request, rank: int, x: Any) -> Any:
    return x[slice(*request.held(rank)[0])].copy() if request.held(rank) else x


def _all_reduce(request: Request, rank: int, x: Any) -> Any:
    dist.all_reduce(x, request.op)
    return x


def _reduce(request: Request, rank: int, x: Any) -> Any:
    dist.reduce(x, request.root, request.op)
    return x


def _broadcast(request: Request, rank: int, x: Any) -> Any:
    dist.broadcast(x, request.root)
    return x


def _all_gather(request: Request, rank: int, x: Any) -> Any:
    out = np.zeros_like(x)
    dist.all_gather_into_tensor(out, _of(request, rank, x))
    return out


def _reduce_scatter(request: Request, rank: int, x: Any) -> Any:
    out = np.zeros(request.count, x.dtype)
    dist.reduce_scatter_tensor(out, x, request.op)
    return _into(request, rank, out)


def _gather(request: Request, rank: int, x: Any) -> Any:
    parts = np.zeros((request.world_size, request.count), x.dtype)
    dist.gather(_of(request, rank, x), list(parts) if rank == request.root else None, request.root)
    return parts.ravel()


def _scatter(request: Request, rank: int, x: Any) -> Any:
    out = np.zeros(request.count, x.dtype)
    parts = list(x.reshape(request.world_size, -1)) if rank == request.root else None
    dist.scatter(out, parts, request.root)
    return _into(request, rank, out)


def _all_to_all(request: Request, rank: int, x: Any) -> Any:
    out = np.zeros_like(x)
    dist.all_to_all_single(out, x)
    return out


def _barrier(request: Request, rank: int, x: Any) -> Any:
    dist.barrier()
    return x


CALLS: dict[str, Callable[[Request, int, Any], Any]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
}


def table(found: Sequence[tuple[str, str]]) -> str:
    """Class of bug by what the user sees, in Markdown."""
    lines = ["| class | kernels | " + " | ".join(OUTCOMES) + " |", "|---|" + "---|" * (len(OUTCOMES) + 1)]
    for name in dict.fromkeys(of for of, _ in found):
        counts = Counter(seen for of, seen in found if of == name)
        cells = [str(counts[seen]) if counts[seen] else "" for seen in OUTCOMES]
        lines.append(f"| {name} | {counts.total()} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
