"""A program that is lowered is checked at once, and its author told at the lines of the program."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from ahbm.dsl import judgement
from ahbm.dsl.msccl import Buffer, MSCCLProgram, chunk
from ahbm.dsl.msccl import collectives as msccl
from ahbm.dsl.msccl.topologies import fully_connected
from ahbm.dsl.mscclpp import AllReduce, CollectiveProgram, MemoryChannel, Rank, SyncType, TestCollective
from ahbm.dsl.written import collected
from ahbm.errors import ProgramWarning
from support.commands import apart
from support.scripts import EXCHANGE, exchange, script

NATIVE = EXCHANGE.replace("mscclpp.language", "ahbm.dsl.mscclpp")


def half(name: str = "half") -> str:
    """An all-reduce of which rank 1 gets nothing, as MSCCLang."""
    with MSCCLProgram(name, fully_connected(2), msccl.AllReduce(2, 1, True), 1) as program:
        chunk(0, Buffer.input, 0).reduce(chunk(1, Buffer.input, 0))
    return program.generate_xml()


def stuck() -> str:
    """Two ranks, each of which waits before it signals."""
    with CollectiveProgram("stuck", TestCollective(2, 1, 1), 2) as program:
        for rank in (0, 1):
            channel = MemoryChannel(1 - rank, rank)
            channel.wait(tb=0)
            channel.signal(tb=0)
    return program.to_json()


def racing() -> str:
    """Rank 0 writes where rank 1 copies, and nothing orders them; what the two compute is their own affair."""
    with CollectiveProgram("racing", TestCollective(2, 1, 1), 2) as program:
        data, other = Rank(0).get_input_buffer(), Rank(1).get_input_buffer()
        channel = MemoryChannel(1, 0)
        channel.put(other[0:1], data[0:1], tb=0)
        Rank(1).copy(Rank(1).get_output_buffer()[0:1], other[0:1], tb=0)
    return program.to_json()


@pytest.mark.parametrize(
    ("write", "verdict", "code"),
    [(half, "wrong", "AHBM-V401"), (stuck, "deadlock", "AHBM-D201"), (racing, "no expectation", "AHBM-V404")],
)
def test_a_wrong_program_is_warned_of_at_its_line(write, verdict: str, code: str) -> None:  # type: ignore[no-untyped-def]
    with collected() as found:
        text = write()
    first = write.__code__.co_firstlineno
    lines = {f"{Path(__file__).name}:{first + i}" for i in range(10)}
    for _ in range(2):  # it is told every time
        with pytest.warns(ProgramWarning) as caught:
            assert write() == text, "the plan does not change"
        (warning,) = caught
        assert isinstance(warning.message, ProgramWarning)
        assert str(warning.message).startswith(f"{found[0].name}: {verdict}\n  {code} ")
        assert code in {finding.code for finding in warning.message.findings}
        sites = (site for finding in warning.message.findings for site in finding.sites)
        origins = {site.origin.partition(" (")[0] for site in sites}
        assert origins and origins <= lines
        assert warning.filename == __file__ and f"{Path(__file__).name}:{warning.lineno}" in lines
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ProgramWarning, match=code):
            write()


def test_a_missing_chunk_is_told_at_the_program() -> None:
    with collected() as found:
        half()
    _, _, findings, _ = found[0].plan.check()
    line = half.__code__.co_firstlineno + 2
    assert [site["origin"] for site in findings[0]["sites"]][-1] == f"{Path(__file__).name}:{line}"


def test_nothing_is_checked_where_programs_are_collected_or_the_user_wants_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(judgement, "judge", lambda name, plan: pytest.fail("a second check"))
        with collected():
            half()
        monkeypatch.setenv("AHBM_CHECK", "none")
        half()
        stuck()


def test_a_right_program_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def exchange() -> None:
        with MSCCLProgram("once", fully_connected(2), msccl.AllReduce(2, 1, True), 1) as program:
            chunk(0, Buffer.input, 0).reduce(chunk(1, Buffer.input, 0)).copy(1, Buffer.input, 0)
        program.generate_xml()

    asked = []
    whole = judgement.judge
    monkeypatch.setattr(judgement, "judge", lambda name, plan: asked.append(name) or whole(name, plan))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exchange()
        exchange()
    assert asked == ["once"]


def test_a_large_program_is_told_not_to_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "MOST_OPS", 1)
    with pytest.warns(ProgramWarning, match="(?s)^large: not checked.*AHBM-B210.*ahbm check"):
        half("large")


def test_a_plan_that_cannot_be_followed_is_warned_of() -> None:
    def outside() -> str:
        with CollectiveProgram("outside", AllReduce(2, 1, True), 2, instances=1) as program:
            data, other = Rank(0).get_input_buffer(), Rank(1).get_input_buffer()
            channel = MemoryChannel(1, 0)
            channel.put(other[0:1], data[0:1], tb=70)
            channel.signal(tb=70, data_sync=SyncType.before)
            MemoryChannel(0, 1).wait(tb=70)
        return program.to_json()

    with pytest.warns(ProgramWarning, match="^outside: "):
        assert outside().startswith("{")


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return apart([*args], folder)


def test_scripts_print_their_plans_whatever_the_check_says(tmp_path: Path) -> None:
    exchange(tmp_path)
    script(tmp_path, NATIVE, "native.py")
    right = run(tmp_path, "native.py")
    assert (right.returncode, right.stderr) == (0, "")
    wrong = run(tmp_path, "native.py", "--forget")
    assert wrong.returncode == 0 and wrong.stdout.startswith("{")
    assert "native.py:26: ProgramWarning: exchange: wrong" in wrong.stderr
    assert "AHBM-V401" in wrong.stderr and "[native.py:11]" in wrong.stderr
    assert run(tmp_path, "-W", "error", "native.py", "--forget").returncode == 1
    module = run(tmp_path, "-m", "ahbm.dsl", "exchange.py", "--forget")
    assert (module.returncode, module.stdout) == (8, wrong.stdout)
    assert module.stderr.startswith("exchange: wrong\n  AHBM-V401 ") and "[exchange.py:11]" in module.stderr
    as_is = run(tmp_path, "-m", "ahbm.dsl", "--quirks", "exchange.py", "--forget")
    assert (as_is.returncode, as_is.stderr) == (0, "")


def test_a_reader_that_has_enough_is_no_error_of_the_program(tmp_path: Path) -> None:
    exchange(tmp_path)
    script(tmp_path, "import mscclpp.language\nwhile True:\n    print('x' * 999)\n", "endless.py")
    for name in ("exchange.py", "endless.py"):
        command = f"'{sys.executable}' -m ahbm.dsl {name} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert (done.stdout, done.stderr) == ("1\n", "")
