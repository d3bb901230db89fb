"""Where a program is written, wherever it is lowered: findings, limits, text that is the same every time."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ahbm.dsl.mscclpp import (
    JSON,
    AlgoSpec,
    AllReduce,
    Buffer,
    CollectiveProgram,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    SyncType,
    ThreadBlockGroup,
)
from ahbm.dsl.written import collected
from ahbm.errors import AhbmError
from support.programs import lower

pytestmark = pytest.mark.filterwarnings("ignore::ahbm.errors.ProgramWarning")
FILE = "test_mscclpp_origins.py"


def line_of(function: Callable[..., object], mark: str) -> str:
    lines, first = inspect.getsourcelines(function)
    return f"{FILE}:{next(first + at for at, line in enumerate(lines) if line.rstrip().endswith(f'# {mark}'))}"


def pairwise(*, wait: bool = True, put: bool = True) -> None:
    """An all-reduce of two ranks through scratch."""
    scratch = [Buffer(rank, 1) for rank in range(2)]
    out = [MemoryChannel(1 - rank, rank) for rank in range(2)]
    for rank in range(2):
        own = Rank(rank).get_input_buffer()
        peer = 1 - rank
        if put:
            out[rank].put(scratch[peer][0:1], own[0:1], tb=0)
            out[rank].put(Buffer(peer, 1)[0:1], own[1:2], tb=0)
        out[rank].signal(tb=0, data_sync=SyncType.before)
        if wait:
            out[rank].wait(tb=0, data_sync=SyncType.after)
        else:
            out[rank].wait(tb=1, data_sync=SyncType.after)
        Rank(rank).reduce(own[0:1], [scratch[rank][0:1]], tb=0)  # reduced


def test_a_race_names_statements() -> None:
    plan = lower(lambda: pairwise(wait=False), collective=AllReduce(2, 1, True)).written.plan
    verdict, _, findings, _ = plan.check()
    assert verdict != "correct"
    origins = {site["origin"] for finding in findings for site in finding["sites"]}
    assert {f"{line_of(pairwise, 'reduced')} (rank={rank})" for rank in range(2)} & origins
    # The program itself begins in the helper.
    assert {origin.partition(":")[0] for origin in origins} == {FILE, "programs.py"}


def test_what_nobody_wrote_is_the_program_s() -> None:
    with collected() as written:
        with CollectiveProgram("nothing", AllReduce(2, 1, True), 2) as program:  # begins
            Rank(0).barrier([0])
        program.to_json()
    verdict, _, findings, _ = written[0].plan.check()
    begins = line_of(test_what_nobody_wrote_is_the_program_s, "begins")
    assert verdict == "wrong"
    assert all(site["origin"] == begins for finding in findings for site in finding["sites"])
    assert all(finding["sites"] for finding in findings)


def limits_ops() -> None:
    for _ in range(80):
        Rank(0).barrier([0, 1])  # barriers


def limits_channels() -> None:
    near, far = Rank(0).get_input_buffer(), Rank(1).get_input_buffer()
    for _ in range(16):
        MemoryChannel(1, 0).put(far[0:1], near[0:1], tb=0)
    MemoryChannel(1, 0).put(far[0:1], near[0:1], tb=0)  # channels


def limits_barriers() -> None:
    for k in range(17):
        Rank(0).barrier([0, k + 1])  # ids


@pytest.mark.parametrize(
    ("write", "mark", "message"),
    [
        (limits_ops, "barriers", "64 operations"),
        (limits_channels, "channels", "16 channels"),
        (limits_barriers, "ids", "barrier id"),
    ],
    ids=["operations", "channels", "barriers"],
)
def test_a_limit_is_told_at_the_statement_that_goes_over_it(write: Callable[[], None], mark: str, message: str) -> None:
    warnings = lower(write).written.plan.warnings
    (found,) = [warning for warning in warnings if message in warning["message"]]
    assert found["sites"][0]["origin"].partition(" (")[0] == line_of(write, mark)


def test_operations_in_loops_and_groups_have_their_statements() -> None:
    def write() -> None:
        near = Rank(0).get_input_buffer()
        far = Rank(1).get_output_buffer()
        channel = MemoryChannel(1, 0)
        with LoopIterationContext(unit=16, num_chunks=1):
            channel.put(far[0:1], near[0:1], tb=0)
            Rank(1).copy(far[0:1], far[1:2], tb_group=ThreadBlockGroup([0, 1]))  # copied

    verdict, _, findings, _ = lower(write, collective=None).written.plan.check()
    assert verdict
    assert line_of(write, "copied") in {site["origin"] for finding in findings for site in finding["sites"]}


def test_an_error_of_the_plan_names_the_statement() -> None:
    def write() -> None:
        near, far = Rank(0).get_input_buffer(), Rank(1).get_input_buffer()
        channel = PortChannel(1, 0)
        channel.put(far[0:1], near[0:1], tb=0)
        for first in (0, 1):
            Rank(0).copy(near[0:1], near[first : first + 1], tb=1)

    with collected() as written, CollectiveProgram("p", AllReduce(2, 4, True), 2) as program:
        write()
        program.to_json()
    assert written[0].plan.warnings == [] or all("#" not in str(each["sites"]) for each in written[0].plan.warnings)
    assert repr(written[0].plan).startswith("<plan mscclpp_json")


def test_text_is_the_same_every_time_and_says_what_json_dumps_says() -> None:
    with CollectiveProgram("p", AllReduce(2, 1, True), 2) as program:
        pairwise()
        text = JSON()
        program.post_process_operations()
        assert program.to_json() == text
    assert program.to_json() == text
    assert text == json.dumps(json.loads(text), indent=2)
    assert program.to_json(indent=None, sort_keys=True) == json.dumps(json.loads(text), sort_keys=True)
    with CollectiveProgram("päd", AllReduce(2, 1, True), 2) as program:
        assert '"name": "p\\u00e4d"' in program.to_json()


def test_a_program_from_a_spec_is_the_program() -> None:
    spec = AlgoSpec("p", AllReduce(2, 1, True), 2, 2, True, 2, "LL", use_double_scratch_buffer=True, min_message_size=7)
    with CollectiveProgram.from_spec(spec) as program:
        pairwise()
    document = json.loads(program.to_json())
    assert (document["protocol"], document["min_message_size"], document["use_double_scratch_buffer"]) == (
        "LL",
        7,
        True,
    )
    assert document["gpus"][0]["input_chunks"] == 4


SCRIPT = """
from ahbm.dsl.mscclpp import *

with CollectiveProgram("p", AllReduce(3, 2, True), 3, instances=2) as program:
    for rank in range(3):
        for peer in {(rank + 1) % 3, (rank + 2) % 3}:
            own, far = Rank(rank).get_input_buffer(), Rank(peer).get_output_buffer()
            MemoryChannel(peer, rank).put(far[rank : rank + 1], own[peer : peer + 1], tb=0)
            PortChannel(peer, rank).put(far[rank : rank + 1], own[peer : peer + 1], tb=1)
    print(JSON())
"""


def test_two_processes_and_two_hash_seeds_give_the_same_bytes(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    texts = set()
    for seed in ("1", "2", "2"):
        run = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        )
        texts.add(run.stdout)
    assert len(texts) == 1


def test_programs_in_threads_do_not_meet() -> None:
    barrier, texts, errors = threading.Barrier(2), dict[str, str](), list[BaseException]()

    def one(name: str) -> None:
        try:
            with CollectiveProgram(name, AllReduce(2, 1, True), 2) as program:
                barrier.wait(10)
                pairwise()
                barrier.wait(10)
                texts[name] = program.to_json()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert texts["a"].replace('"a"', '"b"', 1) == texts["b"]


def handed_on(*, last: bool) -> None:
    """Each of two ranks reduces its chunk from both and puts it into both; `last` has them wait for each other."""
    channels = [MemoryChannel(1 - rank, rank) for rank in range(2)]

    def meet(rank: int) -> None:
        channels[rank].signal(tb=0, data_sync=SyncType.before)
        channels[rank].wait(tb=0, data_sync=SyncType.after)

    for rank in range(2):
        mine, theirs = (Rank(at).get_input_buffer()[rank : rank + 1] for at in (rank, 1 - rank))
        meet(rank)
        channels[rank].reduce(mine, [theirs], tb=0)  # takes
        channels[rank].put(theirs, mine, tb=0)  # hands on
        if last:
            meet(rank)


@pytest.mark.parametrize("fused", [True, False])
def test_a_fused_operation_has_the_lines_of_all_its_statements(fused: bool) -> None:
    def origins(last: bool) -> set[str]:
        settings = {"collective": AllReduce(2, 1, True), "instr_fusion": fused}
        _, _, findings, _ = lower(lambda: handed_on(last=last), **settings).written.plan.check()
        return {site["origin"] for finding in findings for site in finding["sites"]}

    takes, hands_on = line_of(handed_on, "takes"), line_of(handed_on, "hands on")
    both = {f"{takes} (rank={rank}), fused with {hands_on} (rank={rank})" for rank in range(2)}
    assert origins(last=True) == set()
    assert origins(last=False) & both == (both if fused else set())


def test_statements_of_one_line_that_become_one_operation_are_counted() -> None:
    def write() -> None:
        near, far = Rank(0).get_input_buffer(), Rank(1).get_input_buffer()
        for at in range(4):
            MemoryChannel(1, 0).put(far[at : at + 1], near[at : at + 1], tb=0)  # puts

    _, _, findings, _ = lower(write, collective=AllReduce(2, 4, True)).written.plan.check()
    origins = {site["origin"] for finding in findings for site in finding["sites"]}
    assert f"{line_of(write, 'puts')} (at=0) and 3 more times" in origins


def test_a_statement_has_the_variables_of_the_loops_around_it() -> None:
    def wrong(rank: int) -> None:
        Rank(rank).copy(Rank(rank).get_input_buffer()[0:1], Rank(1 - rank).get_input_buffer()[0:1], tb=0)  # wrong

    def write() -> None:
        for rank, what in enumerate(["one", "a text of more than sixteen characters"]):
            assert what
            for part in (0.5, 2):
                if rank > 0:
                    wrong(rank + int(part) * 0)

    with pytest.raises(RuntimeError) as caught:
        lower(write)
    assert isinstance(caught.value, AhbmError)
    assert caught.value.sites[0].origin == f"{line_of(wrong, 'wrong')} (rank=1)"


def test_a_deadlock_names_the_iteration_of_both_sides() -> None:
    def write() -> None:
        channels = [MemoryChannel(1 - rank, rank) for rank in range(2)]
        for rank in range(2):
            channels[rank].wait(tb=0)  # waits
            channels[rank].signal(tb=0)

    verdict, _, findings, _ = lower(write, collective=AllReduce(2, 1, True)).written.plan.check()
    assert verdict == "deadlock"
    origins = [site["origin"] for site in findings[0]["sites"]]
    assert origins == [f"{line_of(write, 'waits')} (rank={rank})" for rank in range(2)]


def test_a_program_of_very_many_statements_has_lines_for_the_last_of_them() -> None:
    def write() -> None:
        channel = MemoryChannel(1, 0)
        for tb in [0] * (1 << 18):
            channel.signal(tb=tb)
        for tb in (-1,):
            channel.signal(tb=tb)  # told

    with pytest.raises(RuntimeError) as caught:
        lower(write)
    assert isinstance(caught.value, AhbmError)
    assert caught.value.sites[0].origin == line_of(write, "told")


def test_signals_without_waits_are_counted_by_line() -> None:
    def write() -> None:
        MemoryChannel(1, 0).signal(tb=0)
        for source in (0, 0, 0):
            MemoryChannel(1, source).signal(tb=0)  # thrice

    with pytest.raises(RuntimeError) as caught:
        lower(write, instr_fusion=False)
    assert isinstance(caught.value, AhbmError)
    told = [(site.label, site.origin) for site in caught.value.sites]
    assert ("rank 0 signals rank 1 (3 times)", line_of(write, "thrice")) in told


def test_a_difference_is_told_once_for_all_iterations() -> None:
    def write() -> None:
        own = Rank(0).get_input_buffer()
        for turn in range(3):
            Rank(turn % 1).barrier([0, 1])
            Rank(0).reduce(own[0:1], [own[4:5]], tb=0, dst_chunk=own[1:2])
            Rank(0).reduce(own[0:1], [own[5:6]], tb=0, dst_chunk=own[1:2])  # second

    notes = lower(write).written.notes
    sites = [site.origin for note in notes if "fuses two reductions" in note.message for site in note.sites]
    assert sites == [f"{line_of(write, 'second')} (turn=0)"]


def test_an_author_s_wrapper_is_the_author_s() -> None:
    def signal(channel: MemoryChannel) -> None:
        channel.relaxedSignal(tb=0)  # wrapped

    with pytest.raises(RuntimeError) as caught:
        lower(lambda: signal(MemoryChannel(1, 0)))
    assert isinstance(caught.value, AhbmError)
    assert caught.value.sites[0].origin == line_of(signal, "wrapped")
