"""Algorithm modules: finding them, loading them, and checking what they promise before anything runs.

Modules are code and run with the user's rights, like a conftest.py.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ahbm import packaged
from ahbm._core import plan_files
from ahbm.collectives import COLLECTIVES, Request
from ahbm.config import Settings
from ahbm.errors import AhbmError, ConfigError, KernelError, Site, UnsupportedError
from ahbm.lowering import PlanAlgorithm
from ahbm.lowering import load as load_plan
from ahbm.synthesis import SynthAlgorithm
from ahbm.yaml_source import did_you_mean

SIP_ARGUMENTS = ("sip_rank", "sip_topo_kind", "sip_topo_w", "sip_topo_h")
"""What every kernel takes last."""


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A loaded module that keeps the contract."""

    name: str
    path: Path
    digest: str
    """Hash of the file's content: the module's identity in caches, together with its path."""
    collectives: tuple[str, ...]
    kernel: Callable[..., None]
    kernel_args: Callable[..., tuple[object, ...]]
    keywords: frozenset[str]
    """Keywords that `kernel_args` accepts besides cube_w and cube_h."""
    kinds: dict[str, int] | None
    """TOPO_NAME_TO_KIND, None where the module has none."""

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        return str(self.path)

    @property
    def identity(self) -> tuple[str, str]:
        """Path and content hash."""
        return (str(self.path), self.digest)

    def check(self, request: Request) -> None:
        """Raises ConfigError (AHBM-C115) for another collective than the module's, UnsupportedError (AHBM-U110) for an
        operator, a dtype or a root that `kernel_args` has no keyword for."""
        collective = COLLECTIVES[request.collective]
        if request.collective not in self.collectives:
            raise ConfigError(
                "AHBM-C115",
                f"{self.name} implements {', '.join(self.collectives)}, not {request.collective}",
                sites=(self._site(),),
                hint="choose another algorithm, or set COLLECTIVE in the module",
            )
        needs = [
            ("dtype", request.dtype, "f16", True),
            ("op", request.op, "sum", collective.reduces),
            ("root", request.root, 0, collective.rooted),
            ("src", request.src, 0, collective.paired),
            ("dst", request.dst, 1, collective.paired),
        ]
        for keyword, value, default, applies in needs:
            if applies and value != default and keyword not in self.keywords:
                raise UnsupportedError(
                    "AHBM-U110",
                    f"{self.name} supports {keyword} {default} only, not {value}",
                    sites=(self._site(),),
                    hint=f"add the keyword {keyword}={default!r} to its kernel_args and heed it",
                )

    def arguments(self, request: Request, n_elem: int, cube_w: int, cube_h: int) -> tuple[object, ...]:
        """The kernel's arguments between `t_ptr` and `sip_rank`.

        Raises KernelError: AHBM-K110 when `kernel_args` raises or returns no tuple, K111 when the kernel does not take
        that many positional arguments.
        """
        offered = {
            "op": request.op,
            "dtype": request.dtype,
            "root": request.root,
            "collective": request.collective,
            "src": request.src,
            "dst": request.dst,
        }
        keywords = {key: value for key, value in offered.items() if key in self.keywords}
        try:
            args = self.kernel_args(request.world_size, n_elem, cube_w=cube_w, cube_h=cube_h, **keywords)
        except AhbmError:
            raise
        except Exception as error:
            raise KernelError(
                "AHBM-K110",
                f"kernel_args of {self.name} raised {type(error).__name__}: {error}",
                sites=(self._site(self.kernel_args),),
            ) from error
        if not isinstance(args, tuple):
            raise KernelError(
                "AHBM-K110",
                f"kernel_args of {self.name} must return a tuple, not {type(args).__name__}",
                sites=(self._site(self.kernel_args),),
            )
        self._check_arity(args)
        return args

    def topology_kind(self, network: str) -> int:
        """The module's number for a network between SIPs; 0 when it does not distinguish them.

        Raises ConfigError (AHBM-C116) for a network that is not in its TOPO_NAME_TO_KIND.
        """
        if self.kinds is None:
            return 0
        if network not in self.kinds:
            raise ConfigError(
                "AHBM-C116",
                f"{self.name} does not support the topology {network!r}",
                sites=(self._site(),),
                hint=f"its TOPO_NAME_TO_KIND has {', '.join(self.kinds)}",
            )
        return self.kinds[network]

    def _check_arity(self, args: tuple[object, ...]) -> None:
        signature = inspect.signature(self.kernel)
        given = 1 + len(args) + len(SIP_ARGUMENTS)
        try:
            signature.bind(*range(given), tl=None)
        except TypeError as error:
            positional = [
                p
                for p in signature.parameters.values()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "tl"
            ]
            taken = ", ".join(p.name for p in positional)
            raise KernelError(
                "AHBM-K111",
                f"the kernel of {self.name} takes {len(positional)} positional arguments, but gets {given}: "
                f"t_ptr, {len(args)} from kernel_args, {', '.join(SIP_ARGUMENTS)} ({error})",
                sites=(
                    Site(f"kernel({taken}, tl)", self._origin(self.kernel)),
                    Site(f"kernel_args returns {len(args)} values", self._origin(self.kernel_args)),
                ),
                hint="the tuple of kernel_args must match the kernel's parameters between t_ptr and sip_rank; "
                "tl comes as a keyword",
            ) from error

    def _site(self, what: Callable[..., object] | None = None) -> Site:
        return Site(self.name, self._origin(what) if what else _shown(self.path))

    def _origin(self, what: Callable[..., object]) -> str:
        code = getattr(inspect.unwrap(what), "__code__", None)
        return f"{_shown(self.path)}:{code.co_firstlineno}" if code else _shown(self.path)


AnyAlgorithm = Algorithm | PlanAlgorithm | SynthAlgorithm
"""What a name in ccl.yaml can stand for."""


class AlgorithmLoader:
    """Loads the modules and plans of one ccl.yaml, each once, whatever becomes of its file later. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._loaded: dict[str, Algorithm | PlanAlgorithm] = {}

    def load(self, settings: Settings) -> AnyAlgorithm:
        """The algorithm of `settings`.

        Raises FormatError, UnsupportedError and BudgetError for a plan that cannot be used. Raises ConfigError:
        AHBM-C110 when there is no such file, C111 when a module fails to load, C112 when its `kernel` or `kernel_args`
        is missing, C113 when one of its symbols has a wrong type.
        """
        if settings.synth is not None:
            return SynthAlgorithm(settings.algorithm, settings.synth)
        with self._lock:
            known = self._loaded.get(settings.algorithm)
            if known is not None:
                return known
            path, package = _locate(settings)
            files = [path] if settings.plan is None else plan_files(path)
            try:
                content = b"".join(file.read_bytes() for file in files)
            except OSError as error:
                raise ConfigError("AHBM-C110", f"cannot read algorithm {settings.algorithm}: {error}") from error
            if settings.plan is not None:
                known = load_plan(settings.algorithm, path, content, settings.reading)
            else:
                module = _execute(settings.algorithm, path, package, content)
                known = _describe(settings.algorithm, path, hashlib.sha256(content).hexdigest(), module)
            self._loaded[settings.algorithm] = known
            return known


def available() -> dict[str, Path]:
    """Modules that a bare name finds: those in ./algorithms, then the packaged ones."""
    return {
        name: folder / f"{name}.py"
        for folder in (packaged.ALGORITHMS, Path("algorithms"))
        for name in packaged.names(folder, ".py")
    }


def _locate(settings: Settings) -> tuple[Path, str]:
    """The module's or plan's file and the package it belongs to."""
    module = settings.plan or settings.module
    if settings.plan is not None or module.endswith(".py") or "/" in module:
        path = settings.folder / module
        if not path.is_file() and not (settings.plan is not None and plan_files(path) != [path]):
            raise ConfigError(
                "AHBM-C110",
                f"algorithm {settings.algorithm}: there is no file {path}",
                hint="a relative path starts from the folder of the ccl.yaml that names it",
            )
        return path.resolve(), ""
    if "." not in module:
        for folder in (settings.folder / "algorithms", Path("algorithms"), packaged.ALGORITHMS):
            if (folder / f"{module}.py").is_file():
                return (folder / f"{module}.py").resolve(), ""
    try:
        with _importing_from(settings.folder, Path()):
            spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise ConfigError(
            "AHBM-C110",
            f"there is no algorithm {settings.algorithm!r}"
            + (f" (module {module})" if module != settings.algorithm else ""),
            hint=did_you_mean(module, available()) + "; a path must end in .py",
        )
    return Path(spec.origin).resolve(), spec.parent or ""


def _execute(name: str, path: Path, package: str, content: bytes) -> ModuleType:
    # Every loading of a file is a module of its own, so it never changes code that another emulator still refers to.
    title = f"ahbm_algorithm_{path.stem}"
    module = ModuleType(title)
    module.__file__, module.__package__ = str(path), package
    previous = sys.modules.get(title)
    sys.modules[title] = module  # dataclasses and typing look their module up while it is executed
    try:
        with _importing_from(path.parent, Path()):
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise ConfigError(
            "AHBM-C111",
            f"algorithm {name} cannot be loaded: {type(error).__name__}: {error}",
            sites=(Site(name, _failing_line(error, path)),),
        ) from error
    finally:
        if previous is None:
            del sys.modules[title]
        else:
            sys.modules[title] = previous
    return module


def _describe(name: str, path: Path, digest: str, module: ModuleType) -> Algorithm:
    def bad(code: str, message: str, hint: str | None = None) -> ConfigError:
        return ConfigError(code, f"algorithm {name}: {message}", sites=(Site(name, _shown(path)),), hint=hint)

    for symbol, hint in (
        ("kernel", "publish the kernel function as kernel = my_function"),
        ("kernel_args", "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4) -> tuple"),
    ):
        if not hasattr(module, symbol):
            raise bad("AHBM-C112", f"the module has no symbol {symbol}", hint)
        if not callable(getattr(module, symbol)):
            raise bad("AHBM-C113", f"{symbol} is not callable")
    declared = getattr(module, "COLLECTIVE", "all_reduce")
    collectives = (declared,) if isinstance(declared, str) else tuple(declared)
    for collective in collectives:
        if collective not in COLLECTIVES:
            raise bad("AHBM-C113", f"COLLECTIVE {collective!r} is unknown", did_you_mean(str(collective), COLLECTIVES))
    kinds: Any = getattr(module, "TOPO_NAME_TO_KIND", None)
    if kinds is not None and not (isinstance(kinds, dict) and all(isinstance(k, str) for k in kinds)):
        raise bad("AHBM-C113", "TOPO_NAME_TO_KIND must be a dict of topology names")
    parameters = inspect.signature(module.kernel_args).parameters.values()
    offered = frozenset(("op", "dtype", "root", "collective", "src", "dst"))
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        keywords = offered
    else:
        keywords = offered & {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return Algorithm(name, path, digest, collectives, module.kernel, module.kernel_args, keywords, kinds)


@contextmanager
def _importing_from(*folders: Path) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [str(folder.resolve()) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before


def _failing_line(error: BaseException, path: Path) -> str:
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(path):
            line = frame.tb_lineno
        frame = frame.tb_next
    return f"{_shown(path)}:{line}" if line else _shown(path)


def _shown(path: Path) -> str:
    """The path as the user knows it: relative to the working folder, else the file's name."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name
