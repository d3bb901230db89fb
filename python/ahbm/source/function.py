"""Kernels as values: a function, or a module that is loaded already; for notebooks.

A function keeps the contract of a module's `kernel`; its `kernel_args` comes with it, or is that of its own globals.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ahbm.base.arguments import checked, shown
from ahbm.errors import AhbmError, ConfigError, Site
from ahbm.source.algorithm import Algorithm, is_algorithm
from ahbm.source.located import place
from ahbm.source.module import ModuleAlgorithm, described

AnyAlgorithm = str | Path | Algorithm | Callable[..., None] | ModuleType | None
"""The forms of an algorithm, see `as_algorithm`; None leaves the choice to ccl.yaml."""
SYMBOLS = {"kernel_args": "kernel_args", "COLLECTIVE": "collective", "TOPO_NAME_TO_KIND": "topologies"}
"""What a module declares beside its kernel, and the argument of `algorithm` that says the same of a function."""


@dataclass(frozen=True, eq=False)
class FunctionAlgorithm(ModuleAlgorithm):
    """A kernel that is a function of this process. Equal where its code and what its code refers to are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionAlgorithm) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    @property
    def source(self) -> str:
        """File and line of the kernel; `<cell>` is a cell of a notebook."""
        return self._origin(self.kernel)

    @property
    def identity(self) -> tuple[str, str]:
        """Kind and content hash."""
        return ("function", self.digest)

    def _origin(self, what: Callable[..., object]) -> str:
        code = _code(what)
        return f"{place(code.co_filename)}:{code.co_firstlineno}" if code else str(self.path)


@checked
def algorithm(
    kernel: Callable[..., None] | ModuleType | None = None,
    *,
    kernel_args: Callable[..., tuple[object, ...]] | None = None,
    collective: str | Sequence[str] | None = None,
    topologies: Mapping[str, int] | None = None,
    name: str | None = None,
) -> Any:
    """A kernel function, or a module that was imported, as an algorithm: for `algorithm=` of `ahbm.run` and the others.

    kernel: a function that keeps the contract of a module's `kernel` (`docs/writing-an-algorithm.md`).
    kernel_args: the function that makes its arguments; else the kernel's attribute `kernel_args`, else the
    `kernel_args` that stands beside it, in its module or notebook.
    collective: the collectives that it computes; else its attribute or its neighbour `COLLECTIVE`, else all_reduce.
    topologies: the networks that it knows and its number for each; else `TOPO_NAME_TO_KIND`, alike.
    name: how reports call it; else the function's own name.

    Without `kernel`, a decorator with these options. The algorithm is valid in this process: a report of it can be
    pickled, but opened again in this process only.

    Raises ConfigError: AHBM-C110 for what is no function, C112 without `kernel_args`, C113 for options of wrong types.
    """
    given = {"kernel_args": kernel_args, "COLLECTIVE": collective, "TOPO_NAME_TO_KIND": topologies}
    given = {symbol: value for symbol, value in given.items() if value is not None}
    if kernel is None:
        return lambda function: _described(function, given, name)
    return _described(kernel, given, name)


def as_algorithm(value: Any) -> str | Algorithm | None:
    """An algorithm in any of its forms: None, a name, a path, a function, a module, or an algorithm.

    Raises ConfigError as `algorithm`, AHBM-C110 for anything else.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if not is_algorithm(value):
        return _described(value, {}, None)
    found: Algorithm = value
    return found


def _described(kernel: object, given: Mapping[str, object], title: str | None) -> FunctionAlgorithm:
    if isinstance(kernel, ModuleType):
        beside: Mapping[str, Any] = vars(kernel)
        title = title or kernel.__name__.rpartition(".")[2]
        kernel = beside.get("kernel")
        if kernel is None:
            raise ConfigError("AHBM-C112", f"the module {title} has no symbol kernel", hint="kernel = my_function")
    else:
        beside = getattr(_unwrapped(kernel), "__globals__", {})
    if isinstance(kernel, type) or not callable(kernel):
        raise ConfigError(
            "AHBM-C110",
            f"algorithm must be a name, a path, a kernel function, a module or ahbm.algorithm(...), "
            f"not {shown(kernel)}",
        )
    name = title or str(getattr(kernel, "__name__", type(kernel).__name__))
    module = ModuleType(name)
    vars(module).update(kernel=kernel)
    for symbol in SYMBOLS:
        for value in (given.get(symbol), getattr(kernel, symbol, None), beside.get(symbol)):
            if value is not None:
                setattr(module, symbol, value)
                break
    code = _code(kernel)
    path = place(code.co_filename) if code else "<function>"
    if not hasattr(module, "kernel_args"):
        raise ConfigError(
            "AHBM-C112",
            f"the function {name} has no kernel_args",
            sites=(Site(name, f"{path}:{code.co_firstlineno}" if code else path),),
            hint=f"define kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4) beside it, or pass it: "
            f"ahbm.algorithm({name}, kernel_args=my_kernel_args)",
        )
    symbols = {key: value for key, value in vars(module).items() if not key.startswith("__")}
    try:
        found = described(name, Path(path), fingerprint(symbols, beside), module)
    except (AhbmError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise ConfigError(
            "AHBM-C113", f"algorithm {name}: its symbols cannot be read: {error}", hint="kernel is a plain function"
        ) from error
    return FunctionAlgorithm(**vars(found))


def fingerprint(value: object, beside: Mapping[str, Any]) -> str:
    """64 hex digits, equal for functions of equal code, defaults and closures whose names mean equal things.

    `beside`: the globals of the functions that are followed into; of others, the code counts.
    """
    return hashlib.sha256(repr(_facts(value, beside, set())).encode()).hexdigest()


def _facts(value: object, beside: Mapping[str, Any], seen: set[int]) -> object:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return (type(value).__name__, repr(value))
    if id(value) in seen:
        return "again"
    seen = seen | {id(value)}
    if isinstance(value, ModuleType):
        return ("module", value.__name__)
    if isinstance(value, Mapping):
        return [(repr(key), _facts(item, beside, seen)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return (type(value).__name__, [_facts(item, beside, seen) for item in value])
    if isinstance(value, set | frozenset):
        return ("set", sorted(repr(_facts(item, beside, seen)) for item in value))
    if isinstance(value, CodeType):
        # Lines count, for findings name them; the file does not: a notebook calls every execution of a cell another.
        parts = (value.co_code, value.co_linetable, value.co_firstlineno, value.co_names, value.co_varnames)
        shape = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
        return (parts, shape, value.co_freevars, _facts(value.co_consts, beside, seen))
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        own = value.__globals__ is beside
        names = {name: beside[name] for name in sorted(_names(value.__code__)) if name in beside} if own else {}
        others = (value.__defaults__, value.__kwdefaults__, cells, names, vars(value))
        return (_facts(value.__code__, beside, seen), [_facts(part, beside, seen) for part in others])
    if isinstance(value, type) and value.__module__ == beside.get("__name__"):
        members = {name: item for name, item in vars(value).items() if not name.startswith("__") or callable(item)}
        return ("class", value.__qualname__, _facts(members, beside, seen))
    try:
        return pickle.dumps(value)
    except Exception:  # whatever a stranger's object raises: then it is itself
        return ("object", id(value))


def _names(code: CodeType) -> set[str]:
    """Every global that a function may ask for, those of functions inside it too."""
    inner = (_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*inner)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _code(what: object) -> CodeType | None:
    found = getattr(_unwrapped(what), "__code__", None)
    return found if isinstance(found, CodeType) else None


def _unwrapped(what: Any) -> Any:
    try:
        return inspect.unwrap(what)
    except Exception:  # a stranger's object, or a cycle of wrappers
        return what
