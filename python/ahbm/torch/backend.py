"""The backend, in the two parts that torch knows.

`ProcessGroup` answers torch directly, on the caller's thread. While one of torch's instruments looks (a hook, a
dispatch mode, the profiler, autograd at a tensor that requires a gradient), it sends the call through torch's
dispatcher, where they see it. The dispatcher's kernel calls the group's `Backend`, which makes the operation. torch
wraps the backend's handle into one of its own, which knows neither completion nor sender, so the caller gets the handle
that the backend has made. The way through the dispatcher lets go of the interpreter's lock, which threads that wait for
it make dear: 34 us of a small all_reduce.

Before torch 2.14 a backend cannot be a Python class, and no instrument sees the calls.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import Backend as TorchBackend
from torch._C._distributed_c10d import FakeProcessGroup

from ahbm.errors import UnsupportedError
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.torch import rules
from ahbm.torch.calls import CALLS, NAME, Collectives, State
from ahbm.torch.place import Place
from ahbm.torch.tensors import hollow, tracked
from ahbm.torch.untraced import untraced
from ahbm.torch.work import Work

PYTHON_BACKENDS = hasattr(dist.ProcessGroup, "register_pre_hook")
"""Whether a backend can be a Python class, as since torch 2.14; before, one of torch's stands where one is looked up
and none is called."""
stand_in = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)
_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_tracking: Callable[[], bool] = torch.is_grad_enabled
_profiling: Callable[[], bool] = torch.autograd._profiler_enabled
_waited_for_by_tensor: Callable[[], bool] = torch._C._distributed_c10d._allow_inflight_collective_as_graph_input
"""Whether torch keeps the handles of calls for functions that wait for a tensor."""


DEVICES = ["cpu"]
"""Kinds of devices whose tensors the backend takes; see `ahbm.torch.device` for others than the CPU."""
OWN_MODES = [0]
"""How many dispatch modes of this package's every thread is in: they are no instruments."""


def birth(store: Any, rank: int, size: int) -> tuple[Any, ...]:
    """The arguments of torch's ProcessGroup as the base of a Python class: before 2.14 it takes no store there."""
    return (store, rank, size) if PYTHON_BACKENDS else (rank, size)


class Form(Collectives):
    """The methods of a backend that torch uses beside calls."""

    def name(self) -> str:
        """`"ahbm"`."""
        return NAME

    getBackendName = name
    _get_backend_name = name

    @property
    def options(self) -> Any:
        """A `Backend.Options` with the name and the timeout."""
        return self._options

    @property
    def supports_splitting(self) -> bool:
        """True: see `split_group`."""
        return True

    @property
    def supports_coalescing(self) -> bool:
        """True: see `start_coalescing`."""
        return True

    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_abort_hooks = property(lambda self: False)

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the longest time that a wait lasts, whichever form of the group makes the call."""
        self._state.timeout = timeout

    _set_default_timeout = set_timeout

    def eager_connect_single_device(self, device: Any = None) -> None:
        """Nothing to connect."""

    def _set_sequence_number_for_group(self) -> None:
        self._state.sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._state.sequence

    def _enable_collectives_timing(self) -> None:
        """Operations are always timed."""

    def shutdown(self) -> None:
        """Leaves the group; the default group's rank leaves its world."""
        self._place.close(self.members)

    def abort(self) -> None:
        """Leaves the world; operations under way fail on all ranks."""
        self._place.abort()


class ProcessGroup(Form, dist.ProcessGroup):
    """A process group that is its own backend."""

    def __init__(self, place: Place, members: Members, timeout: timedelta | None, store: Any) -> None:
        dist.ProcessGroup.__init__(self, *birth(store, members.rank_of(place.rank), members.size()))
        self._founding = store
        state = State(timeout, rules=rules.asked(place), store=place.store and store)
        self.bind(place, members, state)
        self._inner = Backend(place, members, state) if PYTHON_BACKENDS else stand_in(self.rank(), self.size())
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        for device in DEVICES:
            self._register_backend(torch.device(device), kind, self._inner)
        self._hooked: bool | None = None

    @property
    def _device_types(self) -> list[torch.device]:
        """The devices whose tensors the group takes: by the backend that the script has asked for."""
        made: list[torch.device] = dist.ProcessGroup._device_types.fget(self)
        asked = self._state.rules
        if asked is None or asked.hosts:
            return made
        return [device for device in made if device.type != "cpu"]

    def watched(self) -> bool:
        """Whether somebody looks at what goes through torch's dispatcher."""
        if self._hooked is None:  # by torch itself, after it has made the group
            recorders = getattr(c10d._world, "pg_flight_recorder_hooks", ())
            self._hooked = os.environ.get("TORCH_DIST_NAN_CHECK") == "1" or self in recorders
        return self._hooked or _modes() > OWN_MODES[0] or _profiling() or _waited_for_by_tensor()

    def register_pre_hook(self, hook_id: int, hook: Callable[[Any], None]) -> None:
        """torch's own."""
        self._hooked = True
        super().register_pre_hook(hook_id, hook)

    def register_post_hook(self, hook_id: int, hook: Callable[[Any], None]) -> None:
        """torch's own."""
        self._hooked = True
        super().register_post_hook(hook_id, hook)

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: object = None,
    ) -> Any:
        """The sub-group of group ranks `ranks`, of this class; None when this rank is not in it."""
        name = group_name or f"{self.group_name}:split:{','.join(map(str, ranks))}"
        if self._me() not in ranks:
            return None
        members = self._place.group(name, [self.members.ranks[rank] for rank in ranks])
        store = dist.PrefixStore(f"{name}/", self._founding)
        with rules.asking(None if self._state.rules is None else self._state.rules.asked):
            group = type(self)(self._place, members, timeout or self._state.timeout, store)
        group._set_group_name(name)
        group._set_group_desc(group_desc or name)
        return group


class Backend(Form, TorchBackend):
    """What the dispatcher's kernels call, and what torch looks up for batched sends."""

    def __init__(self, place: Place, members: Members, state: State) -> None:
        TorchBackend.__init__(self, members.rank_of(place.rank), members.size())
        self.bind(place, members, state)


_helpers: list[Any] = []


def agree_on_groups() -> None:
    """From now on all ranks agree on the list of each new group before torch makes it."""
    if _helpers:
        return
    makes = c10d._new_process_group_helper
    _helpers.append(makes)

    def helper(size: int, me: Any, ranks: Any, backend: Any, store: Any, name: Any, *args: Any, **kw: Any) -> Any:
        default = c10d._world.default_pg
        if isinstance(default, ProcessGroup) and ranks and str(backend) == NAME and str(name).isdecimal():
            default.agree_on_group(tuple(ranks))  # a name that is no number is made by the members alone
        return makes(size, me, ranks, backend, store, name, *args, **kw)

    c10d._new_process_group_helper = helper


class _Made(threading.local):
    work: Work | None = None
    dispatching = False


_made = _Made()
"""The handle of the operation that the calling thread's backend has made, for its group."""


def _making(name: str) -> Callable[..., Work]:
    """A method of `Backend`: makes the operation and leaves the handle to the group."""
    make: Callable[..., Work] = getattr(Collectives, name)

    def method(self: Backend, *args: Any, **kw: Any) -> Work:
        _made.work = work = make(self, *args, **kw)
        return work

    return method


def _dispatched(name: str) -> Callable[..., Any]:
    """A method of `ProcessGroup`: torch's own of that name, which goes through the dispatcher to the backend.

    torch's own looks for an override first. It finds this one and calls it again, unless it is called by a function of
    that name whose first argument is the group.
    """
    torchs, make = getattr(dist.ProcessGroup, name), getattr(Collectives, name)
    unseen = make.__wrapped__

    def method(self: ProcessGroup, *args: Any, **kw: Any) -> Any:
        # By the profiler, either: to ask it takes 0.25 us, and `make` would ask again.
        if not self.watched() and not (_tracking() and tracked(args)):
            return unseen(self, *args, **kw)
        before = _made.work, _made.dispatching
        _made.work, _made.dispatching = None, True
        try:
            answer = torchs(self, *args, **kw)
            work = _made.work
        except UnsupportedError:
            raise
        except NotImplementedError:  # c10d has no kernel for such tensors, which are sparse or nested
            return make(self, *args, **kw)
        finally:
            _made.work, _made.dispatching = before
        if work is None and hollow(args):  # a kernel for tensors without data, or a dispatch mode, has answered
            return make(self, *args, **kw)
        return answer if work is None else work

    return FunctionType(method.__code__.replace(co_name=name), globals(), name, None, method.__closure__)


def _renamed(old: str, new: str) -> property:
    """The deprecated spelling of a method of `ProcessGroup`: torch's own method `new` must not find it as an override,
    too, for which it may look next."""

    def method(self: ProcessGroup) -> Any:
        return getattr(super(Collectives, self), old) if _made.dispatching else getattr(self, new)

    return property(method)


RENAMED: dict[str, property] = {}
"""The deprecated spellings; subclasses override the new ones only."""

if PYTHON_BACKENDS:
    for _name in CALLS:
        _new = getattr(Collectives, _name).__name__
        setattr(Backend, _name, _making(_name))
        if _new == "gather_single":  # torch has no Python backend make it
            continue
        if _name == _new:
            setattr(ProcessGroup, _name, _dispatched(_name))
        else:
            RENAMED[_name] = _renamed(_name, _new)
            setattr(ProcessGroup, _name, RENAMED[_name])

untraced(Collectives, Form, Backend, ProcessGroup, Work)
