"""Every test starts in an empty folder, with nothing of AHBM in the environment."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

KEPT = ("AHBM_CORPUS", "AHBM_UPDATE_GOLDEN")
"""Variables that are meant for the tests."""


@pytest.fixture(scope="session", autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The clone may be somebody's working folder: its ccl.yaml, topology.yaml and algorithms/ are not the tests'."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AHBM_") and name not in KEPT]:
            patch.delenv(name)
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        if threading.current_thread() is threading.main_thread():
            # A shell ignores SIGINT for what it starts in the background, and the tests of Ctrl-C would wait for ever.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


def _sendable(text: str) -> str:
    """Text that crosses to the process that collects the results: UTF-8 has no lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message: warnings.WarningMessage) -> None:
    """A warning about a hostile text is shown, instead of ending the run."""
    text = str(warning_message.message)
    if _sendable(text) != text:
        warning_message.message = UserWarning(_sendable(text))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure with a hostile text is shown, instead of ending the run."""
    report.sections = [(name, _sendable(text)) for name, text in report.sections]
    if report.failed and _sendable(report.longreprtext) != report.longreprtext:
        report.longrepr = _sendable(report.longreprtext)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: an empty one of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
