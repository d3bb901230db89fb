"""`selector:` in ccl.yaml: for all collectives, for one, for a group, by size; and what stands above and below it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.config.ccl import CclConfig
from ahbm.config.rules import Place
from ahbm.errors import ConfigError

RING, TREE, BOTH = "ring_allreduce", "tree_allreduce", "bidirectional_ring_allreduce"
RANKS = {"system.sips.count": 3}


def config(here: Path, text: str) -> CclConfig:
    (here / "ccl.yaml").write_text(text, encoding="utf-8")
    return CclConfig.load(here / "ccl.yaml")


def value(found: CclConfig, collective: str = "all_reduce", nbytes: int = 64, place: Place | None = None) -> Any:
    named = found.selector(collective, nbytes, 3, place)
    return None if named is None else named.value


def test_the_selector_of_a_collective_is_above_that_of_all(here: Path) -> None:
    found = config(here, "defaults: {selector: nccl}\ncollectives: {all_gather: {selector: shortlist}}\n")
    assert value(found) == value(found, "broadcast") == "nccl"
    assert value(found, "all_gather") == "shortlist"
    # What they leave is performed as before.
    assert found.candidates("all_gather", 64, 3) == ("ring_all_gather",)
    assert CclConfig.packaged().candidates("all_reduce", 64, 3) == found.candidates("all_reduce", 64, 3)


def test_an_algorithm_of_ones_own_is_above_the_selector_of_all(here: Path) -> None:
    found = config(here, "defaults: {selector: nccl}\ncollectives: {all_reduce: ring_allreduce}\n")
    assert value(found) is None and value(found, "all_gather") == "nccl"
    rules = "[{max_bytes: 64, selector: nccl}, {max_bytes: 1024, algorithm: ring_allreduce}, {selector: shortlist}]"
    found = config(here, f"collectives: {{all_reduce: {rules}}}\n")
    assert [value(found, nbytes=nbytes) for nbytes in (64, 65, 1025)] == ["nccl", None, "shortlist"]
    assert found.candidates("all_reduce", 65, 3) == (RING,)
    # Where the selector leaves a call, what holds without any ccl.yaml performs it.
    assert found.candidates("all_reduce", 1025, 3) == CclConfig.packaged().defaults
    found = config(here, "collectives: {all_gather: [{ranks: 4, algorithm: ring_all_gather}, {selector: nccl}]}\n")
    assert found.candidates("all_gather", 64, 3) == ("ring_all_gather",)


def test_a_group_has_its_own_selector(here: Path) -> None:
    rules = '[{group: "tp*", selector: nccl}, {group: dp, algorithm: ring_allreduce}]'
    found = config(here, f"defaults: {{selector: shortlist}}\ncollectives: {{all_reduce: {rules}}}\n")
    assert value(found, place=Place("tp0", "")) == "nccl"
    assert value(found, place=Place("dp", "")) is None
    assert value(found) == value(found, place=Place("pp", "")) == "shortlist"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("defaults: {selector: 3}", "defaults.selector must be the name or the file of a selector"),
        ("defaults: {selector: {k: 3}}", "defaults.selector must be"),
        ("collectives: {all_reduce: [{selector: nccl, algorithm: ring_allreduce}]}", "an algorithm or a selector"),
        ("collectives: {all_reduce: {max_bytes: 3}}", "an algorithm or a selector"),
        ("collectives: {all_reduce: [{selector: nccl}, {algorithm: ring_allreduce}]}", "before the range"),
    ],
)
def test_what_is_no_selector_is_refused_with_its_line(here: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(here, text)
    assert told in str(caught.value) and "ccl.yaml:1" in str(caught.value)


def test_a_selector_that_cannot_be_loaded_is_refused_with_its_line(here: Path) -> None:
    (here / "ccl.yaml").write_text("defaults:\n  selector: shortlst\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="AHBM-C181 unknown selector 'shortlst'") as caught:
        ahbm.run("all_reduce", overrides=RANKS, bytes_per_rank=64)
    assert "ccl.yaml:2" in str(caught.value)


def ladder(folder: Path) -> None:
    rules = [{"collective": "all_reduce", "algorithm": TREE, "max_bytes": 128}]
    rules.append({"collective": "all_reduce", "algorithm": RING})
    (folder / "ladder.json").write_text(json.dumps({"kind": "ranges", "rules": rules}), encoding="utf-8")


def test_runs_and_ranks_ask_the_selector_of_the_configuration(here: Path) -> None:
    (here / "sub").mkdir()
    ladder(here / "sub")
    text = "collectives: {all_reduce: {selector: {kind: ranges, file: ladder.json}}}\n"
    (here / "sub/ccl.yaml").write_text(text, encoding="utf-8")
    for nbytes, algorithm in ((128, TREE), (130, RING)):
        report = ahbm.run("all_reduce", overrides=RANKS, bytes_per_rank=nbytes, ccl="sub/ccl.yaml")
        plain = ahbm.run("all_reduce", algorithm, overrides=RANKS, bytes_per_rank=nbytes)
        assert (report.algorithm, report.timeline_hash) == (algorithm, plain.timeline_hash)
        assert report.notes[0] == f"{algorithm} runs: the selector ranges chose it"

    def worker() -> list[tuple[str, str]]:
        dist.init_process_group(ccl="sub/ccl.yaml")
        for elements in (64, 65):
            dist.all_reduce(np.ones(elements, np.float16))
        return [(call.algorithm, call.rule) for call in dist.stats()]

    assert ahbm.spawn(worker, overrides=RANKS, ccl="sub/ccl.yaml") == [[(TREE, "selector"), (RING, "selector")]] * 3


def test_the_same_selector_on_all_networks_is_asked_again_for_every_shape(here: Path) -> None:
    (here / "ccl.yaml").write_text("defaults: {selector: {kind: shortlist, k: 99}}\n", encoding="utf-8")
    for machine in ("npu_ring_8", "npu_fully_connected_8"):
        report = ahbm.run("all_reduce", topology=machine, bytes_per_rank="16K", data=False)
        names = (RING, TREE, BOTH, "all_pairs_allreduce", "recursive_doubling_allreduce")
        runs = [ahbm.run("all_reduce", name, machine, bytes_per_rank="16K", data=False) for name in names]
        assert report.latency_ns <= min(run.latency_ns for run in runs)


def test_a_stored_row_is_not_taken_for_that_of_another_selector(here: Path) -> None:
    ladder(here)
    (here / "ccl.yaml").write_text("defaults: {selector: ladder.json}\n", encoding="utf-8")
    space = ahbm.Space("all_reduce", topologies="npu_ring_8", sizes=128, data=False, ccl="ccl.yaml")
    first = [row["algorithm"] for row in ahbm.sweep(space, store="rows")]
    text = (here / "ladder.json").read_text(encoding="utf-8")
    (here / "ladder.json").write_text(text.replace(TREE, BOTH), encoding="utf-8")
    second = [row["algorithm"] for row in ahbm.sweep(space, store="rows")]
    assert (first, second) == ([TREE], [BOTH])
