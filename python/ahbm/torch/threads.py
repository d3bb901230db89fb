"""Ranks as threads of one process: nothing is copied between them, and one debugger sees them all."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.distributed.nn.functional  # its defaults are groups, bound when it is imported: before any rank has one
from torch._C._distributed_c10d import _register_process_group, _unregister_all_process_groups
from torch.distributed.rendezvous import _rendezvous_handlers

from ahbm.base.arguments import checked, whole
from ahbm.errors import DistributedError
from ahbm.ranks.launch import caller, run_ranks
from ahbm.ranks.lobby import BACKEND, Context, Lobby
from ahbm.ranks.rank import act_for, current
from ahbm.ranks.setup import Setup, ambient
from ahbm.ranks.world import World
from ahbm.selectors.loading import as_selector
from ahbm.torch import report
from ahbm.torch.helpers import helping
from ahbm.torch.own import Own, calling, separated
from ahbm.torch.place import Place, ThreadPlace
from ahbm.torch.places import be_rank, options

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.selectors.protocol import AnySelector


T = TypeVar("T")
_RECORDER = "TORCH_FR_BUFFER_SIZE"


@checked
def spawn(
    worker: Callable[..., T],
    args: Sequence[object] = (),
    world_size: int = 2,
    *,
    turns: bool = True,
    topology: str | Path | Machine | None = None,
    ccl: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    accumulate: str | None = None,
    selector: AnySelector = None,
) -> list[T]:
    """Runs `worker(rank, *args)` (or `worker(*args)`) for every rank in a thread and returns what they returned.

    In the worker `dist.init_process_group("ahbm")` needs no rank, size or address. With `turns`, one rank runs at a
    time, up to its next wait, and has torch's random numbers to itself, so a run is the same every time; without, the
    ranks run freely and share torch's generator. Unless `topology` or AHBM_TOPOLOGY names one, the machine has at least
    as many SIPs as ranks. `accumulate="f32"` reduces floats of less than four bytes in f32. `selector(algorithms,
    request)` chooses the algorithms of groups that have no selector of their own.

    Raises what `ahbm.spawn` raises; ConfigError (AHBM-C141) where AHBM_REPORT cannot be written.
    """
    world_size = whole("world_size", world_size, 1, 2**31 - 1)
    report.check()
    chooses = as_selector(selector)
    asked = Setup(topology, ccl, overrides, accumulate=accumulate, selector=chooses)
    setup = options(asked).over(ambient()).sized(world_size)
    body = caller(worker, args)
    shared = _Shared(world_size, turns)
    lobby = Lobby(setup, setup.emulator())

    def run(rank: int) -> T:
        with shared.rank(rank):
            return body(rank)

    world = World(world_size, _Generators(world_size) if turns else None)
    with shared.installed():
        try:
            return run_ranks(world, lobby, run)
        finally:
            for session in lobby.sessions():
                report.add(session.ledger)


class _Shared:
    """The state that the threads of one `spawn` have in common."""

    def __init__(self, size: int, turns: bool) -> None:
        self.size = size
        self.turns = turns
        self.world = _ThreadWorld()
        self.store = dist.HashStore()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Gives every thread a torch.distributed of its own, and one autograd thread per rank: the rank's."""
        if isinstance(c10d._world, _ThreadWorld):
            raise DistributedError("AHBM-X108", "ahbm.torch.spawn inside of ahbm.torch.spawn")
        before, env = c10d._world, _rendezvous_handlers["env"]
        c10d._world = self.world
        _rendezvous_handlers["env"] = self._rendezvous
        torch._C._distributed_c10d._set_thread_isolation_mode(True)
        recorder = os.environ.get(_RECORDER)
        os.environ[_RECORDER] = "0"  # torch's flight recorder is one per process: it would mix the ranks up
        hook = sys.excepthook  # every rank's init_process_group wraps it
        try:
            with torch.autograd.set_multithreading_enabled(False), separated(), helping(self._acting):
                yield
        finally:
            sys.excepthook = hook
            del os.environ[_RECORDER]
            if recorder is not None:
                os.environ[_RECORDER] = recorder
            torch._C._distributed_c10d._set_thread_isolation_mode(False)
            _rendezvous_handlers["env"] = env
            c10d._world = before

    @contextmanager
    def rank(self, rank: int) -> Iterator[None]:
        """Makes the calling thread `rank`."""
        context = current()
        assert context is not None and context.rank == rank
        with self._acting(Own(context, _empty())):
            yield

    @contextmanager
    def _acting(self, own: Own) -> Iterator[None]:
        """Makes the calling thread act for a rank."""
        before, context = calling.own, current()
        self._become(own, own.context)
        try:
            yield
        finally:
            self._become(before, context)

    def _become(self, own: Own | None, context: Context | None) -> None:
        act_for(context)
        calling.own = own
        if own is None:
            be_rank(None)
            return
        be_rank(own.places, self._open)
        torch.autograd.set_multithreading_enabled(False)
        _unregister_all_process_groups()  # of this thread, which may have acted for another rank
        for group, name in list(own.groups["pg_names"].items()):
            _register_process_group(name, group)

    def _open(self, setup: Setup) -> Place:
        own = calling.own
        assert own is not None
        context = own.context
        context.session = context.lobby.session(context, setup, BACKEND, "")
        context.world.ranks[context.rank].clock_ps = 0
        place = ThreadPlace(context, context.session, lambda: self._acting(own), self.turns)
        if context.lobby.first.selector is not None:
            place.choose().use(None, context.lobby.first.selector)
        elif context.session.emulator.ccl.has_selectors:
            place.choose()
        return place

    def _rendezvous(self, url: str, timeout: Any = None, **_: Any) -> Iterator[tuple[Any, int, int]]:
        context = current()
        if context is None:
            raise DistributedError("AHBM-X102", "init_process_group in a thread that is no rank")
        yield dist.PrefixStore(f"{context.generation}/", self.store), context.rank, self.size
        raise RuntimeError("threads meet once")


class _ThreadWorld:
    """torch.distributed's table of groups, one per rank; empty in a thread that acts for none."""

    def __init__(self) -> None:
        self._of_nobody = _Table()

    def data(self) -> dict[str, Any]:
        """The calling thread's table."""
        return self._of_nobody.data if calling.own is None else calling.own.groups

    @property
    def pg_config_info(self) -> Any:
        """As torch computes it."""
        return type(_PLAIN).pg_config_info.fget(self)


_PLAIN: Any = c10d._world
_FIELDS = {name for name, value in vars(type(_PLAIN)).items() if isinstance(value, property)} - {"pg_config_info"}


def _empty() -> dict[str, Any]:
    """A table without groups."""
    empty: dict[type, Any] = {dict: dict, list: list, int: int}
    return {name: empty.get(type(getattr(_PLAIN, name)), lambda: None)() for name in _FIELDS}


class _Table(threading.local):
    def __init__(self) -> None:
        self.data = _empty()


def _field(name: str) -> property:
    def get(world: _ThreadWorld) -> Any:
        return world.data()[name]

    def put(world: _ThreadWorld, value: Any) -> None:
        world.data()[name] = value

    return property(get, put)


for _name in _FIELDS:
    setattr(_ThreadWorld, _name, _field(_name))


class _Generators:
    """Per rank, the state of torch's random numbers while another rank has the turn."""

    def __init__(self, size: int) -> None:
        self._shared = torch.default_generator
        self._states = [self._shared.get_state()] * size

    def pause(self, rank: int) -> None:
        """See `Pause`."""
        self._states[rank] = self._shared.get_state()

    def resume(self, rank: int) -> None:
        """See `Pause`."""
        self._shared.set_state(self._states[rank])
