"""The import hook that serves foreign package names.

Only while a `compat()` block is active, `import mscclpp`, `import msccl` and what is below them give this project's own
modules. Nothing is claimed at `import ahbm`, and nothing stays behind.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from ahbm.errors import ConfigError

TOPS = {"mscclpp": "ahbm.mscclpp", "msccl": "ahbm.dsl.msccl"}
"""The names that are claimed -> the module whose names they have. It is imported when one of them is used."""
PACKAGES = {
    **TOPS,
    "mscclpp.language": "ahbm.dsl.mscclpp",
    "msccl.language": "ahbm.dsl.msccl",
    "msccl.collectives": "ahbm.dsl.msccl.synthesis_collectives",
    "msccl.topologies": "ahbm.dsl.msccl.topologies",
    "msccl.programs": "ahbm.dsl.msccl.programs",
}
"""Foreign name -> the module behind it; what is below a name is below its module."""
CHECKOUT = "MSCCLPP_HOME"
"""Environment variable that names a checkout of MSCCL++, whose `default_algos` are served."""
VERSIONS = {"mscclpp": "0.10.0", "msccl": "2.3.0"}
"""The versions whose languages are served."""

_lock = threading.RLock()


@contextmanager
def compat(first: Callable[[str], object] | None = None) -> Iterator[None]:
    """Serves `mscclpp` and `msccl` inside the `with` block; blocks may be nested.

    `first` is called with the name of each of the two before it is imported. Raises ConfigError (AHBM-C175) where
    another package of these names is imported already: classes of two packages would mix. A folder of such a name that
    was imported is put back afterwards.
    """
    with _lock:
        if any(isinstance(finder, _Finder) for finder in sys.meta_path):
            yield
            return
        for name in TOPS:
            file = getattr(sys.modules.get(name), "__file__", None)
            if file is not None:
                raise ConfigError(
                    "AHBM-C175",
                    f"{name} is imported already, from {file}",
                    hint=f"start from a process that has not imported {name}",
                )
            _notice_shadowed(name)
        folders = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in TOPS}
        finder = _Finder(first)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.split(".")[0] in TOPS]:
                del sys.modules[name]
            sys.modules.update(folders)


def served() -> list[str]:
    """The foreign modules that can be imported, sorted."""
    found = set(PACKAGES)
    for name, target in PACKAGES.items():
        if name in TOPS:
            continue
        spec = importlib.util.find_spec(target)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            found |= {f"{name}.{path.stem}" for path in Path(folder).glob("[a-z]*.py")}
            found |= {f"{name}.{path.parent.name}" for path in Path(folder).glob("[a-z]*/__init__.py")}
    return sorted(found)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, first: Callable[[str], object] | None) -> None:
        self._first = first

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.split(".")[0] not in TOPS:
            return None
        if fullname.startswith("mscclpp.default_algos"):
            return _of_checkout(fullname)
        name = _behind(fullname)
        if name is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}: AHBM serves {', '.join(served())}", name=fullname)
        if fullname in TOPS and self._first is not None:
            self._first(fullname)
        return ModuleSpec(fullname, _Loader(name), is_package=True)


class _Loader(importlib.abc.Loader):
    def __init__(self, name: str) -> None:
        self.name = name

    def exec_module(self, module: ModuleType) -> None:
        top = module.__name__.split(".")[0]
        vars(module).update(__ahbm__=True, __version__=VERSIONS[top])
        if module.__name__ == top:
            vars(module)["__getattr__"] = self._late
            return
        behind = importlib.import_module(self.name)
        own = {key: value for key, value in vars(behind).items() if not key.startswith("__") or key == "__all__"}
        vars(module).update(own, __doc__=behind.__doc__, __getattr__=lambda key: getattr(behind, key))

    def _late(self, key: str) -> object:
        # The import system asks every module for its own names.
        if key.startswith("__") and key != "__all__":
            raise AttributeError(key)
        return getattr(importlib.import_module(self.name), key)


def _behind(fullname: str) -> str | None:
    """The module that is served as `fullname`."""
    if fullname in TOPS:
        return TOPS[fullname]
    above, rest = fullname, ""
    while above not in PACKAGES:
        above, _, part = above.rpartition(".")
        rest = f".{part}{rest}"
    name = PACKAGES[above] + rest
    try:
        return name if importlib.util.find_spec(name) else None
    except ModuleNotFoundError:
        return None


def _of_checkout(fullname: str) -> ModuleSpec:
    home = os.environ.get(CHECKOUT)
    folder = Path(home or ".", "python", "mscclpp")
    parts = fullname.split(".")[1:]
    spec = PathFinder.find_spec(fullname, [str(folder.joinpath(*parts[:-1]))]) if home else None
    if spec is None:
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: these algorithms are MSCCL++'s own; {CHECKOUT} names a checkout that has "
            "them",
            name=fullname,
        )
    return spec


def _notice_shadowed(name: str) -> None:
    found = PathFinder.find_spec(name)
    if found is None or not found.origin:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = f" {version(name)}"
    except PackageNotFoundError:
        installed = ""
    print(f"ahbm: {name} is served by AHBM instead of {name}{installed} in {found.origin}", file=sys.stderr)
