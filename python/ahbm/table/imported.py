"""The sources that a module imports: what it runs besides its own file."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder
from itertools import accumulate
from pathlib import Path

from ahbm.base.load import load_text

_OF_PYTHON = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
_INSTALLED = (*_OF_PYTHON, str(Path(__file__).parents[1]))


def imported(path: str | Path) -> list[str]:
    """Digests of the sources that a module imports, and that those import, in no order that folders have; without
    those of installed packages and of this one. Nothing is executed.

    A source counts as it is when a process first asks for it: a process imports it once.
    """
    file = str(Path(path).resolve())
    # As where a module is executed.
    everywhere = [str(Path(file).parent), str(Path().resolve()), *sys.path]
    found, waiting = dict[str, str](), [(file, *one) for one in _source.__wrapped__(file)[1]]
    while waiting:
        of, name, above = waiting.pop()
        for origin in _files(name, [str(Path(of).parents[above - 1])] if above else everywhere):
            if origin not in found:
                found[origin], names = _source(origin)
                waiting += [(origin, *one) for one in names]
    return sorted(filter(None, found.values()))


@lru_cache(None)
def _source(file: str) -> tuple[str, list[tuple[str, int]]]:
    """Digest of a source, and the names that it imports, each with the folders upwards where it is, 0 for everywhere;
    nothing of what is installed, or no Python."""
    if file.startswith(_INSTALLED) or not file.endswith(".py"):
        return "", []
    try:
        return _read(load_text(file))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return "", []


@lru_cache(256)
def _read(text: str) -> tuple[str, list[tuple[str, int]]]:
    """What `_source` says of a text. Raises what the parser of Python raises."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [(alias.name, 0) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in (node for node in nodes if isinstance(node, ast.ImportFrom)):
        names += [(f"{node.module or ''}.{alias.name}".lstrip("."), node.level) for alias in node.names]
    return hashlib.sha256(text.encode()).hexdigest() if text else "", names


def _files(name: str, folders: Sequence[str]) -> Iterator[str]:
    """The files of a module and of the packages that it is in, as far as they are found."""
    for part in accumulate(name.split("."), "{}.{}".format):
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            return
        yield from [spec.origin] if spec.origin is not None else []
        folders = spec.submodule_search_locations or []
