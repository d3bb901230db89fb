"""Statements that cannot be recorded and programs that cannot be lowered: type, code and the author's line."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ahbm.dsl import mscclpp
from ahbm.dsl.mscclpp import MemoryChannel, PortChannel, Rank
from ahbm.errors import AhbmError, ProgramError
from support.programs import lines_in, lower, run_script


def write(text: str) -> Callable[[], None]:
    """A program of one statement."""

    def run() -> None:
        names = dict(vars(mscclpp))
        setup = "r = Rank(0); i = r.get_input_buffer(); o = r.get_output_buffer(); s = Buffer(0, 4)\n"
        setup += "far = Rank(1).get_input_buffer(); m = MemoryChannel(1, 0); p = PortChannel(1, 0)\n"
        setup += "w = SwitchChannel([0, 1], BufferType.input); q = Semaphore(0, 1); g = ThreadBlockGroup([0, 1])\n"
        exec(compile(setup + text, "/somewhere/statement.py", "exec"), names)

    return run


REFUSED = {
    "i[0]": (TypeError, "A105"),
    "i[0:2:2]": (ValueError, "A105"),
    "i[0:0]": (ValueError, "A105"),
    "i[3:2]": (ValueError, "A105"),
    "i[0:9]": (RuntimeError, "A105"),
    "i[-1:3]": (RuntimeError, "A105"),
    "i[0:8 / 2]": (TypeError, "A103"),
    "s[4:5]": (RuntimeError, "A105"),
    "Rank(2)": (RuntimeError, "A102"),
    "Rank(-1)": (RuntimeError, "A102"),
    "Rank(0.0)": (TypeError, "A103"),
    "Buffer(2, 1)": (RuntimeError, "A102"),
    "Buffer(0, 0)": (RuntimeError, "A102"),
    "Buffer(0, 2**40)": (RuntimeError, "A102"),
    "MemoryChannel(2, 0)": (RuntimeError, "A102"),
    "PortChannel(0, -1)": (RuntimeError, "A102"),
    "SwitchChannel([], BufferType.input)": (RuntimeError, "A102"),
    "SwitchChannel([0, 0], BufferType.input)": (RuntimeError, "A102"),
    "SwitchChannel([0, 1])": (TypeError, "A103"),
    "Semaphore(0, -1)": (RuntimeError, "A102"),
    "ThreadBlockGroup([1, 1])": (ValueError, "A103"),
    "ThreadBlockGroup([-1])": (ValueError, "A103"),
    "g.get_internal_id(7)": (ValueError, "A103"),
    "r.copy(o[0:1], i[0:1])": (RuntimeError, "A102"),
    "r.copy(o[0:1], i[0:1], tb=-1)": (RuntimeError, "A102"),
    "r.copy(o[0:1], i[0:1], tb=10**6)": (RuntimeError, "A102"),
    "r.copy(o[0:1], i[0:1], tb=1.0)": (TypeError, "A103"),
    "r.copy(o[0:1], i[0:1], tb=0, tbs=1)": (TypeError, "A103"),
    "r.copy(o[0:1], i[0:1], tb=0, sync='both')": (TypeError, "A103"),
    "r.copy(o[0:1], i[0:2], tb=0)": (RuntimeError, "A102"),
    "r.copy(o[0:1], far[0:1], tb=0)": (RuntimeError, "A102"),
    "r.copy(o, i, tb=0)": (TypeError, "A103"),
    "r.copy(s[0:1], s[1:2], tb=0, from_packet=True, to_packet=True)": (RuntimeError, "A103"),
    "r.copy_packets(o[0:1], i[0:1], tb=0)": (RuntimeError, "A102"),
    "r.unpack_packets(o[0:1], i[0:1], tb=0)": (RuntimeError, "A102"),
    "r.reduce(i[0:1], [], tb=0)": (RuntimeError, "A102"),
    "r.reduce(i[0:1], [i[0:2]], tb=0)": (RuntimeError, "A102"),
    "r.reduce(i[0:1], [i[1:2]], tb=0, packet=True)": (RuntimeError, "A102"),
    "r.reduce(i[0:1], 3, tb=0)": (TypeError, "A103"),
    "r.reduce(i[0:1], [3], tb=0)": (TypeError, "A103"),
    "r.reduce(i[0:1], [i[1:2]], tb=0, reduce_op='product')": (TypeError, "A103"),
    "r.barrier([])": (RuntimeError, "A102"),
    "r.barrier([0, 0])": (RuntimeError, "A102"),
    "m.signal(tb=0, data_sync='never')": (TypeError, "A103"),
    "m.put(i[0:1], far[0:1], tb=0)": (RuntimeError, "A102"),
    "m.get(i[0:2], far[0:1], tb=0)": (RuntimeError, "A102"),
    "m.put_packets(far[0:1], i[0:1], tb=0)": (RuntimeError, "A102"),
    "m.read_put_packets(Buffer(1, 1)[0:1], i[0:1], tb=0)": (RuntimeError, "A102"),
    "m.reduce(i[0:1], [i[1:2]], tb=0)": (RuntimeError, "A102"),
    "w.at_rank(2)": (RuntimeError, "A103"),
    "w.at_rank(0).reduce(7, 2, i[0:2], tb=0)": (RuntimeError, "A102"),
    "w.at_rank(0).reduce(-1, 1, i[0:1], tb=0)": (RuntimeError, "A102"),
    "w.at_rank(0).broadcast_packets(s[0:1], 0, 1, tb=0)": (RuntimeError, "A102"),
    "w.group_load_reduce(0, size=1, op='sum', tb=1)": (RuntimeError, "A102"),
    "w.group_store(0, size=1, tb=1)": (RuntimeError, "A102"),
    "Channel(1, 0, ChannelType.switch)": (ValueError, "A103"),
    "Rank.Semaphore(rank=0)": (TypeError, "A103"),
    "LoopIterationContext(0, 1).__enter__()": (RuntimeError, "A102"),
    "LoopIterationContext(1, 1).__enter__(); LoopIterationContext(1, 1).__enter__()": (RuntimeError, "A102"),
    "CollectiveProgram('q', AllReduce(2, 1, True), 2).__enter__()": (RuntimeError, "A101"),
    "MSCCLPPProgram('q', AllReduce(2, 1, True), 2, 4)": (TypeError, "A106"),
    "CollectiveProgram('q', AllReduce(2, 1, True), 2, replication_policy=ReplicationPolicy.none)": (TypeError, "A103"),
    "CollectiveProgram('q', AllReduce(2, 1, True), 3)": (ValueError, "A103"),
    "CollectiveProgram('q', 'allreduce', 3)": (TypeError, "A103"),
    "CollectiveProgram('q', AllReduce(2, 1, True), 2, protocol='LL128')": (AssertionError, "A103"),
    "CollectiveProgram('q', AllReduce(2, 1, True), 2, instances=0)": (ValueError, "A103"),
    "CollectiveProgram('q', AllReduce(2, 1, True), 2, max_message_size=2**65)": (TypeError, "A103"),
    "CollectiveProgram('q', Collective(2, 1, True), 2)": (RuntimeError, "A103"),
}


@pytest.mark.parametrize("statement", REFUSED)
def test_a_statement_is_refused_at_its_line(statement: str) -> None:
    kind, code = REFUSED[statement]
    with pytest.raises(ProgramError) as caught:
        lower(write(statement))
    assert isinstance(caught.value, kind)
    assert (caught.value.code, caught.value.exit_code) == (f"AHBM-{code}", 16)
    assert caught.value.sites[0].origin == "statement.py:4"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.findings) == (type(caught.value), caught.value.findings)


@pytest.mark.parametrize("statement", ["Rank(0)", "MemoryChannel(1, 0)", "Buffer(0, 1)", "Semaphore(0, 1)", "JSON()"])
def test_outside_of_a_program_there_are_no_statements(statement: str) -> None:
    with pytest.raises(RuntimeError, match="No Program in context") as caught:
        eval(statement, dict(vars(mscclpp)))
    assert isinstance(caught.value, AhbmError)
    assert caught.value.code == "AHBM-A101"


def test_a_channel_belongs_to_its_program() -> None:
    kept: list[Any] = []
    lower(lambda: kept.append(MemoryChannel(1, 0)))
    with pytest.raises(RuntimeError, match="No Program in context"):
        lower(lambda: kept[0].signal(tb=0))


def test_signals_and_waits_that_differ_in_number_name_both_sides() -> None:
    def unpaired() -> None:
        out, back, port = MemoryChannel(1, 0), MemoryChannel(0, 1), PortChannel(1, 0)
        for _ in range(3):
            out.signal(tb=0)
        back.wait(tb=0)
        port.put_with_signal(Rank(1).get_input_buffer()[0:1], Rank(0).get_input_buffer()[0:1], tb=0)

    with pytest.raises(RuntimeError) as caught:
        lower(unpaired)
    assert isinstance(caught.value, AhbmError)
    first = inspect.getsourcelines(unpaired)[1]
    assert [finding.code for finding in caught.value.findings] == ["AHBM-A104"] * 2
    memory, port = caught.value.findings
    assert "3 times" in memory.message and "memory" in memory.message and "port" in port.message
    assert [site.origin for site in memory.sites] == [
        f"test_mscclpp_refusals.py:{first + 3}",
        f"test_mscclpp_refusals.py:{first + 4}",
    ]
    assert [site.label for site in port.sites] == ["rank 0 signals rank 1", "rank 1 waits for rank 0: never"]


@pytest.mark.parametrize("module", ["buffer", "types"])
def test_programs_with_chunk_references_are_refused_by_version(module: str, tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_text(f"from mscclpp.language import *\nfrom mscclpp.language.{module} import Buffer\n")
    with pytest.raises(ProgramError, match=r"v0\.7\.0") as caught:
        run_script(script)
    assert caught.value.code == "AHBM-A106"
    assert lines_in(caught.value, script) == [2]


def test_a_mistake_ends_the_program_and_the_next_one_begins() -> None:
    with pytest.raises(ZeroDivisionError):
        lower(lambda: 1 // 0)
    assert lower(lambda: Rank(0).barrier([0])).names() == ["nop"]
