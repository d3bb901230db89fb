"""AHBM_FALLBACK=gloo: a call that the emulator does not do is made on a group of gloo's, and a notice says so."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ahbm.base.logs import notice
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.torch import backend, sketch
from ahbm.torch.place import Place

ENV = "AHBM_FALLBACK"


def wanted() -> bool:
    """Whether the environment asks for it. Raises ConfigError (AHBM-C127) for another backend than gloo."""
    asked = os.environ.get(ENV) or None
    if asked not in (None, "gloo"):
        raise ConfigError("AHBM-C127", f"{ENV}={asked!r} is unknown", hint="gloo, or nothing")
    return asked is not None


class ProcessGroup(backend.ProcessGroup):
    """Backend "ahbm", with a twin of gloo's for the calls that it does not do.

    A call is looked at before any of it is issued. That all ranks leave it to the twin is agreed on by a barrier, whose
    time is all that is simulated of it: ranks that differ fail as with any other disagreement.
    """

    def __init__(self, place: Place, members: Members, timeout: timedelta | None, store: Any) -> None:
        super().__init__(place, members, timeout, store)
        self._store = dist.PrefixStore("ahbm fallback", store)
        self._twin: Any = None

    def set_timeout(self, timeout: timedelta) -> None:
        """The twin's, too."""
        super().set_timeout(timeout)
        if self._twin is not None:
            self._twin._set_default_timeout(timeout)

    _set_default_timeout = set_timeout

    def _elsewhere(self, name: str, error: UnsupportedError) -> Any:
        """The twin's method `name`. Raises `error` where ranks take turns: gloo would wait for those that have none."""
        if self._place.eager_futures:
            raise error
        message = f"{name} is left to gloo, and its time not simulated: {error.findings[0]}".splitlines()[0]
        self.agree(message)
        notice(message)
        if self._twin is None:
            self._twin = dist.ProcessGroupGloo(self._store, self.rank(), self.size(), self._state.timeout)
        return getattr(self._twin, name)


def _looked_at(name: str) -> Any:
    def method(self: ProcessGroup, *args: Any, **kw: Any) -> Any:
        try:
            sketch.calls(self, name, args, kw)
        except UnsupportedError as error:
            if error.code != "AHBM-U154":  # what depends on other ranks is done here all the same
                return self._elsewhere(name, error)(*args, **kw)
        return getattr(super(ProcessGroup, self), name)(*args, **kw)

    return method


for _name in sketch.METHODS.keys() - backend.RENAMED:
    setattr(ProcessGroup, _name, _looked_at(_name))
