"""What torch keeps once per process, kept once per rank where ranks are threads of one process.

Threads that a rank has started act for it and share what is its own. A mesh says whose it is, so that what torch caches
for a mesh (plans of redistributions, strategies, shapes of shards) is never taken from another rank's. Attributes in
which torch has state that changes are looked up per rank.
"""

from __future__ import annotations

import copy
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any

from torch.distributed.device_mesh import DeviceMesh

from ahbm.torch.replacing import replace

if TYPE_CHECKING:
    from ahbm.ranks.lobby import Context
    from ahbm.torch.place import Place

STATES: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "torch.distributed.tensor._api": (lambda module: module.DTensor._op_dispatcher, ("_custom_op_handlers",)),
    "torch.distributed.fsdp._debug_utils": (lambda module: module.SimpleProfiler, ("results", "profiling")),
}
"""By module, an object in it and those of its attributes that are a rank's own: `loss_parallel` puts handlers in and
takes them out, sharded optimizers note what they measure."""


@dataclass(eq=False)
class Own:
    """One rank's own."""

    context: Context
    groups: dict[str, Any]
    """torch's table of groups."""
    places: list[Place] = field(default_factory=list)
    held: dict[tuple[int, str], Any] = field(default_factory=dict)
    """By object and name, the attributes of torch's that are the rank's."""


class _Calling(threading.local):
    own: Own | None = None


calling = _Calling()
"""`own`: that of the rank for which the calling thread acts; None where it acts for none."""


@contextmanager
def separated() -> Iterator[None]:
    """Keeps the ranks apart."""
    made = DeviceMesh.__init__

    @functools.wraps(made)
    def make(mesh: DeviceMesh, *args: Any, **kw: Any) -> None:
        made(mesh, *args, **kw)
        if calling.own is not None:  # torch's own field for ranks that are threads: meshes with others are unequal
            mesh._thread_id = calling.own.context.rank

    loads = _Loads()
    DeviceMesh.__init__ = make
    sys.meta_path.insert(0, loads)
    try:
        for name in STATES:
            if name in sys.modules:
                _separate(sys.modules[name])
        yield
    finally:
        sys.meta_path.remove(loads)
        DeviceMesh.__init__ = made


class _Loads:
    """Separates the states of modules that are loaded meanwhile."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        spec = PathFinder.find_spec(name, path, target) if name in STATES else None
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def loads(module: Any) -> None:
            load(module)
            _separate(module)

        spec.loader.exec_module = loads  # type: ignore[method-assign]
        return spec


def _separate(module: Any) -> None:
    """From now on each rank has its own of the module's states, which starts as that of the process."""
    find, names = STATES[module.__name__]
    owner = find(module)
    kind: Any = type(owner)
    if any(isinstance(vars(kind).get(name), _Separate) for name in names):
        return
    states = {name: _Separate(name, getattr(owner, name)) for name in names}
    apart = type(kind.__name__, (kind,), {"__module__": kind.__module__, **states})
    if isinstance(owner, type):
        replace(owner, apart(owner.__name__, (owner,), {"__module__": owner.__module__}))
    else:
        owner.__class__ = apart


class _Separate:
    """An attribute that has another value for each rank."""

    def __init__(self, name: str, of_process: Any) -> None:
        self._name, self._of_process = name, of_process

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        own = calling.own
        if own is None:
            return self._of_process
        key = id(owner), self._name
        if key not in own.held:
            own.held[key] = copy.copy(self._of_process)
        return own.held[key]

    def __set__(self, owner: Any, value: Any) -> None:
        if calling.own is None:
            self._of_process = value
        else:
            calling.own.held[id(owner), self._name] = copy.copy(value)
