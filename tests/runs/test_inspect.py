"""Inside a run: histories of elements add up to their values, and states agree with times and reports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import ahbm
from ahbm import DPPolicy, Inspection
from ahbm.check.case import Case
from ahbm.check.reference import inputs
from ahbm.cli import app
from ahbm.errors import AhbmError, ConfigError, DataError, DeadlockError
from ahbm.runs.history import Origin
from ahbm.runs.measure import prepare
from ahbm.runs.snapshot import moment
from support import plans
from support.scripts import exchange, script

ALGORITHMS = {
    "lrab_hierarchical_allreduce": "all_reduce",
    "ring_allreduce": "all_reduce",
    "tree_allreduce": "all_reduce",
    "recursive_doubling_allreduce": "all_reduce",
    "ring_all_gather": "all_gather",
    "ring_reduce_scatter": "reduce_scatter",
    "binomial_broadcast": "broadcast",
    "binomial_reduce": "reduce",
    "binomial_gather": "gather",
    "binomial_scatter": "scatter",
    "pairwise_all_to_all": "all_to_all",
    "direct_send_recv": "send_recv",
}
FIVE = {"system.sips.count": 5}
SMALL = FIVE | {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2}
ONE_PE = FIVE | {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
NUMBERS: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "i32": np.int32}
FUNCTIONS = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}


def evaluated(origin: Origin, dtype: str) -> Any:
    """The value that follows from the inputs by the functions of the tree, in its order."""
    kind, values = NUMBERS[dtype], list[Any]()
    for step in origin.steps:
        assert all(link < len(values) for link in step.links), "what an element is made of stands before it"
        of = [values[link] for link in step.links]
        if step.agent < 0:
            assert step.contribution is not None
            values.append(kind(step.value))
        elif len(of) == 2:
            values.append(kind(FUNCTIONS[step.name](*of)))
        else:
            assert len(of) == 1 and step.name not in FUNCTIONS
            values.append(of[0])
    (root,) = origin.roots
    return values[root]


def some(case: Case, party: int) -> Iterator[int]:
    """Elements at the edges and in the middle of what a party must have."""
    for start, stop, _ in case.request.expected(party):
        yield from {start, (start + stop) // 2, stop - 1}


def follow(case: Case, mode: str = "random") -> None:
    """Every history has the contributions that the collective wants, and the bits of the data pass."""
    request, inspection = case.request, Inspection.of(case, mode)
    _, results = case.execute(inputs(request, mode, 0))
    for party in range(request.parties):
        rank, cube = divmod(party, request.tiles)
        for index in some(case, party):
            origin = inspection.origin_of(rank, index, cube=cube)
            assert not origin.missing and not origin.extra and not origin.lost
            stored = request.element.decode(results[party][index : index + 1])[0]
            assert origin.value == float(evaluated(origin, request.dtype)) == float(stored)
            for whose in origin.contributions:
                fate = inspection.fate_of(whose.rank, whose.index, cube=whose.tile or 0)
                assert (rank, index) in {(end.rank, end.index) for end in fate.ends}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_element_has_the_wanted_contributions_and_the_bits_of_the_run(algorithm: str, dtype: str) -> None:
    case = prepare(ALGORITHMS[algorithm], algorithm, "ring_1d", bytes_per_rank=70, dtype=dtype, overrides=FIVE)
    follow(case)


@pytest.mark.parametrize("op", ["max", "min", "prod"])
def test_other_operators_are_followed(op: str) -> None:
    follow(
        prepare("all_reduce", "ring_allreduce", "ring_1d", bytes_per_rank=40, dtype="i32", op=op, overrides=FIVE),
        "integers",
    )


@pytest.mark.slow
def test_the_elements_of_device_tensors_are_followed() -> None:
    placement = DPPolicy(cube="row_wise")
    case = prepare("all_reduce", None, "ring_1d", bytes_per_pe=6, placement=placement, overrides=SMALL)
    follow(case)
    origin = Inspection.of(case).origin_of(1, 2, cube=3)
    assert str(origin).startswith("element 2 of rank 1 cube 3 at ")


def test_an_average_is_followed_through_its_division() -> None:
    origin = ahbm.inspect(
        "all_reduce", "ring_allreduce", "ring_1d", bytes_per_rank=40, op="avg", overrides=FIVE
    ).origin_of(2, 7)
    assert len(origin.contributions) == 5 and not origin.missing and "div" in origin.functions


@pytest.mark.parametrize("inplace", [0, 1])
@pytest.mark.parametrize("plan", ["ring", "all_gather"])
def test_the_steps_of_a_plan_are_its_lines(plan: str, inplace: int, tmp_path: Path) -> None:
    text = plans.ring(4) if plan == "ring" else plans.all_gather(4, inplace=inplace)
    file = script(tmp_path, text, "plan.xml")
    opened = ahbm.open(file, bytes_per_rank=64)
    follow(opened.case)
    origin = opened.inspect().origin_of(1, 3)
    assert all(re.fullmatch(r".*plan\.xml:\d+", step.origin) for step in origin.steps if step.agent >= 0)


def test_puts_into_shared_memory_are_followed_to_the_lines_of_the_script(tmp_path: Path) -> None:
    opened = ahbm.open(exchange(tmp_path), args=["--ranks", "4"], bytes_per_rank=64)
    follow(opened.case)
    inspection = opened.inspect()
    origin = inspection.origin_of(1, 3)
    assert any("exchange.py:" in step.origin for step in origin.steps)
    # What is posted is there when it arrives: just before, the old element is.
    arrival = max(step.at_ps for step in origin.steps)
    before = inspection.origin_of(1, 3, at=f"{arrival - 1}ps")
    assert arrival > 0 and len(before.contributions) <= 1 and len(before.steps) < len(origin.steps)
    assert inspection.origin_of(1, 3, at=f"{arrival}ps").steps == origin.steps
    report = opened.run()
    assert report.inspect().at("50%").counters


def test_a_step_of_a_tree_stands_there_once() -> None:
    """Recursive doubling uses every partial sum twice: the graph stays small, the tree does not."""
    inspection = ahbm.inspect("all_reduce", "recursive_doubling_allreduce", "hypercube", bytes_per_rank=16)
    origin = inspection.origin_of(0, 1)
    assert len({(step.agent, step.op, step.element) for step in origin.steps}) == len(origin.steps)


def test_nothing_has_happened_at_first_and_nothing_is_left_in_the_end() -> None:
    inspection = ahbm.inspect("all_reduce", "ring_allreduce", "ring_1d", bytes_per_rank="4K", overrides=FIVE)
    first, last = inspection.at(0), inspection.at("100%")
    assert not any(queue.messages or queue.sent for queue in first.queues)
    assert all(agent.op == 0 for agent in first.agents)
    assert {agent.doing for agent in last.agents} == {"ended"} and not last.waiting and not last.links
    assert all(queue.sent == queue.received > 0 and queue.free == queue.slots for queue in last.queues if queue.sent)
    origin = inspection.origin_of(3, 17, at=0)
    assert [str(step) for step in origin.steps] == ["element 17 of rank 3"]
    assert inspection.element(3, 17, at=0) == origin.steps[0].value != inspection.element(3, 17)
    assert (
        last.at_ps
        == inspection.latency_ps
        == round(
            ahbm.run(
                "all_reduce", "ring_allreduce", "ring_1d", bytes_per_rank="4K", overrides=FIVE, data=False
            ).latency_ns
            * 1000
        )
    )


@pytest.mark.parametrize("algorithm", ["ring_allreduce", "tree_allreduce", "lrab_hierarchical_allreduce"])
def test_a_state_agrees_with_the_times_of_all_operations(algorithm: str) -> None:
    report = ahbm.run("all_reduce", algorithm, "npu_ring_8", bytes_per_rank="4K", data=False)
    inspection, program = report.inspect(), report.program()
    assert program is not None
    timeline = program.simulate()
    assert inspection.timeline_hash == report.timeline_hash
    for share in range(0, 101, 7):
        state = inspection.at(f"{share}%")
        for agent in state.agents:
            start, end = (int(times[agent.op]) for times in timeline.spans(agent.agent))
            assert (agent.since_ps, agent.until_ps) == (start, end)
            assert agent.doing == "ended" or start <= state.at_ps < end
            assert all(one.at_ps > state.at_ps for one in agent.waits_for)
            assert bool(agent.waits_for) == agent.waits
        for queue in state.queues:
            assert len(queue.messages) == queue.sent - queue.received
            assert 0 <= queue.free <= queue.slots
        for link in state.links:
            assert link.until_ps > state.at_ps


KERNEL = """\
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n, world, dtype, rank, kind, w, h, *, tl):
    if tl.program_id(axis=0) or tl.program_id(axis=1):
        return
    if rank == 0:
        total = tl.load(t_ptr, shape=(n,), dtype=dtype)
        for other in range(1, world):
            arrived = tl.recv(dir=f"sip{other}", shape=(n,), dtype=dtype)
            if other != 2:  # the contribution of rank 2 is dropped
                total = total + arrived
        for other in range(1, world):
            tl.send(dir=f"sip{other}", src=total)
    else:
        SENDS
        total = tl.recv(dir="sip0", shape=(n,), dtype=dtype)
    tl.store(t_ptr, total)
"""
LINE = {text: number for number, text in enumerate(KERNEL.splitlines(), 1)}
SEND = 'tl.send(dir="sip0", src=tl.load(t_ptr, shape=(n,), dtype=dtype))'


def kernel(folder: Path, sends: str = SEND) -> str:
    return script(folder, KERNEL.replace("SENDS", sends), "planted.py")


def test_a_dropped_contribution_is_lost_where_it_was_dropped(tmp_path: Path) -> None:
    file = kernel(tmp_path)
    received = next(number for text, number in LINE.items() if "arrived = tl.recv" in text)
    inspection = ahbm.inspect("all_reduce", file, "fully_connected", bytes_per_rank=64, overrides=FIVE)
    for rank in range(5):
        origin = inspection.origin_of(rank, 9)
        assert [str(one) for one in origin.missing] == ["element 9 of rank 2"]
        (lost,) = origin.lost
        assert lost.last.origin == f"planted.py:{received}" and lost.last.place.startswith("sip 0 ")
        assert "is lost at recv" in str(origin) and "nothing uses it" in str(origin)
    assert not inspection.fate_of(2, 9).ends
    assert [end.rank for end in inspection.fate_of(1, 9).ends] == list(range(5))
    # The errors about it name the command, and it finds the line.
    with pytest.raises(DataError, match=r"`ahbm inspect` with --element 0:0 ") as caught:
        ahbm.run("all_reduce", file, "fully_connected", bytes_per_rank=64, overrides=FIVE, check=True)
    assert caught.value.code == "AHBM-V301"
    report = ahbm.run("all_reduce", file, "fully_connected", bytes_per_rank=64, overrides=FIVE)
    assert "`ahbm inspect` with --element" in str(report.findings[0].hint)
    command = ["inspect", "all_reduce", "-a", file, "-t", "fully_connected", "--ranks", "5", "--element", "0:0"]
    result = CliRunner().invoke(app, command)
    assert f'element 0 of rank 2 is lost at recv(dir="sip2") (planted.py:{received})' in result.stdout


MATHS = """\
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    return (n_elem,)


def kernel(t_ptr, n, rank, kind, w, h, *, tl):
    if tl.program_id(axis=0) or tl.program_id(axis=1):
        return
    a = tl.load(t_ptr, shape=(3, 4))
    wide = tl.cast(a, "f32")
    square = tl.dot(a, tl.trans(a))
    sums = tl.sum(wide, axis=1)
    rows = tl.cast(tl.sum(tl.trans(wide), axis=0), "f16")
    soft = tl.softmax(a, axis=0) + tl.softmax(a)
    bent = tl.fma(tl.clamp(a, -1, 1), soft, tl.exp(-a)) + tl.arange(0, 4)
    picked = tl.where(a > tl.full((4,), 0.5), bent, tl.maximum(a, tl.max(a)) - 0.25)
    tl.store(t_ptr, picked)
    tl.store(t_ptr + 24, square)
    tl.store(t_ptr + 42, rows)
    tl.store(t_ptr + 48, tl.cast(sums, "f16"))
    if rank == 0:
        tl.send(dir="sip1", src=tl.load(t_ptr + 8, shape=(2, 3)) / 2)
    elif rank == 1:
        later = tl.recv_async(dir="sip0", shape=(6,))
        tl.store(t_ptr + 4, tl.wait(later))
"""


def test_every_function_is_followed_to_the_bits_of_the_run(tmp_path: Path) -> None:
    case = prepare("all_reduce", script(tmp_path, MATHS, "maths.py"), "ring_1d", bytes_per_rank=60, overrides=ONE_PE)
    inspection = Inspection.of(case, "random")
    _, results = case.execute(inputs(case.request, "random", 0))
    for rank in range(2):
        decoded = case.request.element.decode(results[rank])
        for index in range(27):
            origin = inspection.origin_of(rank, index)
            assert origin.value == decoded[index], (rank, index, str(origin))
    assert "recv_async" in str(inspection.origin_of(1, 3))
    assert {"dot", "trans"} <= set(inspection.origin_of(0, 13).functions)
    # What takes part in everything behind it is in everything.
    assert len({step.what for step in inspection.fate_of(0, 5).steps}) > 10


def test_who_waits_is_who_waits_in_the_report_of_the_deadlock(tmp_path: Path) -> None:
    """The same kernel stops where rank 2 never sends, and waits for it where rank 2 sends late."""
    late = f"""if rank == 2:
            for _ in range(200):
                total = tl.load(t_ptr, shape=(n,), dtype=dtype)
        {SEND}"""
    inspection = ahbm.inspect(
        "all_reduce", kernel(tmp_path, late), "fully_connected", bytes_per_rank=64, overrides=ONE_PE
    )
    last = next(step for step in inspection.origin_of(0, 0).lost).last.at_ps
    state = inspection.at(f"{last // 2}ps")
    waiting = {(agent.place, agent.what) for agent in state.waiting}
    (root,) = [agent for agent in state.waiting if agent.rank == 0]
    assert [one.rank for one in root.waits_for] == [2] and root.doing == "message"
    with pytest.raises(DeadlockError) as caught:
        never = f"""if rank == 2:
            total = tl.recv(dir="sip0", shape=(n,), dtype=dtype)
        {SEND}
        if rank == 2:
            tl.store(t_ptr, total)
            return"""
        file = kernel(tmp_path, never)
        ahbm.run("all_reduce", file, "fully_connected", bytes_per_rank=64, overrides=ONE_PE)
    said = re.findall(
        r"(sip \d cube \d pe \d) waits in (\S+ \S+) \(", "\n".join(str(site.label) for site in caught.value.sites)
    )
    # Rank 2 waits in the report because it went on.
    assert waiting == {one for one in said if not one[0].startswith("sip 2 ")} and len(waiting) == 4
    # The state of the run that stands still is the report's, and its message is that error.
    stuck = ahbm.inspect("all_reduce", file, "fully_connected", bytes_per_rank=64, overrides=ONE_PE)
    end = stuck.at()
    assert {(agent.place, agent.what) for agent in end.waiting} == set(said)
    assert isinstance(stuck.deadlock, DeadlockError) and end.deadlock == f"AHBM-D101 {caught.value.message}"


@pytest.mark.parametrize(
    ("text", "ps"),
    [("1200ns", 1_200_000), ("1.2us", 1_200_000), ("500ps", 500), ("25%", 500_000), (3.5, 3500), ("2us", 2_000_000)],
)
def test_times_have_units(text: Any, ps: int) -> None:
    assert moment(text, 2_000_000) == ps


@pytest.mark.parametrize(
    "text", ["", "12", "ns", "-1ns", "101%", "3us", "1e3ns", "1 fortnight", float("nan"), -1, True, None, [1]]
)
def test_what_is_no_time_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        moment(text, 2_000_000)
    assert caught.value.code == "AHBM-C129"


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda one: one.origin_of(9, 0), "AHBM-C129"),
        (lambda one: one.origin_of(0, 10**6), "AHBM-C129"),
        (lambda one: one.fate_of(0, -1), "AHBM-C129"),
        (lambda one: one.origin_of(0, 0, cube=1), "AHBM-C129"),
        (lambda one: one.origin_of("0", 0), "AHBM-C129"),
        (lambda one: one.at("7 o'clock"), "AHBM-C129"),
        (lambda one: one.at(0).of(rank=99), "AHBM-C129"),
        (lambda one: one.at(0).of(place="sip99"), "AHBM-C129"),
    ],
)
def test_what_is_not_there_is_refused_by_name(ask: Any, code: str) -> None:
    with pytest.raises(AhbmError) as caught:
        ask(ahbm.inspect("all_gather", "ring_all_gather", "ring_1d", bytes_per_rank=40, overrides=FIVE))
    assert caught.value.code == code


def test_a_history_that_is_too_long_is_refused() -> None:
    inspection = ahbm.inspect("all_reduce", "ring_allreduce", "ring_1d", bytes_per_rank=40, overrides=FIVE)
    case = inspection._known
    buffer = int(case.compiled().results[0][0][0])
    with pytest.raises(AhbmError) as caught:
        inspection._flow.origin(inspection._inputs, buffer, 0, 2, most=5)
    assert caught.value.code == "AHBM-B124"
    with pytest.raises(AhbmError) as caught:
        inspection._flow.fate(buffer, 0, 2, most=5)
    assert caught.value.code == "AHBM-B124"


@pytest.mark.parametrize(
    "line",
    [
        "--at 50%",
        "--at 1us --rank 3",
        "--pe sip3.cube0.pe0",
        "--element 3:17 --depth 2",
        "--element 3:17 --at 10%",
        "--from 2:17",
    ],
)
def test_the_command_prints_what_the_functions_find(line: str) -> None:
    command = ["inspect", "all_reduce", "-a", "ring_allreduce", "-t", "npu_ring_8", *line.split()]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0 and told.stdout
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    inspection = ahbm.inspect("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank="4K")
    want: Any
    if "--element" in line:
        want = inspection.origin_of(3, 17, at="10%" if "--at" in line else None)
    elif "--from" in line:
        want = inspection.fate_of(2, 17)
    else:
        want = inspection.at({"--at 50%": "50%", "--at 1us --rank 3": 1000.0}.get(line, "50%"))
        want = want if "%" in line else want.of(rank=3)
    assert found == json.loads(json.dumps(want.to_json()))
    assert told.stdout == ("\n".join(want.lines(2)) if "--depth" in line else str(want)) + "\n"


@pytest.mark.parametrize(
    "line",
    [
        "--element 1:1 --from 1:1",
        "--element 1:1 --rank 1",
        "--from 1:1 --at 5%",
        "--depth 3",
        "--element 1",
        "--from a:b",
    ],
)
def test_options_that_do_not_go_together_are_refused(line: str) -> None:
    result = CliRunner().invoke(
        app, ["inspect", "all_reduce", "-a", "ring_allreduce", "-t", "npu_ring_8", *line.split()]
    )
    assert isinstance(result.exception, ConfigError) and result.exception.code == "AHBM-C146"


def test_a_run_without_a_known_result_has_states_and_no_elements(tmp_path: Path) -> None:
    custom = plans.ring(4).replace('coll="allreduce"', 'coll="custom"')
    inspection = ahbm.open(script(tmp_path, custom, "custom.xml"), bytes_per_rank=64).inspect()
    assert inspection.at().agents
    with pytest.raises(ConfigError) as caught:
        inspection.origin_of(0, 0)
    assert caught.value.code == "AHBM-C148"


def test_a_job_is_not_looked_into(tmp_path: Path) -> None:
    head = {"version": "0.0.4", "attr": [{"name": "world_size", "int32Val": 1}]}
    node = {"id": 0, "name": "gemm", "type": "COMP_NODE", "durationMicros": 1}
    (tmp_path / "steps.0.json").write_text("\n".join(map(json.dumps, (head, node))))
    with pytest.raises(ConfigError, match="is a job") as caught:
        ahbm.open(tmp_path / "steps.0.json").inspect()
    assert caught.value.code == "AHBM-C146"


def test_an_inspection_shows_itself() -> None:
    inspection = ahbm.inspect("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank="4K")
    assert str(inspection) == str(inspection.at("50%"))
    assert inspection._repr_html_().startswith("<pre>") and "-&gt;" in inspection._repr_html_()
    data = inspection.to_json()
    assert data["timeline_hash"] == inspection.timeline_hash and json.dumps(data)
