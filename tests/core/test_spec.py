"""What was run, as a value: picklable, with a stable digest, and good to be opened again."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.errors import ConfigError

MODULE = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):
    return (n_elem, world_size)


def kernel(t_ptr, n_elem, n, rank, kind, w, h, *, tl):
    acc = current = tl.load(t_ptr, shape=(n_elem,), dtype="f16")
    for _ in range(n - 1):
        tl.send(dir="global_E", src=current)
        current = tl.recv(dir="global_W", shape=(n_elem,), dtype="f16")
        acc = acc + current
    tl.store(t_ptr, acc)
"""
PRINT = "import ahbm; print(ahbm.run(algorithm='ring_allreduce', bytes_per_rank=4096, seed=3).spec.digest)"


def test_digests_are_the_same_in_every_process(tmp_path: Path) -> None:
    told = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", PRINT], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        told.add(done.stdout.strip())
    spec = ahbm.run(algorithm="ring_allreduce", bytes_per_rank=4096, seed=3).spec
    assert spec is not None and told == {spec.digest}


def test_digests_differ_where_runs_do() -> None:
    def digest(**how: object) -> str:
        given: dict[str, Any] = {"algorithm": "ring_allreduce", "bytes_per_rank": 4096, **how}
        spec = ahbm.run(**given).spec
        assert spec is not None
        return spec.digest

    plain = digest()
    assert plain == digest()
    changed: list[dict[str, object]] = [
        {"bytes_per_rank": 8192},
        {"seed": 1},
        {"data": False},
        {"check": "race"},
        {"op": "max"},
        {"algorithm": "tree_allreduce"},
        {"overrides": {"system.sips.count": 4}},
        {"overrides": {"n_slots": 2}},
        {"mode": "random"},
    ]
    assert len({plain, *(digest(**how) for how in changed)}) == 1 + len(changed)


def test_reports_are_values() -> None:
    report = ahbm.run(topology="npu_ring_8", bytes_per_rank=4096, overrides={"system.sips.count": 4})
    assert report.machine == "npu_ring_8, system.sips.count=4"
    again = pickle.loads(pickle.dumps(report))
    assert again == report == copy.deepcopy(report)
    assert dataclasses.asdict(report)["latency_ns"] == report.latency_ns
    assert str(again.explain()) == str(report.explain()) == str(ahbm.open(again).explain())
    assert ahbm.open(again).run() == report
    assert ahbm.run(bytes_per_rank=64).machine == "default"


def test_a_report_is_opened_in_another_process(here: Path) -> None:
    report = ahbm.run(algorithm="ring_allreduce", bytes_per_rank=4096)
    (here / "report.pickle").write_bytes(pickle.dumps(report))
    code = (
        "import ahbm, pickle; r = pickle.load(open('report.pickle', 'rb')); "
        "assert ahbm.open(r).run() == r; print(ahbm.open(r).explain().latency_ps / 1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True)
    assert float(done.stdout) == report.latency_ns


def test_an_algorithm_that_changed_is_told(here: Path) -> None:
    (here / "mine.py").write_text(MODULE)
    report = ahbm.run(algorithm="mine.py", bytes_per_rank=4096)
    kept = pickle.loads(pickle.dumps(report))
    (here / "mine.py").write_text(MODULE + "\n# another\n")
    ahbm.run(bytes_per_rank=64, topology="npu_ring_8")  # Lets go of the emulator that has the old one.
    with pytest.raises(ConfigError, match="AHBM-C163"):
        ahbm.open(kept).run()
