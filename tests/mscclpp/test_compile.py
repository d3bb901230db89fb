"""`mscclpp.compile`: ids, files, and programs that fail."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ahbm import _core, mscclpp
from ahbm.dsl.mscclpp import AllReduce, CollectiveProgram, ReplicationPolicy, SyncType
from ahbm.errors import ProgramError
from ahbm.mscclpp import AlgoSpec
from support.allreduce import allreduce_by_reading, spec

CHANGES: dict[str, Any] = {
    "name": "another",
    "collective": AllReduce(2, 2, True),
    "nranks_per_node": 1,
    "in_place": False,
    "instances": 2,
    "protocol": "LL",
    "instr_fusion": False,
    "auto_sync": False,
    "reuse_resources": True,
    "num_threads_per_block": 512,
    "use_double_scratch_buffer": True,
    "buffer_alignment": 32,
    "min_message_size": 2048,
    "max_message_size": 4096,
    "tags": {"writes": 1},
}
"""A value that is not `spec`'s, by field."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("MSCCLPP_EXECUTION_PLAN_DIR", raising=False)
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    yield tmp_path


@pytest.mark.filterwarnings("ignore::ahbm.errors.ProgramWarning")
def test_every_field_and_argument_is_in_the_id() -> None:
    left = {field.name for field in fields(AlgoSpec)} - CHANGES.keys()
    assert left == {"world_size", "replication_policy"} and len(ReplicationPolicy) > 0
    ids = [mscclpp.compile(allreduce_by_reading, spec(), 0).id]
    ids += [mscclpp.compile(allreduce_by_reading, spec(**{name: value}), 0).id for name, value in CHANGES.items()]
    ids += [mscclpp.compile(allreduce_by_reading, spec(world_size=3), 0).id]
    ids += [mscclpp.compile(allreduce_by_reading, spec(), 0, between=SyncType.both).id]
    ids += [mscclpp.compile(lambda given: allreduce_by_reading(given), spec(), 0).id]
    assert len(set(ids)) == len(CHANGES) + 4


def test_an_algorithm_says_what_it_is_for(cache: Path) -> None:
    made = mscclpp.compile(algo=allreduce_by_reading, algo_spec=spec(), rank=1)
    assert (made.name, made.collective, made.message_size_range) == ("by_reading", "allreduce", (1 << 10, 1 << 20))
    assert made.tags == {"reads": 1} and "reads" in made.tags and made.is_dsl_algorithm()
    assert made.buffer_mode is mscclpp.CollectiveBufferMode.InPlace
    assert made.constraints == mscclpp.ExecutionPlanConstraint(2, 2)
    file = cache / f"{made.id}.json"
    assert [file] == list(cache.iterdir())
    assert made.plan is not None and (made.plan.min_message_size, made.plan.rank) == (1 << 10, 1)
    read = mscclpp.ExecutionPlan(file, 0)
    assert (read.name, read.collective, read.max_message_size) == ("by_reading", "allreduce", 1 << 20)
    assert read.algorithm == made.plan.algorithm
    assert read.algorithm.digest == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_program_is_lowered_once(cache: Path) -> None:
    """Instances are as many as the specification says: lowered twice, they would be squared."""
    for instances in (1, 3):
        given = spec(instances=instances)
        file = cache / f"{mscclpp.compile(allreduce_by_reading, given, 0).id}.json"
        assert file.read_text(encoding="utf-8") == allreduce_by_reading(given).to_json()
        assert _core.read_plan(file).check()[0] == "correct"


def test_what_is_known_is_the_same_object_and_its_file_comes_back(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = mscclpp.compile(allreduce_by_reading, spec(), 0)
    (cache / f"{made.id}.json").unlink()
    assert mscclpp.compile(allreduce_by_reading, spec(), 0) is made
    assert (cache / f"{made.id}.json").is_file()
    monkeypatch.setenv("MSCCLPP_EXECUTION_PLAN_DIR", str(tmp_path / "plans" / "mine"))
    again = mscclpp.compile(allreduce_by_reading, spec(), 0)
    assert again.id == made.id and (tmp_path / "plans" / "mine" / f"{made.id}.json").is_file()
    assert mscclpp.env().cache_dir == str(tmp_path / "plans" / "mine")


def test_what_fails_in_a_program_is_its_authors_error() -> None:
    def broken(given: AlgoSpec) -> CollectiveProgram:
        with CollectiveProgram.from_spec(given):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        mscclpp.compile(broken, spec(), 0)
    for algo in (7, lambda given: None):
        with pytest.raises(ValueError) as caught:
            mscclpp.compile(algo, spec(), 0)  # type: ignore[arg-type]
        assert isinstance(caught.value, ProgramError) and caught.value.code == "AHBM-A103"
    assert mscclpp.compile(allreduce_by_reading, spec(), 0).name == "by_reading"
