"""Scripts that lower programs: run as their authors run them, and asked for the plans."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import io
import json
import re
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ahbm.base.load import load_bytes, parsed
from ahbm.config.reading import PLAIN
from ahbm.dsl.compat import TOPS, compat
from ahbm.dsl.written import Written, collected
from ahbm.errors import AhbmError, ConfigError, Finding, ProgramError, Site

UPSTREAM = "upstream"
"""The front end that leaves lowering to the installed packages of the languages."""


@dataclass(frozen=True)
class Script:
    """A script and its arguments."""

    path: str
    args: tuple[str, ...] = ()
    program: str | None = None
    """The name of the program that is meant, or its position from 0; None is the last."""
    frontend: str | None = None
    """`UPSTREAM`, or None for this project's own languages."""

    def __str__(self) -> str:
        return self.path

    def lower(self, *, quirks: bool = False) -> list[Written]:
        """Runs the script as `python script args` would, and returns its programs; what it prints is dropped.

        Raises ProgramError: AHBM-A301 for an exception of the script, A302 for an exit status, A303 for a script that
        lowers nothing; and what a language refuses. The last site names the author's line.
        """
        found = self.outcome(quirks=quirks).programs
        if not found:
            raise ProgramError("AHBM-A303", f"{self.path} lowers no program", hint="print(JSON()) or XML() lowers one")
        return found

    def chosen(self, *, quirks: bool = False) -> Written:
        """The program that is meant. Raises ConfigError (AHBM-C176) for one that there is not, and as `lower`."""
        return choose(self.lower(quirks=quirks), self)

    def outcome(self, *, quirks: bool = False) -> Outcome:
        """As `lower`, for a script that may lower nothing."""
        key = (self.path, self.args, self.frontend, quirks)
        kept = _KEPT.get(key)
        if kept is not None and kept.holds():
            return kept
        printed = io.StringIO()
        upstream = self.frontend == UPSTREAM
        complaints: list[tuple[str, Finding]] = []
        with collected(quirks=quirks, complaints=complaints) as programs, contextlib.ExitStack() as stack:
            if not upstream:
                stack.enter_context(compat())
            stack.enter_context(contextlib.redirect_stdout(printed))
            files = execute(self.path, self.args)
        if upstream:
            programs = list(_documents(printed.getvalue(), self.path))
        _KEPT.clear()
        return _KEPT.setdefault(key, Outcome(programs, printed.getvalue(), files, complaints))


@dataclass(frozen=True)
class Outcome:
    """A script after it has run."""

    programs: list[Written]
    printed: str
    """Its standard output."""
    files: list[tuple[Path, str]]
    """The files of its folder that were read as code, with their digests."""
    complaints: list[tuple[str, Finding]]
    """What programs have found wrong with themselves (`Check()`), with their names."""

    def holds(self) -> bool:
        """Whether none of the files has changed."""
        return all(_digest(file) == digest for file, digest in self.files)


_KEPT: dict[tuple[object, ...], Outcome] = {}
"""The last script that ran: one command asks for its programs several times."""


def choose(programs: Sequence[Written], script: Script) -> Written:
    """The one of `programs` that `script.program` names: by name, by position, else the last."""
    if script.program is None:
        return programs[-1]
    found = [program for program in programs if program.name == script.program]
    if not found and re.fullmatch("[0-9]{1,4}", script.program):
        found = list(programs[int(script.program) :][:1])
    if not found:
        names = ", ".join(program.name for program in programs)
        raise ConfigError("AHBM-C176", f"{script.path} lowers no program {script.program!r}", hint=f"one of {names}")
    return found[-1]


def imports_language(path: str | Path) -> bool:
    """Whether this is a Python file (.py) that imports one of the languages; it is parsed, not run."""
    if not str(path).endswith(".py"):
        return False
    try:
        return _imports_language(load_bytes(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False


@functools.lru_cache(256)
def _imports_language(content: bytes) -> bool:
    for node in ast.walk(parsed(content)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        if any(name.split(".")[0] in TOPS or f"{name}.".startswith("ahbm.dsl.") for name in names):
            return True
    return False


def execute(path: str, args: Sequence[str]) -> list[tuple[Path, str]]:
    """Runs `path` as a main program; returns the files of its folder that were read as code, with their digests.

    Modules of its folder that it imported are forgotten afterwards, so that another script's of the same name are not
    taken for them. Raises as `Script.lower`.
    """
    script, folder, known = Path(path), Path(path).resolve().parent, set(sys.modules)
    files = [script]
    try:
        with judged(path), as_main(path, args):
            runpy.run_path(path, run_name="__main__")
    finally:
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            # An environment may lie in the folder too: its modules stay.
            if file and Path(file) in _homes(folder, name):
                files.append(Path(file))
                del sys.modules[name]
    return [(file, _digest(file)) for file in files]


@contextlib.contextmanager
def as_main(path: str, args: Sequence[str]) -> Iterator[None]:
    """`sys.argv` and `sys.path` inside the `with` block as `python path args` has them."""
    argv, search = sys.argv, list(sys.path)
    sys.argv = [path, *args]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, search


def _homes(folder: Path, module: str) -> tuple[Path, Path]:
    """The files that a module can have when it is found in `folder`."""
    place = folder.joinpath(*module.split("."))
    return place.with_suffix(".py"), place / "__init__.py"


@contextlib.contextmanager
def judged(path: str) -> Iterator[None]:
    """Whatever code of the script at `path` raises becomes an AhbmError that names its innermost line."""
    try:
        yield
    except AhbmError as error:
        place = _innermost(error, path)
        if place and not any(site.origin.partition(" (")[0] == place for site in error.sites):
            first, *rest = error.findings
            placed = Finding(first.code, first.message, (*first.sites, Site("statement", place)), first.hint)
            error._set((placed, *rest))
        raise
    except SystemExit as stop:
        if stop.code not in (None, 0):
            status = stop.code if isinstance(stop.code, int) else 1
            said = "" if isinstance(stop.code, int) else f": {stop.code}"
            raise ProgramError(
                "AHBM-A302",
                f"{path} ended with exit status {status}{said}",
                sites=(Site("statement", _innermost(stop, path)),),
                hint="its arguments follow its name",
            ) from stop
    except Exception as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        place = _innermost(error, path)
        if isinstance(error, SyntaxError):
            place = f"{Path(error.filename or path).name}:{error.lineno}"
        raise ProgramError("AHBM-A301", f"{path}: {said}", sites=(Site("statement", place),)) from error


def _innermost(error: BaseException, path: str) -> str:
    """`file:line` of the innermost frame of code beside the script."""
    folder = Path(path).resolve().parent
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith("<") and Path(file).resolve().parent == folder:
            place = f"{Path(file).name}:{line}"
    return place


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(load_bytes(file)).hexdigest()
    except OSError:
        return ""


def _documents(printed: str, path: str) -> Iterator[Written]:
    """The plans among what a script has printed: JSON objects and `<algo>` elements."""
    whole = "<algo.*?</algo>"
    for text in re.findall(whole, printed, re.DOTALL):
        yield _read("msccl", text, path)
    rest, decoder = re.sub(whole, "", printed, flags=re.DOTALL), json.JSONDecoder()
    while (start := rest.find("{")) >= 0:
        try:
            _, length = decoder.raw_decode(rest[start:])
        except ValueError:
            return
        yield _read("mscclpp", rest[start : start + length], path)
        rest = rest[start + length :]


def _read(language: str, text: str, path: str) -> Written:
    with TemporaryDirectory() as folder:
        file = Path(folder, Path(path).stem + (".xml" if language == "msccl" else ".json"))
        file.write_text(text, encoding="utf-8")
        return Written(file.stem, language, PLAIN.read(file), text)
