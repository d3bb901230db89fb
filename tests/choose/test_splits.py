"""Splits hold out what they say, and a version of one never changes."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ahbm.choose.episodes import Every, Job
from ahbm.choose.splits import HELD_OUT, LEAVES, OF_A_LEAF, SPLITS, Part, Split, ranks_of, split_of
from ahbm.core.spec import machine_name
from ahbm.errors import ConfigError

FIXED = {
    "sizes": "12a4298a633aa419",
    "parameters": "e410ee8f68be7aed",
    "networks": "2390453c555fcd52",
    "jobs": "540ee76217157c4e",
    "machines": "f993e2a314a6766d",
    "scale": "ba75d896f64f4596",
}
"""Digests of version 1: names of machines, sizes, calls of jobs and algorithms, not of what they take."""


def told(part: Part) -> list[object]:
    def of(job: Any) -> object:
        if isinstance(job, Every):
            return repr(job)
        asked = [one.request for one in job.asked]
        return [(one.collective, one.count, one.dtype, list(one.ranks)) for one in asked]

    calls = [of(job) for job in part.jobs]
    return [[machine_name(machine) for machine in part.machines], part.sizes, calls]


def digest(split: Split) -> str:
    names = [(entry.collective, entry.name) for entry in split.catalogue]
    return hashlib.sha256(repr([split.id, told(split.train), told(split.test), names]).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", SPLITS)
def test_a_version_never_changes(name: str) -> None:
    assert digest(split_of(name)) == FIXED[name], "give the split another version"


def test_sizes_hold_out_the_odd_powers() -> None:
    split = split_of("sizes")
    assert {size.bit_length() % 2 for size in split.train.sizes} == {1}
    assert {size.bit_length() % 2 for size in split.test.sizes} == {0}
    assert [machine.hash for machine in split.train.machines] == [machine.hash for machine in split.test.machines]
    assert len(split.train.machines) == 54


def test_parameters_and_networks_hold_out_machines() -> None:
    for name, train, test in (("parameters", 36, 18), ("networks", 54, 9)):
        split = split_of(name)
        known = {machine.hash for machine in split.train.machines}
        held = {machine.hash for machine in split.test.machines}
        assert (len(known), len(held), known & held) == (train, test, set())
    assert len({latency for latency, _ in HELD_OUT}) == len({gbs for _, gbs in HELD_OUT}) == len(HELD_OUT) == 3
    networks = {machine.topology for machine in split_of("networks").test.machines}
    assert networks == {"mesh_3d", "custom", "torus_2d"}


def test_jobs_hold_out_jobs() -> None:
    split = split_of("jobs")
    known, held = (set(map(repr, told(part)[2])) for part in (split.train, split.test))  # type: ignore[call-overload]
    assert known and held and not known & held


def test_scale_holds_out_more_ranks_than_were_learned() -> None:
    split = split_of("scale")
    learned, held = ([machine.sips for machine in part.machines] for part in (split.train, split.test))
    assert max(learned) < min(held) and max(held) == 256
    assert {job.ranks for job in split.test.jobs if isinstance(job, Job)} == {128}


def test_only_ranks_of_a_switch_of_two_levels_take_part() -> None:
    split = split_of("networks").small(9, 1)
    outcomes = split.test.outcomes(split.catalogue)
    for name, machine in outcomes.machines.items():
        ranks = {request.world_size for request in outcomes.requests(name)}
        assert ranks == ({LEAVES * OF_A_LEAF} if ranks_of(machine) else {machine.sips})
    assert sum(ranks_of(machine) is not None for machine in outcomes.machines.values()) == 3


def test_a_split_that_there_is_not_is_named() -> None:
    assert split_of("sizes-1").id == "sizes-1"
    for name in ("size", "sizes-2", ""):
        with pytest.raises(ConfigError, match="AHBM-C129"):
            split_of(name)
