"""Inside a run that stands still: until its last progress it is looked into like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.errors import ConfigError
from ahbm.runs.inspection import Inspection
from support import plans
from support.scripts import script

KERNEL = """\
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    return (n_elem, dtype)


def kernel(t_ptr, n, dtype, rank, kind, w, h, *, tl):
    x = tl.load(t_ptr, shape=(n,), dtype=dtype)
    tl.send(dir="global_E", src=x)
    y = tl.recv(dir="global_W", shape=(n,), dtype=dtype)
    tl.store(t_ptr, x + y)
    z = tl.recv(dir="global_W", shape=(n,), dtype=dtype)
    tl.send(dir="global_E", src=y)
    tl.store(t_ptr, x + y + z)
"""
"""Stores the sum of two ranks, then receives before anybody sends."""
PLACE = ("-t", "npu_ring_8", "--size", "4K")


@pytest.fixture
def file(tmp_path: Path) -> str:
    return script(tmp_path, KERNEL, "stuck.py")


@pytest.fixture
def stuck(file: str) -> Inspection:
    return ahbm.inspect("all_reduce", file, "npu_ring_8", bytes_per_rank=4096)


def test_at_the_end_everybody_waits_for_what_never_comes(stuck: Inspection) -> None:
    state = stuck.at()
    assert state.at_ps == state.latency_ps == stuck.latency_ps > 0 and len(state.waiting) == 8
    for agent in state.agents:
        (awaited,) = agent.waits_for
        assert (agent.doing, agent.until_ps, agent.origin) == ("message", None, "stuck.py:13")
        assert (awaited.rank, awaited.origin, awaited.at_ps) == ((agent.rank - 1) % 8, "stuck.py:14", None)
    assert "nothing moves after" in str(state) and "AHBM-D101 deadlock" in str(state) and "never does" in str(state)
    assert not any(queue.messages for queue in state.queues) and not state.links


def test_before_it_things_move(stuck: Inspection) -> None:
    early = stuck.at("20ns")
    assert early.deadlock and early.links and all(agent.until_ps is not None for agent in early.agents)


def test_elements_are_what_they_were_then(stuck: Inspection) -> None:
    origin = stuck.origin_of(3, 17)
    assert [str(one) for one in origin.contributions] == ["element 17 of rank 2", "element 17 of rank 3"]
    assert origin.value == sum(one.value for one in origin.steps if one.contribution) and len(origin.missing) == 6
    # The second send and store never ran.
    fate = stuck.fate_of(3, 17)
    assert {end.rank for end in fate.ends} == {3, 4}
    lines = {step.origin for step in fate.steps if step.agent >= 0}
    assert lines <= {f"stuck.py:{line}" for line in (9, 10, 11, 12)}


def test_the_command_looks_into_kernels_and_plans(file: str, tmp_path: Path) -> None:
    seen = CliRunner().invoke(app, ["inspect", "all_reduce", "-a", file, *PLACE, "--json"])
    assert seen.exit_code == 0, seen.output
    assert json.loads(seen.output)["deadlock"].startswith("AHBM-D101")
    # Both ranks send more than a queue holds before they receive.
    steps = "".join(plans.step(s, "s" if s < 3 else "r", f"i:{s % 3}", f"i:{s % 3}") for s in range(6))
    gpus = [
        f'<gpu id="{rank}" i_chunks="3" o_chunks="3" s_chunks="0">'
        f'<tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">{steps}</tb></gpu>'
        for rank in range(2)
    ]
    plan = script(tmp_path, plans.document(2, 3, "allreduce", gpus), "stuck.xml")
    seen = CliRunner().invoke(app, ["inspect", plan, "--size", "6K", "--json"])
    assert seen.exit_code == 0, seen.output
    assert {agent["doing"] for agent in json.loads(seen.output)["agents"]} == {"slot"}


def test_places_are_matched_as_numbers_not_as_text() -> None:
    """`sip 1` is no beginning of `sip 11`."""
    inspection = ahbm.inspect(
        "all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=1 << 20, overrides={"system.sips.count": 12}
    )
    state = inspection.at("30%")
    for asked in ("sip1", "sip 1", "SIP1.cube0", "sip 1 cube 0 pe 0"):
        assert {agent.rank for agent in state.of(place=asked).agents} == {1}
    one = state.of(rank=1)
    assert state.links and {link.place for link in one.links} <= {"sip 1 cube 0 pe 0"}
    assert {link.place for link in state.links} >= {"sip 11 cube 0 pe 0"}
    with pytest.raises(ConfigError, match="AHBM-C129"):
        state.of(place="1")
