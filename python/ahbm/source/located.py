"""Where the file of an algorithm module is: a path, a bare name in a folder of algorithms, or a name to import."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from os.path import isfile
from pathlib import Path, PurePath

from ahbm.base import packaged
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.load import parse_python
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.settings import Settings
from ahbm.errors import ConfigError, Site
from ahbm.source.files import no_file

_PACKAGED = packaged.ALGORITHMS.resolve()


def available() -> dict[str, Path]:
    """Modules that a bare name finds: those in ./algorithms, then the packaged ones."""
    return {
        name: folder / f"{name}.py"
        for folder in (packaged.ALGORITHMS, Path("algorithms"))
        for name in packaged.names(folder, ".py")
    }


def file_of(module: str, folder: Path) -> Path | None:
    """The file that an entry in `folder` means by a path, or by a bare name that is in a folder of the user's; None for
    what is packaged or imported."""
    if module.endswith(".py") or "/" in module:
        return folder / module
    near = (place / "algorithms" / f"{module}.py" for place in (folder, Path()))
    return None if "." in module else next(filter(isfile, near), None)


def locate(settings: Settings) -> tuple[Path, str]:
    """The module's file and the package it belongs to. Raises ConfigError (AHBM-C110) where there is none."""
    module = str(settings.options)
    path = file_of(module, settings.folder)
    if path is None and isfile(own := _PACKAGED / f"{module}.py"):
        return own, ""
    if path is not None:
        if not isfile(path):
            raise no_file(settings.algorithm, path)
        return path.resolve(), ""
    why = f"no module named {module!r}"
    try:
        with importing_from(settings.folder, Path()):
            spec = importlib.util.find_spec(module)
    except Exception as error:
        # Packages around it are imported to find it.
        spec, why = None, in_words(error)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise _missing(settings, module, why)
    return Path(spec.origin).resolve(), spec.parent or ""


def _missing(settings: Settings, module: str, why: str) -> ConfigError:
    named = module != settings.algorithm
    if "." not in module.strip("."):
        message = f"there is no algorithm {settings.algorithm!r}" + (f" (module {module})" if named else "")
        hint = "a collective is no algorithm; " if module in COLLECTIVES else ""
        hint += did_you_mean(module, available()) + "; a path must end in .py"
    else:
        message = f"the module {module} of algorithm {settings.algorithm!r} cannot be imported: {why}"
        package = module.partition(".")[0]
        hint = f"put the folder with the package {package} on PYTHONPATH, or name the file: a path, which ends in .py"
    sites = (Site(f"algorithms.{settings.algorithm}", settings.written),) if settings.written else ()
    return ConfigError("AHBM-C110", message, sites=sites, hint=hint)


def place(filename: str) -> str:
    """A code object's file as origins name it: its last part, or `<cell>` for a cell of a notebook."""
    if "ipykernel_" in filename or filename.startswith("<ipython-input-"):
        return "<cell>"
    return PurePath(filename).name or filename


def refuse_kernel(target: str) -> None:
    """Raises ConfigError (AHBM-C144) for a file that defines a kernel and does nothing when it is executed: where a
    collective, a plan or a script is asked for."""
    if not target.endswith(".py") or not isfile(target):
        return
    try:
        body = parse_python(target).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    named = set(chain.from_iterable(map(_idle, body)))
    if None not in named and {"kernel", "kernel_args"} <= named:
        what = f"{target} is the module of an algorithm, and does nothing by itself"
        hint = f"name it with -a: ahbm run all_reduce -a {target}, ahbm check -a {target}"
        raise ConfigError("AHBM-C144", what, hint=hint)


def _idle(one: ast.stmt) -> list[str | None]:
    """The names that a statement defines; None among them if it does more than that."""
    if isinstance(one, ast.FunctionDef | ast.ClassDef):
        return [one.name]
    if isinstance(one, ast.Assign | ast.AnnAssign | ast.Expr) and any(isinstance(at, ast.Call) for at in ast.walk(one)):
        return [None]
    if isinstance(one, ast.Assign):
        return [name.id for name in one.targets if isinstance(name, ast.Name)]
    if isinstance(one, ast.If) and ast.unparse(one.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return []
    return [] if isinstance(one, ast.Import | ast.ImportFrom | ast.AnnAssign | ast.Expr) else [None]


@contextmanager
def importing_from(*folders: Path) -> Iterator[None]:
    """Imports look into these folders first."""
    before = list(sys.path)
    sys.path[:0] = [str(folder.resolve()) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before


def in_words(error: BaseException) -> str:
    """An exception of the user's code in words; turning it into text is the user's code, too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def failing_line(error: BaseException, path: Path) -> str:
    """The line of the file at which an exception was raised."""
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(path):
            line = frame.tb_lineno
        frame = frame.tb_next
    return f"{relative(path)}:{line}" if line else relative(path)


def relative(path: Path) -> str:
    """The path as the user knows it: relative to the working folder, else the file's name."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name
