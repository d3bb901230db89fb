"""The backend, in two forms.

`ProcessGroup` answers torch directly, on the caller's thread, and registers a `Backend` of its own for what looks one
up (batched sends, split_group); `Backend` alone is the plain form, visible to dispatch modes and hooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as TorchBackend
from torch._C._distributed_c10d import FakeProcessGroup

from ahbm.errors import UnsupportedError
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.torch.calls import NAME, Collectives, State
from ahbm.torch.place import Place

PLAIN_FORM = hasattr(dist.ProcessGroup, "register_pre_hook")
"""Whether a backend can be a Python class, as since torch 2.14; before, one of torch's stands where one is looked up
and none is called."""
stand_in = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)


def birth(store: Any, rank: int, size: int) -> tuple[Any, ...]:
    """The arguments of torch's ProcessGroup as the base of a Python class: before 2.14 it takes no store there."""
    return (store, rank, size) if PLAIN_FORM else (rank, size)


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
        """True: see `split_group` and `split`."""
        return True

    @property
    def supports_coalescing(self) -> bool:
        """True: see `start_coalescing`."""
        return True

    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_abort_hooks = property(lambda self: False)

    def _part(self, name: str, ranks: Sequence[int]) -> Members | None:
        """The sub-group `name` of group ranks `ranks`; None when this rank is not in it."""
        if self._me() not in ranks:
            return None
        return self._place.group(name, [self.members.ranks[rank] for rank in ranks])

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the longest time that a wait lasts."""
        self._timeout = timeout

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
        state = State()
        self.bind(place, members, timeout, state)
        self._inner = Backend(place, members, timeout, state) if PLAIN_FORM else stand_in(self.rank(), self.size())
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        self._register_backend(torch.device("cpu"), kind, self._inner)

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
        members = self._part(name, ranks)
        if members is None:
            return None
        store = dist.PrefixStore(f"{name}/", self._founding)
        group = type(self)(self._place, members, timeout or self._timeout, store)
        group._set_group_name(name)
        group._set_group_desc(group_desc or name)
        return group


class Backend(Form, TorchBackend):
    """The plain form: torch's own process group calls it through its dispatcher."""

    def __init__(self, place: Place, members: Members, timeout: timedelta | None, state: State | None = None) -> None:
        TorchBackend.__init__(self, members.rank_of(place.rank), members.size())
        self.bind(place, members, timeout, state or State())

    def split(self, store: Any, ranks: Sequence[int], opts: Any = None) -> Any:
        """The backend of the sub-group of group ranks `ranks`.

        Raises UnsupportedError (AHBM-U155) when this rank is not in it: torch has no Python backend say so.
        """
        members = self._part(str(getattr(opts, "group_name", "")), ranks)
        if members is None:
            raise UnsupportedError(
                "AHBM-U155",
                f"split_group into groups without rank {self._place.rank}, by the plain Backend form",
                hint="put every rank into a group, or leave AHBM_TORCH_CLASS unset",
            )
        return Backend(self._place, members, getattr(opts, "timeout", self._timeout))
