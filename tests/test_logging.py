"""What the core does shows up under `logging.getLogger("ahbm")`, for those who ask."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import ahbm
from ahbm.cli import hoisted
from support.commands import apart


def _records(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == name]


def test_a_run_tells_what_it_does_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="ahbm"):
        ahbm.run("all_reduce", "lrab_hierarchical_allreduce", "npu_ring_8", bytes_per_rank=1024)
    (simulated,) = _records(caplog, "ahbm.engine")
    assert "8 agents" in simulated
    assert "simulated in" in simulated
    paths, calls = _records(caplog, "ahbm.capture")
    assert "8 places take 1 paths" in paths and "tl calls" in calls
    assert "replayed in" in _records(caplog, "ahbm.data")[0]


def test_levels_are_followed_when_they_change(caplog: pytest.LogCaptureFixture) -> None:
    for level, count in [(logging.WARNING, 0), (logging.DEBUG, 1), (logging.WARNING, 0), (logging.INFO, 0)]:
        with caplog.at_level(level, logger="ahbm"):
            caplog.clear()
            ahbm.run("all_reduce", "lrab_hierarchical_allreduce", "npu_ring_8", bytes_per_rank=1024)
        assert len(_records(caplog, "ahbm.engine")) == count


def test_the_choice_of_a_schedule_is_information(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ahbm.synthesis"):
        ahbm.synthesize("all_gather", topology="npu_ring_8", size=8192)
    (chosen,) = caplog.records
    assert (chosen.name, chosen.levelno) == ("ahbm.synthesis", logging.INFO)
    assert "all_gather on 8 NPUs" in chosen.getMessage()


def test_logging_is_not_imported_for_those_who_do_not_ask() -> None:
    code = (
        "import sys, ahbm; asked = 'logging' in sys.modules; "
        "ahbm.run('all_reduce', topology='npu_ring_8', bytes_per_rank=1024); "
        "assert ('logging' in sys.modules) == asked"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_the_command_line_tells_choices_and_then_what_the_core_does(tmp_path: Path) -> None:
    def told(*more: str) -> str:
        done = apart(["-m", "ahbm", "run", "all_reduce", "-t", "npu_switch_8", "--size", "1K", *more], tmp_path)
        assert done.returncode == 0
        return done.stderr

    assert told() == ""
    once, twice = told("-v"), told("-vv")
    assert "all_reduce of 1024 B is compiled by ring_allreduce" in once and "ahbm.engine" not in once
    assert "ring_allreduce takes" in once and "runs: the quickest of 5" in once
    assert "ahbm.engine" in twice and "simulated in" in twice


def test_verbosity_behind_a_script_is_the_scripts() -> None:
    assert hoisted(["run", "all_reduce", "-v", "--json"]) == ["-v", "run", "all_reduce", "--json"]
    assert hoisted(["run", "-vv", "job.py", "-v"]) == ["-vv", "run", "job.py", "-v"]


def test_a_program_that_is_known_is_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    emulator = ahbm.Emulator.load("npu_ring_8", overrides={"algorithm": "lrab_hierarchical_allreduce"})
    with caplog.at_level(logging.DEBUG, logger="ahbm.emulator"):
        ahbm.run(bytes_per_rank=1024, emulator=emulator)
        emulator._known.clear()
        ahbm.run(bytes_per_rank=1024, emulator=emulator)
    assert [message.split()[-1] for message in _records(caplog, "ahbm.emulator")] == [
        "lrab_hierarchical_allreduce",
        "already",
    ]


def test_a_script_that_logs_does_not_get_what_the_core_does_unless_it_asks() -> None:
    code = (
        "import logging, ahbm; from ahbm.base.logs import quiet; logging.basicConfig(level=logging.INFO); quiet(); "
        "logging.info('mine'); ahbm.synthesize('all_gather', topology='npu_ring_8', size=8192); "
        "logging.getLogger('ahbm').setLevel(logging.INFO); quiet(); "
        "ahbm.synthesize('all_gather', topology='npu_ring_8', size=4096)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("INFO:root:mine") and "8192" not in done.stderr
    assert "INFO:ahbm.synthesis" in done.stderr
