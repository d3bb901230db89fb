"""Checks of kernels: what each of them finds, and what is said when one cannot decide."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Unpack

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm import DPPolicy
from ahbm.check.case import Case
from ahbm.check.checks import CHECKS, examine, parse
from ahbm.cli import app
from ahbm.core.compiled import Compiled
from ahbm.errors import ConfigError, DataError
from ahbm.runs import plans
from ahbm.runs.measure import Arguments, prepare
from ahbm.runs.report import Report
from ahbm.runs.verdict import CheckOptions, check_file
from support.growth import exponent

MACHINE = {"system.sips.count": 3, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}

MODULE = """
COLLECTIVE = "{collective}"

def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):
    return (n_elem, world_size, cube_w * cube_h)

def kernel(t_ptr, n, world, cubes, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    cube = tl.program_id(axis=1)
    mine = t_ptr + cube * n * 2
    acc = current = tl.load(mine, shape=(n,), dtype="f16")
{body}
    tl.store(mine, acc)
"""

ROTATE = """
    for _ in range(world - 1):
        tl.send(dir="global_E", src=current)
        current = tl.recv(dir="global_W", shape=(n,), dtype="f16")
        acc = acc + current
"""

INSIDE = {
    # Every cube adds the other cube's tile; with a token, only after the other has done its own loads.
    "race": """
    acc = acc + tl.load(t_ptr + (1 - cube) * n * 2, shape=(n,), dtype="f16")
""",
    "token": """
    acc = acc + tl.load(t_ptr + (1 - cube) * n * 2, shape=(n,), dtype="f16")
    other = "W" if cube else "E"
    tl.send(dir=other, src=acc)
    tl.recv(dir=other, shape=(n,), dtype="f16")
""",
}


def module(folder: Path, body: str, collective: str = "all_reduce") -> str:
    path = folder / "mine.py"
    path.write_text(MODULE.format(body=body, collective=collective), encoding="utf-8")
    return str(path)


def checked(algorithm: str, check: str = "all", **more: Unpack[Arguments]) -> Report:
    more.setdefault("bytes_per_pe", 64)
    return ahbm.run(algorithm=algorithm, overrides=MACHINE, check=check, **more)


def test_a_run_says_what_it_was_checked_for() -> None:
    report = checked("ring_allreduce")
    assert report.checks == tuple(sorted(CHECKS)) and report.findings == () and report.wrong == 0
    assert "checked for deadlock, divergence, leftover, race, result, uninit" in str(report)
    assert Report.from_json(json.dumps(report.to_json())) == report
    assert checked("ring_allreduce", "race").checks == ("race",)


def test_unknown_checks_are_refused() -> None:
    assert parse("race, uninit") == {"race", "uninit"} and parse(["all"]) == set(CHECKS)
    with pytest.raises(ConfigError, match="AHBM-C170 there is no check 'racy'"):
        parse("racy")


def test_ranks_that_reduce_in_different_orders_diverge(tmp_path: Path) -> None:
    algorithm = module(tmp_path, ROTATE)
    report = checked(algorithm, bytes_per_pe=512)
    assert report.wrong == 0 and [finding.code for finding in report.findings] == ["AHBM-V412"]
    with pytest.raises(DataError, match=r"AHBM-V412 ranks end with different bits .*: 2 of 3 differ from rank 0"):
        checked(algorithm, "all,divergence", bytes_per_pe=512)
    assert checked(algorithm, "race,uninit,leftover,deadlock,result", bytes_per_pe=512).wrong == 0
    assert checked("ring_allreduce", "divergence", bytes_per_pe=512).checks == ("divergence", "identical")


def test_cubes_that_read_each_others_tiles_race(tmp_path: Path) -> None:
    tiles = {"placement": DPPolicy(cube="row_wise"), "data": False}
    with pytest.raises(DataError) as raced:
        checked(module(tmp_path, INSIDE["race"]), "race", **tiles)
    first = next(finding for finding in raced.value.findings if finding.code == "AHBM-V403")
    assert "elements [0, 32) of rank 0 cube" in first.message
    lines = {int(site.origin.rsplit(":", 1)[1]) for site in first.sites}
    text = (tmp_path / "mine.py").read_text(encoding="utf-8").splitlines()
    assert sorted(text[line - 1].strip()[:8] for line in lines) == ["acc = ac", "tl.store"]
    assert checked(module(tmp_path, INSIDE["token"]), "race", **tiles).findings == ()


def test_memory_nobody_wrote_is_noticed_for_any_dtype(tmp_path: Path) -> None:
    body = """
    acc = tl.load(t_ptr, shape=(n * world,), dtype="f16")
    mine = t_ptr
"""
    with pytest.raises(DataError, match="AHBM-V402 5 operations read memory that nothing was written to"):
        ahbm.run(
            "all_gather",
            module(tmp_path, body, "all_gather"),
            overrides=MACHINE,
            bytes_per_rank=6,
            check="uninit",
            data=False,
        )


def test_what_cannot_be_followed_is_said(tmp_path: Path) -> None:
    body = ROTATE + "    acc = tl.maximum(acc, acc - 1.0)\n"
    report = checked(module(tmp_path, body), "result", bytes_per_pe=64)
    assert [finding.code for finding in report.findings] == ["AHBM-U290"]
    assert report.wrong == 0 and "contributions cannot follow `sub f16[" in report.findings[0].message
    assert report.findings[0].sites[0].origin.endswith("mine.py:16")
    assert "AHBM-U290" in str(report)
    done = CliRunner().invoke(
        app, ["check", "-a", str(tmp_path / "mine.py"), "--set", "system.sips.count=3", "--check", "result"]
    )
    assert done.exit_code == 10 and ": undecided (kernel, all_reduce, 3 ranks, " in done.stdout


def test_a_doubled_contribution_is_found_without_numbers(tmp_path: Path) -> None:
    algorithm = module(tmp_path, ROTATE + "    acc = acc + current\n")
    with pytest.raises(
        DataError, match=r"AHBM-V401 rank 0, elements \[0, 32\) of part 0 of rank 0's array: rank 1 twice"
    ):
        checked(algorithm, "result", data=False)


def test_maxima_do_not_mind_repetition() -> None:
    for op in ("max", "min", "avg", "prod"):
        assert checked("recursive_doubling_allreduce", "result", op=op).findings == ()


def test_ahbm_check_takes_kernels() -> None:
    small = ["--set", "system.sips.count=3", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1"]
    done = CliRunner().invoke(app, ["check", "-a", "ring_allreduce", "-a", "ring_all_gather", "--json", *small])
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0 and [a["verdict"] for a in answers] == ["correct", "correct"]
    assert [a["collective"] for a in answers] == ["all_reduce", "all_gather"] and answers[0]["format"] == "kernel"
    done = CliRunner().invoke(app, ["check", "-a", "lrab_hierarchical_allreduce", *small])
    assert done.exit_code == 0 and ": correct (" in done.stdout and "AHBM-V412" in done.stdout
    done = CliRunner().invoke(app, ["check", "-a", "lrab_hierarchical_allreduce", "--identical", *small])
    assert done.exit_code == 8 and ": wrong (" in done.stdout and "AHBM-V412" in done.stdout


def packets(double: bool, started: bool = False) -> str:
    """Two ranks put packets into each other's scratch and take them out; the next launch does so again."""
    gpus = []
    for rank in range(2):
        put = {"name": "ppkt", "channel_type": "memory", "src_buff": [{"type": "o", "index": rank, "size": 1}]}
        put["dst_buff"] = [{"buffer_id": 0, "index": 0, "size": 1}]
        take = {"name": "upkt", "src_buff": [{"type": "s", "index": 0, "size": 1}]}
        take["dst_buff"] = [{"type": "o", "index": 1 - rank, "size": 1}]
        guard = [{"name": "sem_acquire", "semaphore_ids": [0]}] if started else []
        again = [{"name": "sem_release", "semaphore_ids": [0]}] if started else []
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]
        gpus.append(
            {
                "id": rank,
                **{"input_chunks": 1, "output_chunks": 2, "scratch_chunks": 1},
                "threadblocks": [
                    {"id": 0, "ops": [*guard, put, take, *again], "channels": [], "remote_buffer_refs": refs}
                ],
                "remote_buffers": [{"rank": 1 - rank, "type": "s", "access_channel_types": ["memory"]}],
                "channels": [],
                "semaphores": [{"init_value": 1}] if started else [],
            }
        )
    head = {"name": "t", "collective": "allgather", "protocol": "LL", "inplace": True}
    return json.dumps({**head, "use_double_scratch_buffer": double, "gpus": gpus})


@pytest.mark.parametrize("started", [False, True])
def test_launches_that_alternate_between_halves_are_checked_in_a_row(tmp_path: Path, started: bool) -> None:
    machine = {"system.sips.count": 2}
    for double in (True, False):
        path = tmp_path / f"double_{double}.json"
        path.write_text(packets(double, started))
        assert check_file(path, CheckOptions(calls=1)).verdict == "correct"
        for calls in (2, 3):
            assert (check_file(path, CheckOptions(calls=calls)).verdict == "correct") == double
        if double:
            assert plans.run(path, "npu_ring_8", bytes_per_rank=4096, overrides=machine, check="all").wrong == 0
        else:
            with pytest.raises(DataError, match=r"AHBM-V4(03|11)") as raced:
                plans.run(path, "npu_ring_8", bytes_per_rank=4096, overrides=machine, check="all")
            assert any("sip 1 cube 0 pe 0" in site.label and "in call 1" in site.label for site in raced.value.sites)


GATHER_FIRST = """
    token = tl.zeros((1,), dtype="f16")
    if sip_rank:
        tl.send(dir="sip0", src=token)
        tl.recv(dir="sip0", shape=(1,), dtype="f16")
        return
    for others in ORDER:
        for rank in range(1, world):
            peer = f"sip{rank}"
            if others == "collect":
                tl.recv(dir=peer, shape=(1,), dtype="f16")
            else:
                tl.send(dir=peer, src=token)
"""


@pytest.mark.parametrize(
    ("body", "held"),
    [
        (GATHER_FIRST.replace("ORDER", '("collect", "release")'), True),
        (GATHER_FIRST.replace("ORDER", '("release", "collect")'), False),
        ("    return", False),
    ],
    ids=["collects", "releases first", "empty"],
)
def test_a_barrier_holds_every_rank(tmp_path: Path, body: str, held: bool) -> None:
    algorithm = module(tmp_path, body, "barrier")
    machine = {**MACHINE, "sip.cube_mesh.w": 1}

    def run() -> Report:
        return ahbm.run("barrier", algorithm, overrides=machine, check="result")

    if held:
        assert run().findings == ()
    else:
        with pytest.raises(DataError, match=r"AHBM-V415 rank \d leaves the barrier though rank \d"):
            run()


HALF = """
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (world_size, n_elem, dtype)


def kernel(t_ptr, world, n, dtype, sip_rank, *rest, tl):
    own = tl.load(t_ptr, shape=(n,), dtype=dtype)
    tl.send(dir=f"sip{(sip_rank + 1) % world}", src=own)
    tl.store(t_ptr, own + tl.recv(dir=f"sip{(sip_rank - 1) % world}", shape=(n,), dtype=dtype))
"""


def test_many_wrong_ranks_are_told_of_in_little_time(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(HALF, encoding="utf-8")

    @cache
    def compiled(ranks: int) -> tuple[Case, Compiled]:
        machine = {"system.sips.count": ranks}
        case = prepare("all_reduce", str(tmp_path / "half.py"), "npu_ring_8", bytes_per_rank=64, overrides=machine)
        return case, case.compiled()

    for ranks in (299, 300, 3000):
        compiled(ranks)
    assert exponent(lambda ranks: examine(*compiled(ranks), frozenset({"result"})), 300, 3000) < 1.6
    found = examine(*compiled(3000), frozenset({"result"}))
    assert len(found) == 8 and "only rank 0, rank 1 arrived (96000 of" in found[0].message
