"""The line of a script that a call is told of by."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ahbm.ranks import blame
from ahbm.ranks.blame import call_origin


def library(folder: Path, name: str, text: str) -> ModuleType:
    """A module of that text, in that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


CALLS = "def calls(function):\n    return function()\n"


@pytest.mark.parametrize("place", ["lib/python3/site-packages/trainer", "usr/lib/python3/dist-packages"])
def test_libraries_anywhere_are_passed_over(place: str, tmp_path: Path) -> None:
    made = library(tmp_path / place, "trainer", CALLS)
    own = library(tmp_path / "project", "helper", CALLS)
    assert made.calls(call_origin).startswith("test_origins.py:")
    assert own.calls(call_origin) == "helper.py:2"
    assert made.calls(lambda: own.calls(call_origin)) == "helper.py:2"


def test_torch_is_passed_over_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(tmp_path / "elsewhere" / "torch", "_ops", CALLS)
    here = ModuleType("torch")
    here.__file__ = str(tmp_path / "elsewhere" / "torch" / "__init__.py")
    monkeypatch.setitem(sys.modules, "torch", here)
    assert made.calls(call_origin).startswith("test_origins.py:")


def test_python_is_passed_over() -> None:
    found = []

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        yield
        found.append(call_origin())

    with around():
        pass
    assert found[0].startswith("test_origins.py:")


def test_threads_of_libraries_are_told_of_by_their_outermost_line(tmp_path: Path) -> None:
    inner = library(tmp_path / "site-packages", "inner", CALLS)
    outer = library(tmp_path / "site-packages", "outer", f"\n{CALLS}")
    found: list[str] = []
    ask = "lambda: found.append(outer.calls(lambda: inner.calls(call_origin)))"
    names = {"found": found, "outer": outer, "inner": inner, "call_origin": call_origin}
    asks = eval(compile(ask, str(tmp_path / "site-packages" / "asks.py"), "eval"), names)
    for line in ("", "train.py:7"):  # whose backward pass has started the thread
        blame.backward[0] = line
        try:
            thread = threading.Thread(target=asks)
            thread.start()
            thread.join()
        finally:
            blame.backward[0] = ""
    assert found == ["asks.py:1", "train.py:7"]
