"""Selectors behind torch: between processes, whose choices are compared in rank 0's, and of ccl.yaml among threads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import torchrun

import ahbm.torch

HERE = Path(__file__).parent
SMALL = {"system.sips.count": 2, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}


def told(how: str, *args: str) -> str:
    done = torchrun(HERE / "chooses.py", 2, how, *args)
    return done.stdout + done.stderr


def test_a_knob_that_differs_between_processes() -> None:
    found = told("knob")
    assert "AHBM-X111" in found and "table is " in found
    assert "(rank 0: ring_allreduce, channels 2; rank 1: ring_allreduce, channels 3)" in found


def test_files_that_differ_between_processes(tmp_path: Path) -> None:
    paths = [tmp_path / f"{rank}.json" for rank in range(2)]
    for path, algorithm in zip(paths, ("ring_allreduce", "tree_allreduce"), strict=True):
        path.write_text(json.dumps({"kind": "static", "algorithms": {"all_reduce": algorithm}}), encoding="utf-8")
    found = told("file", *map(str, paths))
    assert "AHBM-X111" in found and "table is " in found and "on rank 1" in found


def test_a_selector_that_fails_in_one_process_gives_the_default_in_all() -> None:
    found = told("raise")
    assert "rank 0 ended" in found and "rank 1 ended" in found
    assert "AHBM-X112" in found and "on rank 1 the selector selector raised ZeroDivisionError" in found


def test_the_selector_of_the_configuration_chooses_for_torch(tmp_path: Path) -> None:
    path = tmp_path / "ccl.yaml"
    path.write_text("collectives: {all_reduce: {selector: {kind: shortlist, k: 99}}}\n", encoding="utf-8")

    def worker(rank: int) -> float:
        dist.init_process_group("ahbm")
        x = torch.ones(4096)
        dist.all_reduce(x)
        return float(x.sum())

    assert ahbm.torch.spawn(worker, world_size=2, overrides=SMALL, ccl=path) == [8192.0, 8192.0]
