"""Foreign package names: served inside a block, gone behind it, never mixed with another package."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

import ahbm.dsl.mscclpp as native
from ahbm.dsl.compat import TOPS, compat, served
from ahbm.errors import ConfigError


def foreign() -> list[str]:
    return sorted(name for name in sys.modules if name.split(".")[0] in TOPS)


@pytest.fixture(autouse=True)
def without_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests have the names of the packages."""
    here = str(Path(__file__).parent)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != here])
    for name in foreign():
        monkeypatch.delitem(sys.modules, name)


def test_names_are_served_inside_and_gone_behind() -> None:
    with compat():
        channel = importlib.import_module("mscclpp.language.channel")
        language = importlib.import_module("mscclpp.language")
        assert language.MemoryChannel is channel.MemoryChannel is native.MemoryChannel
        assert language.__ahbm__ and sys.modules["mscclpp"].__version__
    assert foreign() == []
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("mscclpp.language")


def test_everything_that_is_said_to_be_served_is() -> None:
    refused = {"mscclpp.language.buffer", "mscclpp.language.types", "msccl.language.mscclpp"}
    with compat():
        for name in served():
            if name not in refused:
                assert importlib.import_module(name).__name__ == name


def test_what_is_not_served_is_named_with_what_is() -> None:
    with compat(), pytest.raises(ModuleNotFoundError, match=r"mscclpp\.nothing.*mscclpp\.language"):
        importlib.import_module("mscclpp.nothing")


def test_blocks_may_be_nested_and_leave_with_the_outermost() -> None:
    with compat():
        with compat():
            importlib.import_module("mscclpp.language")
        assert "mscclpp.language" in foreign()
    assert foreign() == []


def test_the_hook_is_gone_after_an_exception() -> None:
    before = list(sys.meta_path)
    with pytest.raises(ZeroDivisionError), compat():
        importlib.import_module("mscclpp.language")
        raise ZeroDivisionError
    assert (foreign(), sys.meta_path) == ([], before)


def test_a_folder_of_the_name_is_put_back() -> None:
    folder = ModuleType("mscclpp")
    with mock.patch.dict(sys.modules, {"mscclpp": folder}):
        with compat():
            assert importlib.import_module("mscclpp.language").Rank is native.Rank
        assert sys.modules["mscclpp"] is folder


def test_a_package_that_is_imported_already_is_an_error() -> None:
    installed = ModuleType("msccl")
    installed.__file__ = "somewhere/msccl/__init__.py"
    with mock.patch.dict(sys.modules, {"msccl": installed}):
        with pytest.raises(ConfigError, match="AHBM-C175"), compat():
            pass
        assert "msccl" in sys.modules


def test_an_installed_package_is_shadowed_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mscclpp").mkdir()
    (tmp_path / "mscclpp/__init__.py").write_text("raise ImportError('the installed one')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with compat():
        importlib.import_module("mscclpp.language")
    assert capsys.readouterr().err.count(str(tmp_path)) == 1
    with pytest.raises(ImportError, match="the installed one"):
        importlib.import_module("mscclpp")


def test_algorithms_of_a_checkout_are_served_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "python/mscclpp/default_algos"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from mscclpp.default_algos.ring import NAME", encoding="utf-8")
    (folder / "ring.py").write_text("from mscclpp.language.rank import Rank\nNAME = Rank.__name__", encoding="utf-8")
    with compat(), pytest.raises(ModuleNotFoundError, match="MSCCLPP_HOME"):
        importlib.import_module("mscclpp.default_algos")
    monkeypatch.setenv("MSCCLPP_HOME", str(tmp_path))
    with compat():
        assert importlib.import_module("mscclpp.default_algos").NAME == "Rank"
    assert foreign() == []


def test_threads_see_one_set_of_modules() -> None:
    found: list[object] = []

    def look() -> None:
        found.append(importlib.import_module("mscclpp.language").Rank)

    with compat():
        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [native.Rank] * 4
