"""The algorithm that is asked for of a job (`-a`): it performs calls, or is refused, and what it leaves is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.config.ccl import CclConfig
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, ConfigError, UnsupportedError
from ahbm.job.replay import JobReport
from support.commands import run
from support.plans import all_gather, ring
from support.traces import attribute, write

RANKS = 4
TYPES = {"all_reduce": 0, "all_gather": 2}


def job(folder: Path, *collectives: str) -> str:
    """A job whose ranks call these collectives, one after the other."""
    for rank in range(RANKS):
        nodes = [
            {
                "id": at,
                "name": f"call {at}",
                "type": "COMM_COLL_NODE",
                "ctrlDeps": [at - 1] if at else [],
                "attr": [attribute("comm_type", TYPES[name]), attribute("comm_size", 1 << 16)],
            }
            for at, name in enumerate(collectives)
        ]
        write(folder / "step", rank, nodes)
    return str(folder / "step")


def sizes_only(folder: Path) -> str:
    """A graph that says how much is sent, not what."""
    for rank in range(RANKS):
        send = [attribute("comm_dst", (rank + 1) % RANKS), attribute("comm_size", 1 << 16)]
        recv = [attribute("comm_src", (rank - 1) % RANKS), attribute("comm_size", 1 << 16)]
        nodes = [{"id": 0, "type": "COMM_SEND_NODE", "attr": send}, {"id": 1, "type": "COMM_RECV_NODE", "attr": recv}]
        write(folder / "graph", rank, nodes)
    return f"{folder}/graph.0.json"


def plan(folder: Path, text: str) -> str:
    (folder / "plan.xml").write_text(text)
    return str(folder / "plan.xml")


STRANGERS = ["graph", "kernel", "xml", "ranks"]
"""What performs no all_reduce of four ranks."""


def stranger(kind: str, folder: Path) -> tuple[str, str]:
    """Its name or file, and the code that refuses it."""
    if kind == "graph":
        return sizes_only(folder), "AHBM-U113"
    if kind == "kernel":
        return "ring_all_gather", "AHBM-C115"
    if kind == "xml":
        return plan(folder, all_gather(RANKS, inplace=1)), "AHBM-C115"
    return plan(folder, ring(8)), "AHBM-C117"


MACHINE = {"topology": "npu_ring_8", "overrides": {"system.sips.count": RANKS}}


@pytest.mark.parametrize("kind", STRANGERS)
def test_what_performs_no_call_of_a_job_is_refused_with_the_file_and_the_jobs_collectives(
    kind: str, tmp_path: Path
) -> None:
    target, (name, code) = job(tmp_path, "all_reduce", "all_reduce"), stranger(kind, tmp_path)
    with pytest.raises((ConfigError, UnsupportedError)) as caught:
        ahbm.open(target, algorithm=name, **MACHINE).run()
    assert caught.value.code == code
    told = str(caught.value)
    assert Path(name).name in told and (kind == "ranks" or "the job calls all_reduce (2)" in told)
    opened = ahbm.open(target, **MACHINE)
    base, changed = opened.what_if({"algorithm": name}).points
    assert base.report is not None and changed.error is not None and changed.error.code == code
    for question in (lambda given: given.explain(), lambda given: given.best()):
        with pytest.raises(AhbmError, match=code):
            question(ahbm.open(target, algorithm=name, **MACHINE))


@pytest.mark.parametrize("command", ["run", "explain", "report", "run --best"])
@pytest.mark.parametrize("kind", STRANGERS)
def test_every_command_refuses_it(command: str, kind: str, tmp_path: Path) -> None:
    target, (name, asked) = job(tmp_path, "all_reduce"), stranger(kind, tmp_path)
    name_, *more = command.split()
    arguments = [name_, target, *more, "-t", "npu_ring_8", "--ranks", str(RANKS), "-a", name]
    code, _, err = run("ahbm", arguments, tmp_path)
    assert code != 0 and asked in err


def test_a_row_of_several_runs_has_the_code_and_no_time(tmp_path: Path) -> None:
    target, name = job(tmp_path, "all_reduce"), sizes_only(tmp_path)
    arguments = ["run", target, "-t", "npu_ring_8", "--ranks", str(RANKS), "-a", name, "-a", "ring_allreduce"]
    code, out, _ = run("ahbm", arguments, tmp_path)
    row = next(line for line in out.splitlines() if line.startswith(f"-a {name}"))
    assert code != 0 and row.split()[2:] == ["AHBM-U113"]


def test_what_performs_some_of_the_calls_says_which(tmp_path: Path) -> None:
    target = job(tmp_path, "all_reduce", "all_gather", "all_reduce")
    report = ahbm.open(target, algorithm="ring_allreduce", **MACHINE).run()
    assert isinstance(report, JobReport)
    assert "ring_allreduce performs 2 of 3 calls: all_reduce (2); others perform all_gather (1)" in report.notes
    assert [call.rule for call in report.calls] == ["argument", "default", "argument"]
    asked = str(ahbm.open(target, **MACHINE).what_if({"algorithm": "ring_allreduce"}))
    assert "note: algorithm=ring_allreduce: ring_allreduce performs 2 of 3 calls" in asked
    whole = ahbm.open(job(tmp_path, "all_reduce"), algorithm="ring_allreduce", **MACHINE).run()
    assert isinstance(whole, JobReport) and not any("performs" in note for note in whole.notes)


@pytest.mark.parametrize("collective", sorted(TYPES))
def test_a_job_runs_by_what_it_is_asked_for_or_refuses_it(collective: str, tmp_path: Path) -> None:
    """Of every packaged algorithm; its time is that of the algorithm in ccl.yaml."""
    target, emulator = job(tmp_path, collective), Emulator.load("npu_ring_8")
    for name in CclConfig.packaged().algorithms:
        performs = collective in emulator.algorithm(name).collectives

        def timed(name: str = name, **terms: Any) -> tuple[str, Any]:
            try:
                report = ahbm.open(target, topology="npu_ring_8", **terms).run()
            except AhbmError as error:
                return error.code, None
            assert isinstance(report, JobReport)
            return ({call.algorithm for call in report.calls} == {name} and "runs") or "another", report.latency_ns

        sips = {"system.sips.count": RANKS}
        asked = timed(algorithm=name, overrides=sips)
        assert asked[0] == "runs" if asked[1] else asked[0].startswith("AHBM-"), name
        assert performs or asked[0] == "AHBM-C115", name
        assert asked == timed(overrides={**sips, f"collectives.{collective}": name}), name


@pytest.mark.slow
def test_a_script_runs_by_what_it_is_asked_for_or_is_told(tmp_path: Path) -> None:
    script = tmp_path / "gather.py"
    script.write_text(
        "import numpy as np, ahbm, ahbm.distributed as dist\n"
        "def worker():\n"
        "    dist.init_process_group('ahbm')\n"
        "    whole = np.zeros(4 * 512, np.float16)\n"
        "    dist.all_gather_into_tensor(whole, np.ones(512, np.float16))\n"
        "    if dist.get_rank() == 0:\n"
        "        print(dist.simulated_time())\n"
        "ahbm.spawn(worker)\n"
    )

    def time(*asked: str) -> tuple[str, str]:
        code, out, err = run("ahbm", ["run", "-t", "npu_ring_8", "--ranks", "4", *asked, script.name], tmp_path)
        assert code == 0, err
        return out, err

    usual, other = time(), time("-a", "pat_all_gather")
    assert usual[0] != other[0] and (usual[1], other[1]) == ("", "")
    assert time("-a", "tree_allreduce") == (usual[0], "note: -a tree_allreduce performed no call of gather.py\n")


def test_the_json_of_a_job_has_the_notes(tmp_path: Path) -> None:
    target = job(tmp_path, "all_reduce", "all_gather")
    arguments = ["run", target, "-t", "npu_ring_8", "--ranks", str(RANKS), "-a", "ring_allreduce", "--json"]
    _, out, _ = run("ahbm", arguments, tmp_path)
    assert any(note.startswith("ring_allreduce performs 1 of 2 calls") for note in json.loads(out)["notes"])
