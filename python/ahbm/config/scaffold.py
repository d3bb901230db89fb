"""Files to start from: a whole project (`ahbm init`), or an algorithm, its entry and its test (`ahbm new`)."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from pathlib import Path

from ahbm.base import packaged
from ahbm.base.load import load_text
from ahbm.base.store import make_folders, store
from ahbm.base.yaml_source import parse
from ahbm.config.ccl import CclConfig
from ahbm.errors import ConfigError

PROJECT = ("ccl.yaml", "topology.yaml", "algorithms/my_allreduce.py", "tests/test_my_allreduce.py")
"""The files of a project, from its folder. The top of the repository is such a project, byte for byte."""

_MODULE = '''"""All-reduce on a ring of ranks: every original value visits every rank.

Cost for m bytes and n ranks: (n-1) (alpha + m beta).
"""

from ahbm import Tl

COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    """The kernel's arguments between t_ptr and sip_rank."""
    return (n_elem, cube_w * cube_h, world_size, op, dtype)


def NAME(t_ptr, n_elem, cubes, n_sips, op, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl: Tl):
    """Runs once on each PE that holds a tile of n_elem elements; afterwards every tile holds the reduction of all."""
    cube = tl.program_id(axis=1)
    n = n_sips * cubes
    me = sip_rank * cubes + cube
    right, left = (tl.peer(sip=peer // cubes, cube=peer % cubes) for peer in ((me + 1) % n, (me - 1) % n))
    tile = t_ptr + cube * n_elem * tl.itemsize(dtype)

    acc = current = tl.load(tile, shape=(n_elem,), dtype=dtype)
    for _ in range(n - 1):
        tl.send(dir=right, src=current)
        current = tl.recv(dir=left, shape=(n_elem,), dtype=dtype)
        acc = tl.combine(acc, current, op)
    if op == "avg":
        acc = acc / n
    tl.store(tile, acc)


kernel = NAME
'''
_ENTRY = "  NAME: {module: ./algorithms/NAME.py}\n"
_TEST = """def test_NAME(run_collective):
    for topology in ("ring_1d", "fully_connected"):
        assert run_collective(algorithm="NAME", topology=topology, size=4096).wrong == 0
"""


def new_project(folder: Path) -> list[Path]:
    """Writes `PROJECT` under `folder`, which is made where it is missing.

    Returns the paths. Raises ConfigError: AHBM-C131 when one of the files exists already, C141 for a folder that cannot
    be written; then no file has been written.
    """
    source = packaged.ROOT / "project"
    written = {folder / name: (source / Path(name).name).read_bytes() for name in PROJECT}
    _refuse_existing(written, folder)
    _write(written, folder)
    return list(written)


def new_algorithm(name: str, folder: Path) -> list[Path]:
    """Writes `algorithms/<name>.py` and `tests/test_<name>.py` and adds an entry to `ccl.yaml`, all under `folder`.

    Returns the three paths. Raises ConfigError: AHBM-C130 for a name that is no Python identifier, C131 when a file or
    the entry exists already, C141 for a folder that cannot be written; then nothing has been written.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or len(name) > 100:
        raise ConfigError(
            "AHBM-C130", f"{name!r} is no Python identifier", hint="use at most 100 letters, digits and underscores"
        )
    module, ccl, test = (
        folder / "algorithms" / f"{name}.py",
        folder / "ccl.yaml",
        folder / "tests" / f"test_{name}.py",
    )
    _refuse_existing((module, test), folder)
    text = _with_entry(name, ccl)
    written = {path: content.replace("NAME", name).encode() for path, content in ((module, _MODULE), (test, _TEST))}
    _write({**written, ccl: text.encode()}, folder)
    return [module, ccl, test]


def _refuse_existing(paths: Iterable[Path], folder: Path) -> None:
    for path in paths:
        try:
            exists = path.exists()
        except OSError as error:  # a name that is too long
            raise _unwritable(folder, error) from error
        if exists:
            raise ConfigError("AHBM-C131", f"{path} exists already", hint="choose another name, or remove the file")


def _write(files: Mapping[Path, bytes], folder: Path) -> None:
    try:
        for path in files:
            make_folders(path.parent)
        store(files)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError("AHBM-C141", f"cannot write into {folder}: {error.strerror}")


def _with_entry(name: str, ccl: Path) -> str:
    """The text of ccl.yaml with the new entry first under `algorithms`, everything else as it was."""
    entry = _ENTRY.replace("NAME", name)
    if not ccl.exists():
        return f"algorithms:\n{entry}"
    known = CclConfig.load(ccl)
    text = load_text(ccl)
    if name in known.algorithms:
        raise ConfigError("AHBM-C131", f"{ccl} has an algorithm {name} already", hint="choose another name")
    source = parse(text, str(ccl))
    algorithms = source.values.get("algorithms")
    lines = text.splitlines(keepends=True)
    if algorithms is None and "algorithms" not in source.values:
        return text + ("" if text.endswith("\n") or not text else "\n") + f"\nalgorithms:\n{entry}"
    line = int(source.places["algorithms",].rsplit(":", 1)[1])
    if not lines[line - 1].split("#")[0].rstrip().endswith(":"):
        raise ConfigError(
            "AHBM-C132",
            f"{ccl}:{line}: algorithms is not written as a block of lines",
            hint=f"write one entry per line, then add {entry.strip()}",
        )
    if algorithms:
        first = next(iter(algorithms))
        first_line = lines[int(source.places["algorithms", first].rsplit(":", 1)[1]) - 1]
        entry = first_line[: len(first_line) - len(first_line.lstrip())] + entry.strip() + "\n"
    return "".join([*lines[:line], entry, *lines[line:]])
