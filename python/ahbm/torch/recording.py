"""Recording what a job's ranks do, under any backend, as a Chakra trace.

torch makes its process groups of the class `ProcessGroup`; a recorder puts a subclass in its place, whose methods note
the call and hand it on to torch's own. C++ callers (DDP's reducer, functional collectives) reach them as Python ones
do. Which collectives a call comes to is asked of backend "ahbm" itself, on tensors without data, so what is recorded is
what the same job would do there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from ahbm.base.arguments import checked
from ahbm.errors import DistributedError, UnsupportedError
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.torch import backend, sketch
from ahbm.torch.compute import Stopwatch
from ahbm.torch.journal import Event, Journal
from ahbm.torch.place import Place
from ahbm.torch.untraced import untraced


class Recorder:
    """One rank's recording: what its groups do inside of `with`. See `record`."""

    def __init__(self, prefix: str | Path, compute: str) -> None:
        self._prefix = Path(prefix)
        self.journal = Journal(Stopwatch(compute))
        self._on = False
        self._place: tuple[int, int] | None = None
        """Rank and number of ranks."""
        self._nesting = threading.local()
        self._left_to_backward: list[Event] = []
        _current.recorder = self
        c10d.ProcessGroup = Group

    def __enter__(self) -> Recorder:
        if dist.is_initialized() and getattr(dist.group.WORLD, "recorder", None) is not self:
            raise DistributedError(
                "AHBM-X132",
                "the process group is older than the recorder, which observes only groups that are made later",
                hint="call ahbm.torch.record before init_process_group",
            )
        self._on = True
        self.journal.computing.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._on, _current.recorder = False, None
        if kind is None:
            if self._place is None:
                raise DistributedError("AHBM-X132", "no process group was made, so nothing was recorded")
            self.journal.compute()
            self.journal.write(self._prefix, *self._place)

    def made(self, group: Any) -> None:
        """A group was made; the first one is that of all ranks."""
        self._place = self._place or (group.rank(), group.size())

    @contextmanager
    def calling(self, group: Any, name: str, args: tuple[Any, ...], kw: dict[str, Any]) -> Iterator[list[Event]]:
        """Around torch's own method `name` of `group`: gives the events; the calls that it makes itself have none."""
        if not self._on or getattr(self._nesting, "inside", False):
            yield []
            return
        with self._standing_still():
            rank = dist.get_rank()
            yield [self.journal.issue(call, rank) for call in sketch.calls(group, name, args, kw)]

    @contextmanager
    def waiting(self, events: list[Event]) -> Iterator[None]:
        """Around a wait for `events`."""
        if not self._on:
            yield
            return
        with self._standing_still():
            yield
            self.journal.join(events)

    def future(self, events: list[Event]) -> None:
        """A future of `events` was asked for. Inside of a backward pass, its end waits for it, as DDP does, where no
        one can see it; elsewhere the rank does, at once."""
        if not self._on:
            return
        if torch._C._current_graph_task_id() < 0:
            self.journal.compute()
            self.journal.join(events)
            return
        if not self._left_to_backward:
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
        self._left_to_backward += events

    def _backward_ends(self) -> None:
        """Callbacks that were queued later wait for the events: time stands still until those callbacks are through."""
        self.journal.compute()
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_ended)

    def _backward_ended(self) -> None:
        self.journal.join(self._left_to_backward)
        self._left_to_backward = []
        self.journal.computing.start()

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        self.journal.compute()
        self._nesting.inside = True
        try:
            yield
        finally:
            self._nesting.inside = False
            self.journal.computing.start()


class _Current(threading.local):
    recorder: Recorder | None = None


_current = _Current()


def current() -> Recorder | None:
    """The recorder that the calling thread's new groups belong to."""
    return _current.recorder


@checked
def record(prefix: str | Path, *, compute: str = "wall") -> Recorder:
    """A recorder of this rank's collectives, sends and receives, and of the time between them.

    To be made before `init_process_group`, under whatever backend; inside of `with` it records, and at the end it
    writes `prefix.<rank>.et`. `compute` says by which clock computing takes time: "wall", "cpu" (the thread's CPU time)
    or "none"; AHBM_COMPUTE overrules it.

    Raises ConfigError (AHBM-C127); `with`, DistributedError (AHBM-X132) for a group that is older than the recorder or
    none at all, AHBM-X133 for a receive whose sender never became known, FormatError for a file that cannot be written;
    a call, UnsupportedError (AHBM-U150, U151, U154) for what the emulator does not have.
    """
    return Recorder(prefix, compute)


class Handle(dist.Work):
    """torch's handle, watched for who waits."""

    def __init__(self, work: Any, recorder: Recorder, events: list[Event], ranks: list[int]) -> None:
        super().__init__()
        self._work = work
        self._recorder = recorder
        self._events = events
        self._ranks = ranks

    def wait(self, *timeout: Any) -> bool:
        """torch's own; what follows depends on the operations."""
        with self._recorder.waiting(self._events):
            done: bool = self._work.wait(*timeout)
        if len(self._events) == 1 and self._events[0].lacks_sender:
            self._events[0].facts["comm_src"] = self._ranks[self._work._source_rank()]
        return done

    def get_future(self) -> Any:
        """torch's own."""
        self._recorder.future(self._events)
        return self._work.get_future()


def _asks(name: str) -> Any:
    return lambda self, *args: getattr(self._work, name)(*args)


def _waits(name: str) -> Any:
    def method(self: Handle, *args: Any) -> Any:
        with self._recorder.waiting(self._events):
            return getattr(self._work, name)(*args)

    return method


for _name in ("is_completed", "is_success", "exception", "source_rank", "_source_rank", "get_future_result"):
    setattr(Handle, _name, _asks(_name))
for _name in ("_get_op_type", "_get_duration", "_get_sequence_number"):
    setattr(Handle, _name, _asks(_name))
for _name in ("result", "synchronize", "block_current_stream"):
    setattr(Handle, _name, _waits(_name))


_BINDING: Any = type(dist.ProcessGroup)


class _AnyGroup(_BINDING):
    """Instance checks against torch's class hold for the one in its place, too: any group is an instance."""

    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, dist.ProcessGroup)


class Group(dist.ProcessGroup, metaclass=_AnyGroup):
    """A process group that hands its calls on to one of torch's own with the same backends; observed by a recorder.

    To torch's own, and not to what it inherits: that C++ would look for the Python method first, holding the
    interpreter's lock, which a thread of the backend may wait for.
    """

    def __init__(self, *args: Any, beyond: Any = None) -> None:
        super().__init__(*backend.birth(*args[:3]))
        self._beyond: Any = beyond or dist.ProcessGroup(*args)
        self._observe()

    def _observe(self) -> None:
        self.recorder = current()
        self._batch: list[Event] | None = None
        if self.recorder is not None:
            self.recorder.made(self)

    def _start_coalescing(self, *device: Any) -> None:
        self._batch = []
        self._beyond._start_coalescing(*device)

    def _end_coalescing(self, *device: Any) -> Any:
        events, self._batch = self._batch, None
        return self._handle(self._beyond._end_coalescing(*device), events or [])

    def split_group(self, *args: Any, **kw: Any) -> Any:
        """torch's own, observed as well."""
        own = self._beyond.split_group(*args, **kw)
        if own is None:
            return None
        group = Group(own.get_group_store(), own.rank(), own.size(), beyond=own)
        alone: Any = super(Group, group)  # `own` knows all of this
        for device in own._device_types:
            one = own._get_backend(device)
            alone._register_backend(device, _kind(one.name()), one)
        alone._set_default_backend(_kind(own.name()))
        alone._set_group_name(own.group_name)
        alone._set_group_desc(own.group_desc)
        return group

    def merge_remote_group(self, *args: Any, **kw: Any) -> Any:
        """torch's own, but not under a recorder: torch does not know the new group's global ranks."""
        if self.recorder is not None:
            raise UnsupportedError("AHBM-U154", "merge_remote_group under a recorder")
        return self._beyond.merge_remote_group(*args, **kw)

    def _handle(self, work: Any, events: list[Event]) -> Any:
        """`work`, watched; a call without a handle has waited."""
        if self.recorder is None or not events:
            return work
        if self._batch is not None:
            self._batch += events
        elif work is None:
            with self.recorder.waiting(events):
                pass
        return work and Handle(work, self.recorder, events, dist.get_process_group_ranks(self))


def _kind(backend_name: str) -> Any:
    """torch's number for a backend."""
    return dist.Backend.backend_type_map.get(backend_name, dist.ProcessGroup.BackendType.CUSTOM)


def _observed(name: str) -> Any:
    def method(self: Group, *args: Any, **kw: Any) -> Any:
        if self.recorder is None:
            return getattr(self._beyond, name)(*args, **kw)
        with self.recorder.calling(self, name, args, kw) as events:
            work = getattr(self._beyond, name)(*args, **kw)
        return self._handle(work, events)

    return method


def _stated_twice(name: str) -> Any:
    def method(self: Group, *args: Any) -> None:
        getattr(super(Group, self), name)(*args)
        if isinstance(self._beyond, dist.ProcessGroup):
            getattr(self._beyond, name)(*args)

    return method


for _name in ("_register_backend", "_set_default_backend", "_set_group_name", "_set_group_desc"):
    setattr(Group, _name, _stated_twice(_name))
for _name in sketch.METHODS:
    setattr(Group, _name, _observed(_name))


class Emulated(Group, backend.ProcessGroup):
    """Backend "ahbm", observed."""

    def __init__(self, place: Place, members: Members, timeout: timedelta | None, store: Any) -> None:
        self._beyond = super(Group, self)
        backend.ProcessGroup.__init__(self, place, members, timeout, store)
        self._observe()

    split_group = backend.ProcessGroup.split_group


for _name, _property in backend.RENAMED.items():
    setattr(Emulated, _name, _property)

untraced(Recorder, Handle, Group, Emulated)
