"""Jobs beside each other on one network: each as it is alone where nothing is shared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm
from ahbm.errors import AhbmError, ConfigError
from ahbm.job.together import Together, places, together
from ahbm.job.transformer import Transformer
from support.commands import run

STEP = Transformer(layers=2, hidden=256, heads=4, sequence=64, vocabulary=256, dp=4, micro_batches=1).workload()
PAIR = Transformer(layers=1, hidden=256, heads=4, sequence=64, vocabulary=256, tp=2, micro_batches=1).workload()
NODES = {
    "system.sips.count": 8,
    "system.sips.topology": "nodes",
    "system.sips.nodes.size": 4,
    "system.sips.nodes.taper": 4,
}


def on_nodes(place: str, **more: object) -> Together:
    return together(
        STEP, STEP, place=place, topology="npu_switch_8", overrides={**NODES, **more}, algorithm="ring_allreduce"
    )


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.integers(0, 6),
    st.sampled_from(["packed", "striped", "random:7"]),
)
@settings(max_examples=60, deadline=None)
def test_every_rank_has_a_sip_of_its_own(ranks: list[int], spare: int, place: str) -> None:
    sips = sum(ranks) + spare
    found = places(ranks, sips, place)
    assert [len(job) for job in found] == ranks and found == places(ranks, sips, place)
    flat = [sip for job in found for sip in job]
    assert len(set(flat)) == len(flat) and all(0 <= sip < sips for sip in flat)


def test_places_are_those_that_their_names_say() -> None:
    assert places([2, 3], 6, "packed") == [[0, 1], [2, 3, 4]]
    assert places([2, 3], 6, "striped") == [[0, 2], [1, 3, 4]]
    assert places([2, 3], 6, "random") == places([2, 3], 6, "random:0") != places([2, 3], 6, "random:1")
    for wrong in ("", "spread", "packed:1", "random:x", "random:-1"):
        with pytest.raises(ConfigError, match="AHBM-C129 place must be"):
            places([1], 1, wrong)
    with pytest.raises(ConfigError, match=r"AHBM-C120 the jobs have 5 ranks, the machine has 4 SIPs"):
        places([2, 3], 4, "packed")


def test_jobs_that_share_no_link_do_not_hurt_each_other() -> None:
    found = together(STEP, PAIR, topology="npu_switch_8", place="striped")
    alone = ahbm.open(STEP, topology="npu_switch_8").run()
    assert [job.sips for job in found.jobs] == [(0, 2, 4, 5), (1, 3)] and found.links == ()
    assert found.jobs[0].alone_ns == found.jobs[0].latency_ns == alone.latency_ns
    assert [job.slowdown for job in found.jobs] == [1, 1]
    assert "no link is used by two of them" in str(found)


def test_jobs_across_nodes_hurt_each_other_where_the_nodes_meet() -> None:
    packed, striped = on_nodes("packed"), on_nodes("striped")
    assert [job.slowdown for job in packed.jobs] == [1, 1] and packed.links == ()
    assert all(job.slowdown > 1.2 for job in striped.jobs)
    worst = striped.links[0]
    assert "sip" not in worst.link.partition("->")[0] or "sip" not in worst.link.partition("->")[2]
    assert all(ns > 0 for ns in worst.busy_ns)
    # What both carry over one link is a bound of the whole run.
    assert sum(worst.busy_ns) < striped.report.latency_ns
    assert str(striped) == str(on_nodes("striped"))


def test_a_slow_link_is_the_trouble_of_the_job_that_has_it() -> None:
    switch = 9  # of the second node, behind 8 SIPs and the first node's switch
    slow = on_nodes("packed", **{"faults.links": [{"from": 6, "to": switch, "slowdown": 4}]})
    first, second = on_nodes("packed").jobs
    assert slow.jobs[0].latency_ns == first.latency_ns and slow.jobs[1].latency_ns > second.latency_ns


def test_the_sips_of_many_ranks_are_told_in_few_words() -> None:
    lines = str(
        together(STEP, STEP, PAIR, topology="npu_switch_8", overrides={"system.sips.count": 10}, place="striped")
    )
    assert "  0-6 by 2" not in lines and "  0, 3, 6, 8  " in lines and "  2, 5  " in lines
    lines = str(together(STEP, STEP, topology="npu_switch_8", place="striped"))
    assert "  0-6 by 2  " in lines and "  1-7 by 2  " in lines


def test_a_graph_that_performs_no_call_is_told(tmp_path: Path) -> None:
    ahbm.convert("ring_allreduce", tmp_path / "ring.et", topology="npu_ring_8", size=1024)
    graph = f"all_reduce={tmp_path / 'ring'}"
    found = together(STEP, STEP, topology="npu_switch_8", collective_algorithm=(graph,))
    assert any("performs no call: the job has no all_reduce of 8 ranks" in note for note in found.notes)


def test_the_command_says_what_python_says(tmp_path: Path) -> None:
    STEP.write(tmp_path / "step")
    words = ["run", "step", "step", "--place", "striped", "-t", "npu_switch_8", "--json"]
    code, out, _ = run("ahbm", words, tmp_path)
    told = json.loads(out)
    assert code == 0 and [job["job"] for job in told["jobs"]] == ["step (1)", "step (2)"]
    same = together(STEP, STEP, place="striped", topology="npu_switch_8")
    assert [job["latency_ns"] for job in told["jobs"]] == [job.latency_ns for job in same.jobs]
    assert "striped" in run("ahbm", words[:-1], tmp_path)[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("step --place packed", "AHBM-C146"),
        ("step all_reduce", "AHBM-C146"),
        ("step step --check all", "AHBM-C146"),
        ("step step -t npu_ring_8 -t npu_switch_8", "AHBM-C146"),
        ("step step --place apart", "AHBM-C129"),
        ("step step step -t npu_switch_8", "AHBM-C120"),
    ],
)
def test_what_is_no_question_is_refused(words: str, code: str, tmp_path: Path) -> None:
    STEP.write(tmp_path / "step")
    status, _, err = run("ahbm", ["run", *words.split()], tmp_path)
    assert status == 3 and code in err


def test_no_job_at_all_is_refused() -> None:
    with pytest.raises(AhbmError, match="AHBM-C146 no job is named"):
        together()
