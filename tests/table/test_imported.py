"""What a module imports is part of what it is: rows of kernels whose helpers changed are others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.base.load import forget_files_read
from ahbm.table import imported as module
from ahbm.table.imported import imported
from support import rings


def file_of(name: str) -> Path:
    return Path(f"{name.replace('__', '/').replace('/init', '/__init__')}.py")


def write(**files: str) -> None:
    for name, text in files.items():
        file_of(name).parent.mkdir(parents=True, exist_ok=True)
        file_of(name).write_text(text, encoding="utf-8")
    # As a process that begins.
    forget_files_read()
    module._source.cache_clear()
    sys.modules.pop("helper", None)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Other tests have modules of these names, too."""
    yield
    for name in ("helper", "deeper", "mine"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "statement", ["import helper", "from helper import N", "import helper as h", "def f():\n    from helper import *"]
)
def test_every_way_to_import_is_followed(statement: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(mine=f"import json, numpy.linalg\n{statement}\n", helper="import deeper\nN = 1\n", deeper="import mine\n")
    found = imported("mine.py")
    # The helper, what that imports, and the module, which closes the circle.
    assert len(found) == 3 and found == imported(here / "mine.py")
    monkeypatch.chdir("/")
    assert imported(here / "mine.py") == found
    monkeypatch.chdir(here)
    write(deeper="import mine\n# changed\n")
    assert len(set(found) ^ set(imported("mine.py"))) == 2
    write(other="N = 1\n")
    assert len(imported("mine.py")) == 3


def test_packages_and_relative_names_are_followed(here: Path) -> None:
    write(
        mine="from kernels.deep import one\n",
        kernels__init="A = 1\n",
        kernels__deep__init="B = 1\n",
        kernels__deep__one="from . import two\nfrom ..up import C\nimport nowhere.at_all\n",
        kernels__deep__two="D = 1\n",
        kernels__up="C = 1\n",
    )
    found = imported("mine.py")
    assert len(found) == 5
    for name in ("kernels__init", "kernels__deep__init", "kernels__deep__one", "kernels__deep__two", "kernels__up"):
        write(
            **{
                name: f"# {name}\n"
                + (here / (name.replace("__", "/").replace("/init", "/__init__") + ".py")).read_text()
            }
        )
        found, before = imported("mine.py"), found
        assert len(set(found) ^ set(before)) == 2, name


def test_a_process_that_has_imported_a_source_runs_what_it_was(here: Path) -> None:
    write(mine="import helper\n", helper="N = 1\n")
    before = imported("mine.py")
    Path("helper.py").write_text("N = 2\n")
    assert imported("mine.py") == before
    write()
    assert imported("mine.py") != before


def test_what_is_no_python_imports_nothing(here: Path) -> None:
    write(mine="import broken\n", broken="def (\n")
    assert imported("mine.py") == []
    for path in ("broken.py", "nowhere.py", "plan.xml", ""):
        assert imported(path) == []
    assert imported(Path(ahbm.__file__)) == []


def test_a_kernel_whose_helper_changed_runs_again(here: Path) -> None:
    rings.write(here, mine={"united": "helper.united(acc, cur)"})
    kernel = here / "algorithms" / "mine.py"
    kernel.write_text("import helper\n" + kernel.read_text())
    ran: list[int] = []
    for united in ("acc + cur", "acc + cur", "cur + acc"):
        write(algorithms__helper=f"def united(acc, cur):\n    return {united}\n")
        told: list[Any] = []
        ahbm.sweep(algorithms="mine", topologies="npu_ring_8", sizes=1024, store="rows", tell=told.append)
        ran.append(told[-1].done)
    assert ran == [1, 0, 1]
