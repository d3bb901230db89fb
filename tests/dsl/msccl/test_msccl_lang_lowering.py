"""MSCCLang: what every stage of the lowering makes of a program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ahbm._core import read_plan
from ahbm.dsl.msccl import XML, Buffer, Check, MSCCLProgram, ThreadblockPolicy, chunk
from ahbm.dsl.msccl.collectives import AllGather, AllReduce, AllToAll, Broadcast, Collective, ReduceScatter, SendRecv
from ahbm.dsl.msccl.programs.allreduce_a100_ring import allreduce_ring
from ahbm.dsl.msccl.routines import allgather_ring_inplace, allreduce_ring_inplace
from ahbm.dsl.msccl.topologies import fully_connected
from ahbm.dsl.written import Written, collected

IN, OUT = Buffer.input, Buffer.output
MANUAL = ThreadblockPolicy.manual


def lowered(say: Callable[[], object], collective: Collective, *, quirks: bool = False, **options: object) -> Written:
    """The program that `say` says."""
    options.setdefault("instances", 1)
    with collected(quirks=quirks) as found:
        program = MSCCLProgram("p", fully_connected(collective.num_ranks), collective, **options)  # type: ignore[arg-type]
        with program:
            say()
            program.generate_xml()
    return found[0]


def steps(written: Written, rank: int) -> list[str]:
    """Thread blocks of a rank: `send recv channel: steps`, a step being its type, slots and what it waits for."""
    gpu = ET.fromstring(written.text)[rank]
    blocks = []
    for block in gpu:
        words = []
        for step in block:
            wait = "" if step.get("depid") == "-1" else f"<{step.get('depid')}.{step.get('deps')}"
            at = "".join(step.get(key, "") for key in ("srcbuf", "srcoff", "dstbuf", "dstoff"))
            words.append(f"{step.get('type')}{'' if step.get('type') == 'nop' else ' ' + at}{wait}")
        blocks.append(f"{block.get('send')} {block.get('recv')} {block.get('chan')}: {', '.join(words)}")
    return blocks


def types(written: Written) -> list[str]:
    """The types of all steps, by rank."""
    return [" ".join(str(step.get("type")) for step in gpu.iter("step")) for gpu in ET.fromstring(written.text)]


def verdict(written: Written) -> str:
    return written.plan.check()[0]


def test_the_text_is_the_compilers() -> None:
    def say() -> None:
        chunk(1, IN, 0).reduce(chunk(0, IN, 0)).copy(0, IN, 0)

    assert lowered(say, AllReduce(2, 1, True)).text == textwrap.dedent("""\
        <algo name="p" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="1" \
outofplace="0" minBytes="0" maxBytes="0">
          <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">
            <tb id="0" send="-1" recv="1" chan="0">
              <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="1" deps="0" hasdep="0"/>
            </tb>
            <tb id="1" send="1" recv="-1" chan="0">
              <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
            </tb>
          </gpu>
          <gpu id="1" i_chunks="1" o_chunks="0" s_chunks="0">
            <tb id="0" send="0" recv="0" chan="0">
              <step s="0" type="rrcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" \
hasdep="0"/>
            </tb>
          </gpu>
        </algo>""")


@pytest.mark.filterwarnings("ignore::ahbm.errors.ProgramWarning")
@pytest.mark.parametrize("name", ["reduce_scatter", "all_reduce"])
def test_the_first_compilers_header(name: str) -> None:
    collective = ReduceScatter(2, 1, True) if name == "reduce_scatter" else AllReduce(2, 2, True)
    with MSCCLProgram("p", fully_connected(2), collective, 1) as program:
        chunk(0, IN, 0).reduce(chunk(1, IN, 0))
        chunk(1, IN, 1).reduce(chunk(0, IN, 1))
        header = program.generate_xml(msccl_tools="microsoft").split("\n")[0]
    assert header == (
        '<algo name="p" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" '
        f'coll="{"reduce_scatter" if name == "reduce_scatter" else "allreduce"}" inplace="1">'
    )


def test_a_ring_reduces_and_forwards() -> None:
    def say() -> None:
        allreduce_ring_inplace(4)

    found = lowered(say, AllReduce(4, 4, True))
    assert verdict(found) == "correct"
    assert sorted(types(found)[0].split()) == ["r", "rcs", "rcs", "rrcs", "rrs", "rrs", "s"]
    assert not found.notes


def test_routines_and_programs_are_the_collectives_that_they_say() -> None:
    assert verdict(lowered(lambda: allgather_ring_inplace(4), AllGather(4, 1, True))) == "correct"
    ring = lowered(lambda: allreduce_ring(4, 2), AllReduce(4, 4, True), threadblock_policy=MANUAL)
    assert verdict(ring) == "correct"


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        # A sum that nothing overwrites is stored; one that a receive overwrites next is not.
        (lambda c: c.copy(2, IN, 0), "rrcs"),
        (lambda c: (c.copy(2, IN, 0), chunk(2, IN, 0).copy(1, IN, 0)), "rrs r"),
        # Another index, another count, two readers: two steps.
        (lambda c: c.copy(2, IN, 1), "rrc s"),
        (lambda c: (c.copy(2, IN, 0), c.copy(0, IN, 1)), "rrc s s"),
        (lambda c: c.copy(2, IN, 0, sendtb=4), "rrc s"),
    ],
)
def test_sums_are_fused(then: Callable[[object], object], expected: str) -> None:
    def say() -> None:
        then(chunk(1, IN, 0).reduce(chunk(0, IN, 0)))

    found = lowered(say, AllReduce(3, 2, True))
    assert sorted(types(found)[1].split()) == sorted(expected.split())


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (lambda c: c.copy(2, IN, 0), "rcs"),
        # The first send of the chunk is the one.
        (lambda c: (c.copy(2, IN, 0), c.copy(3, IN, 0)), "rcs s"),
        (lambda c: (c.copy(2, IN, 1), c.copy(3, IN, 0)), "s rcs"),
        (lambda c: c.split(2)[0].copy(2, IN, 0), "r s"),
        (lambda c: c.copy(2, IN, 0, recvtb=7), "rcs"),
        (lambda c: c.copy(2, IN, 0, sendtb=7), "r s"),
    ],
)
def test_copies_are_forwarded(then: Callable[[object], object], expected: str) -> None:
    def say() -> None:
        then(chunk(0, IN, 0, 2).copy(1, IN, 0))

    found = lowered(say, AllReduce(4, 4, True))
    assert sorted(types(found)[1].split()) == sorted(expected.split())


def test_without_fusion_every_end_is_a_step() -> None:
    found = lowered(lambda: allreduce_ring_inplace(3), AllReduce(3, 3, True), instr_fusion=False)
    assert {word for line in types(found) for word in line.split()} == {"s", "r", "rrc"}
    assert verdict(found) == "correct"


def test_steps_go_by_distance_from_the_start_then_to_the_end_then_by_index() -> None:
    def say() -> None:
        chunk(0, IN, 3).copy(1, OUT, 0)
        chunk(0, IN, 2).copy(1, OUT, 2)
        chunk(0, IN, 1).copy(1, OUT, 1)
        # The longest way goes first.
        chunk(0, IN, 0).copy(1, OUT, 3).copy(2, OUT, 5)

    found = lowered(say, AllReduce(3, 6, False))
    assert steps(found, 0) == ["1 -1 0: s i0o3, s i3o0, s i1o1, s i2o2"]


def test_flows_over_one_hop_take_channels_of_their_own() -> None:
    def say() -> None:
        # Two chains share the hop 0 -> 1; the third has the hops of the first.
        chunk(0, IN, 0).copy(1, IN, 0).copy(2, IN, 0)
        chunk(0, IN, 1).copy(1, IN, 1).copy(3, IN, 1)
        chunk(0, IN, 2).copy(1, IN, 2).copy(2, IN, 2)

    found = lowered(say, AllReduce(4, 4, True))
    assert steps(found, 1) == ["2 0 0: rcs i0i0, rcs i2i2", "3 0 1: rcs i1i1"]


def test_a_flow_keeps_the_channel_of_its_statements() -> None:
    def say() -> None:
        chunk(0, IN, 0).copy(1, IN, 0, ch=5).copy(2, IN, 0, ch=5)
        chunk(0, IN, 1).copy(1, IN, 1).copy(3, IN, 1)

    found = lowered(say, AllReduce(4, 2, True))
    assert [line.split(":")[0] for line in steps(found, 1)] == ["2 0 5", "3 0 0"]
    assert 'nchannels="6"' in found.text


def test_a_receive_out_of_order_moves_to_the_next_channel() -> None:
    def say() -> None:
        # Sent second, received first: what it overwrites is free at once.
        c = chunk(0, IN, 0)
        chunk(1, IN, 1).copy(1, OUT, 0).copy(2, IN, 1)
        c.copy(1, OUT, 0)
        c.copy(1, OUT, 1)

    found = lowered(say, AllReduce(3, 2, False))
    assert verdict(found) != "deadlock"
    assert [line.split(":")[0] for line in steps(found, 1)] == ["-1 -1 0", "-1 0 0", "-1 0 1", "2 -1 0"]


def test_local_steps_join_the_block_of_their_channel_that_is_behind() -> None:
    def say() -> None:
        chunk(1, IN, 0).copy(0, OUT, 0)
        chunk(2, IN, 0).copy(0, OUT, 1)
        chunk(0, IN, 0).copy(0, OUT, 2)

    assert steps(lowered(say, AllReduce(3, 3, False)), 0) == ["-1 -1 0: cpy i0o2", "-1 1 0: r i0o0", "-1 2 0: r i0o1"]


def test_manual_blocks_are_the_programs() -> None:
    def say() -> None:
        chunk(0, IN, 0).copy(1, OUT, 0, sendtb=3, recvtb=1, ch=2)
        chunk(0, IN, 1).copy(1, OUT, 1, sendtb=3, recvtb=1)
        chunk(0, IN, 2).copy(1, OUT, 2, sendtb=0, recvtb=0, ch=1)

    found = lowered(say, AllReduce(2, 3, False), threadblock_policy=MANUAL)
    assert steps(found, 0) == ["1 -1 1: s i2o2", "1 -1 2: s i0o0, s i1o1"]


def test_dependencies_are_in_order_and_all_but_one_wait_before_the_step() -> None:
    def say() -> None:
        for peer in (3, 1, 2):
            chunk(peer, IN, 0).copy(0, "s", peer - 1, ch=0)
        chunk(0, "s", 0, 3).copy(4, OUT, 0)

    found = lowered(say, AllReduce(5, 3, False))
    assert steps(found, 0)[3] == "4 -1 0: nop<1.0, nop<2.0, s s0o0<0.0"
    assert [line.count("hasdep") for line in found.text.split("<gpu")[1].split("<tb")] == [0, 1, 1, 1, 3]


@pytest.mark.parametrize("gathered", [False, True])
def test_reductions_may_wait_together(gathered: bool) -> None:
    def say() -> None:
        for peer in (1, 2):
            chunk(peer, IN, 0).copy(0, "s", peer - 1, recvtb=peer, sendtb=0)
        for slot in (0, 1):
            chunk(0, IN, 0).reduce(chunk(0, "s", slot), sendtb=0)

    found = lowered(say, AllReduce(3, 1, True), threadblock_policy=MANUAL, dependence_nop=gathered)
    expected = "nop<2.0, re s0i0<1.0, re s1i0" if gathered else "re s0i0<1.0, re s1i0<2.0"
    assert steps(found, 0)[0].removeprefix("-1 -1 0: ") == expected


@pytest.mark.parametrize("interleaved", [False, True])
def test_instances_share_the_buffers(interleaved: bool) -> None:
    def say() -> None:
        for rank in (0, 1):
            for index in (0, 1):
                chunk(rank, IN, index).copy(1 - rank, "s", index)
        for rank in (0, 1):
            for index in (0, 1):
                chunk(rank, IN, index).reduce(chunk(rank, "s", index))

    found = lowered(say, AllReduce(2, 2, True), instances=3, interleaved_replication=interleaved)
    assert verdict(found) == "correct"
    sent = [word for line in steps(found, 0) for word in line.replace(",", ":").split(": ") if word.startswith("s ")]
    assert sent == (
        ["s i0s0", "s i3s1", "s i1s2", "s i4s3", "s i2s4", "s i5s5"]
        if interleaved
        else ["s i0s0", "s i1s1", "s i2s2", "s i3s3", "s i4s4", "s i5s5"]
    )


@pytest.mark.parametrize(
    ("collective", "say"),
    [
        (AllToAll(3, 1, False), lambda: [chunk(r, IN, d).copy(d, OUT, r) for r in range(3) for d in range(3)]),
        (AllGather(3, 2, False), lambda: [chunk(r, IN, 0, 2).copy(d, OUT, 2 * r) for r in range(3) for d in range(3)]),
        (Broadcast(3, 2, False, 1), lambda: [chunk(1, IN, 0, 2).copy(d, OUT, 0) for d in range(3)]),
        (SendRecv(2, 2, False), lambda: [chunk(r, IN, 0, 2).copy(1 - r, OUT, 0) for r in range(2)]),
        (
            ReduceScatter(3, 1, True),
            lambda: [chunk(d, IN, d).reduce(chunk(r, IN, d)) for d in range(3) for r in range(3) if r != d],
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Collective) else "",
)
@pytest.mark.parametrize("instances", [1, 2])
def test_collectives_are_what_they_promise(
    collective: Collective, say: Callable[[], object], instances: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def checked() -> None:
        say()
        assert Check()

    found = lowered(checked, collective, instances=instances)
    assert (verdict(found), found.notes, capsys.readouterr().out) == ("correct", (), "")


def test_findings_name_the_statements() -> None:
    def say() -> None:
        chunk(0, IN, 0).copy(1, OUT, 0)

    line = say.__code__.co_firstlineno + 1
    sites = [
        site["origin"] for finding in lowered(say, AllReduce(2, 1, False)).plan.check()[2] for site in finding["sites"]
    ]
    assert f"test_msccl_lang_lowering.py:{line}" in sites


PROGRAM = """
from ahbm.dsl.msccl import *
from ahbm.dsl.msccl.collectives import AllReduce
from ahbm.dsl.msccl.topologies import fully_connected
with MSCCLProgram("p", fully_connected(6), AllReduce(6, 6, True), 2, interleaved_replication=False) as program:
    for r in range(6):
        for p in range(6):
            if p != r:
                chunk(p, Buffer.input, r).copy(r, ("from", p), 0)
    for r in range(6):
        for p in range(6):
            if p != r:
                chunk(r, Buffer.input, r).reduce(chunk(r, ("from", p), 0))
        for p in range(6):
            if p != r:
                chunk(r, Buffer.input, r).copy(p, Buffer.input, r)
    XML()
    XML()
"""


def test_the_same_bytes_twice_with_any_hash_seed_in_any_process() -> None:
    texts = set()
    for seed in ("0", "1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
        first, second = done.stdout.split("</algo>")[:2]
        assert first.strip() == second.strip()
        texts.add(done.stdout)
    assert len(texts) == 1


def test_a_chain_of_a_hundred_thousand_operations() -> None:
    def say() -> None:
        c = chunk(0, IN, 0)
        for hop in range(50_000):
            c = c.copy((hop + 1) % 4, "s", 0)

    found = lowered(say, AllReduce(4, 1, True))
    assert sum(line.count("rcs") for line in types(found)) >= 49_990


def test_xml_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with collected() as found, MSCCLProgram("a & b", fully_connected(2), AllReduce(2, 1, True), 1):
        chunk(1, IN, 0).reduce(chunk(0, IN, 0)).copy(0, IN, 0)
        XML()
    assert capsys.readouterr().out == found[0].text + "\n"
    assert (found[0].name, found[0].language) == ("a & b", "msccl")
    assert found[0].text.startswith('<algo name="a &amp; b"')


@pytest.mark.parametrize(
    ("count", "instances", "microsoft", "codes"),
    [
        (2, 1, False, []),
        (2, 1, True, ["AHBM-F150"]),
        (72, 1, False, ["AHBM-F157"]),
        (2, 33, False, ["AHBM-F152"]),
        (65, 1, False, ["AHBM-F151"]),
    ],
)
def test_what_an_executor_would_not_load_is_told_at_the_statements(
    tmp_path: Path, count: int, instances: int, microsoft: bool, codes: list[str]
) -> None:
    def say() -> None:
        if count == 72:
            chunk(0, IN, 0, count).copy(1, IN, 0)
        else:
            for index in range(count):
                chunk(0, IN, index).copy(1, IN, index)

    with collected() as found:
        with MSCCLProgram("p", fully_connected(2), AllReduce(2, count, True), instances) as program:
            say()
        program.generate_xml(msccl_tools="microsoft" if microsoft else "azure")
    warnings = found[0].plan.warnings
    assert [warning["code"] for warning in warnings] == codes
    file = tmp_path / "plan.xml"
    file.write_text(found[0].text, encoding="utf-8")
    for warning, other in zip(warnings, read_plan(file).warnings, strict=True):
        assert (warning["message"], warning["hint"]) == (other["message"], other["hint"])
        (site,) = warning["sites"]
        assert re.fullmatch(r"test_msccl_lang_lowering\.py:[0-9]+( \(index=[0-9]+\))?", site["origin"])
    if count >= 65:
        line = say.__code__.co_firstlineno + (2 if count == 72 else 5)
        assert warnings[0]["sites"][0]["origin"].partition(" (")[0].endswith(f":{line}")
