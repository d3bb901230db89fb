"""Starts one worker per rank, in threads of this process."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from ahbm.base.arguments import checked
from ahbm.errors import DistributedError, InterruptedRun
from ahbm.ranks.lobby import Context, Lobby, check_world_size
from ahbm.ranks.rank import bind
from ahbm.ranks.setup import Setup, ambient
from ahbm.ranks.world import World
from ahbm.source.function import AnyAlgorithm, as_algorithm

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.selectors.protocol import AnySelector

T = TypeVar("T")


@checked
def spawn(
    worker: Callable[..., T],
    args: Sequence[object] = (),
    nprocs: int | None = None,
    *,
    topology: str | Path | Machine | None = None,
    ccl: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    algorithm: AnyAlgorithm = None,
    selector: AnySelector = None,
) -> list[T]:
    """Runs `worker(rank, *args)` for every rank and returns what they returned, in the order of the ranks.

    A worker that has no parameter for the rank is called as `worker(*args)`. `nprocs` defaults to the world size of
    the configuration: `world_size` in ccl.yaml, else the number of SIPs. `topology`, `ccl`, `overrides`,
    `algorithm` and `selector` are the defaults of the workers' `init_process_group`.

    The calling thread performs the simulations, so Ctrl-C stops them at once. The first failure stops all ranks: an
    error of a collective is raised as it is, an exception of a worker as RankError (AHBM-X120) that names the rank,
    with the exception as its cause; Ctrl-C raises InterruptedRun. A later call starts afresh.
    """
    setup = Setup(topology, ccl, overrides, as_algorithm(algorithm), selector=selector).over(ambient())
    emulator = setup.emulator()
    size = emulator.world_size if nprocs is None else nprocs
    check_world_size(size, emulator.world_size, "ahbm.spawn")
    return run_ranks(World(size), Lobby(setup, emulator), caller(worker, args))


def run_ranks(world: World, lobby: Lobby, body: Callable[[int], T]) -> list[T]:
    """Runs `body(rank)` for every rank of `world` in a thread of its own; see `spawn`."""

    def run(rank: int) -> None:
        value: object = None
        error: BaseException | None = None
        try:
            bind(Context(world, rank, lobby))
            value = body(rank)
        except SystemExit as exit_:
            error = exit_ if exit_.code else None
        except BaseException as raised:
            error = raised
        finally:
            bind(None)
        world.leave(rank, value, error)

    def all_left() -> bool:
        return all(state.finished for state in world.ranks)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(world.size)
    ]
    try:
        for thread in threads:
            thread.start()
        world.drive(all_left)
    except (KeyboardInterrupt, InterruptedRun) as stop:
        error = (
            stop
            if isinstance(stop, InterruptedRun)
            else InterruptedRun("AHBM-I101", "interrupted from the keyboard", hint="nothing was left behind; run again")
        )
        world.interrupt(error)
        world.drive(all_left)
        raise error from (None if error is stop else stop)
    failure = world.first_error()
    if failure is not None:
        raise failure
    world.check_leftovers()
    return [cast("T", state.value) for state in world.ranks]


def caller(worker: Callable[..., T], args: Sequence[object]) -> Callable[[int], T]:
    """`worker` as a function of the rank: called with it, or without where it has no parameter for it.

    Raises DistributedError (AHBM-X107) when it takes neither.
    """
    try:
        signature = inspect.signature(worker)
    except ValueError as error:
        raise DistributedError("AHBM-X107", f"worker {worker}: nobody knows its parameters") from error
    for with_rank in (True, False):
        try:
            signature.bind(*((0, *args) if with_rank else args))
        except TypeError:
            continue
        if with_rank:
            return lambda rank: worker(rank, *args)
        return lambda rank: worker(*args)
    raise DistributedError(
        "AHBM-X107",
        f"worker {getattr(worker, '__name__', worker)}{signature} takes neither "
        f"(rank, *args) nor (*args) with {len(args)} args",
    )
