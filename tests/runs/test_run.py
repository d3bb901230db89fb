"""`ahbm.run` and the emulator below it: sizes, bandwidths, caches, groups, and what is said when data is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
from ahbm import DPPolicy, Report
from ahbm.base.collectives import BITWISE, COLLECTIVES
from ahbm.base.elements import ELEMENTS, Element
from ahbm.base.request import Request
from ahbm.check import reference
from ahbm.check.reference import Reference, inputs
from ahbm.config import topology
from ahbm.core.buffers import requested
from ahbm.core.emulator import Emulator
from ahbm.errors import BudgetError, ConfigError, DataError, Finding, LintError, Site, UnsupportedError, described
from ahbm.runs.report import bandwidths

SMALL: dict[str, object] = {"system.sips.count": 4, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2}

RING = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    CALLS.append(n_elem)
    return (n_elem, cube_w * cube_h, world_size, op, dtype)

CALLS = []

def kernel(t_ptr, n_elem, cubes, n_sips, op, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    cube = tl.program_id(axis=1)
    n = n_sips * cubes
    me = sip_rank * cubes + cube
    right, left = (f"sip{peer // cubes}.cube{peer % cubes}" for peer in ((me + 1) % n, (me - 1) % n))
    tile = t_ptr + cube * n_elem * int(dtype[1:]) // 8
    acc = current = tl.load(tile, shape=(n_elem,), dtype=dtype)
    for step in range(n - 1):
        tl.send(dir=right, src=current)
        current = tl.recv(dir=left, shape=(n_elem,), dtype=dtype)
        acc = tl.combine(acc, current, op)  # COMBINE
    tl.store(tile, acc)
"""


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    return Emulator.load(overrides=SMALL)


def test_a_report_says_everything_and_survives_json(emulator: Emulator) -> None:
    report = ahbm.run("all_reduce", "ring_allreduce", bytes_per_rank=1024, dtype="f32", emulator=emulator)
    assert (report.collective, report.algorithm, report.topology) == ("all_reduce", "ring_allreduce", "ring_1d")
    assert (report.ranks, report.bytes, report.count, report.root, report.wrong) == (4, 1024, 256, -1, 0)
    assert report.latency_ns > 0
    assert report.messages > 0
    assert report.algbw_gbs == pytest.approx(1024 / report.latency_ns)
    assert report.busbw_gbs == pytest.approx(1.5 * report.algbw_gbs)
    assert Report.from_json(json.dumps(report.to_json())) == report
    assert ahbm.run("all_reduce", "ring_allreduce", bytes_per_rank=1024, dtype="f32", overrides=SMALL) == report


@pytest.mark.parametrize(("collective", "arrays"), [("all_reduce", 3), ("all_gather", 2)])
def test_the_numbers_of_the_reference_count_as_memory(
    collective: str, arrays: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 4 ranks with inputs, copies and buffers of 2 bytes an element, and arrays of f64.
    least = 512 * (3 * 4 * 2 + arrays * 8)
    monkeypatch.setattr(reference, "memory_bytes", lambda: least)
    ahbm.run(collective, bytes_per_rank=1024, emulator=emulator)
    monkeypatch.setattr(reference, "memory_bytes", lambda: least - 1)
    with pytest.raises(BudgetError, match=f"at least {least} bytes, this process may have {least - 1}") as refused:
        ahbm.run(collective, bytes_per_rank=1024, emulator=emulator)
    assert refused.value.code == "AHBM-B301"


def test_memory_that_runs_out_is_an_error_of_ahbm(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    def combine(self: Reference) -> None:
        np.empty(1 << 60, np.uint8)

    monkeypatch.setattr(Reference, "_combine", combine)
    with pytest.raises(BudgetError, match=r"unable to allocate 1.00 EiB .* this process may have \d+ bytes") as refused:
        ahbm.run("all_reduce", bytes_per_rank=1024, emulator=emulator)
    assert refused.value.code == "AHBM-B301" and isinstance(refused.value.__cause__, MemoryError)


def test_memory_is_of_the_arrays_and_the_slots_of_a_pe() -> None:
    for slots in (1, 2, 4):
        report = ahbm.run(
            "all_reduce",
            "ring_allreduce",
            "npu_ring_8",
            bytes_per_rank=8192,
            overrides={"defaults.n_slots": slots},
            data=False,
        )
        assert report.memory_bytes == 8192 + slots * 1024


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(
    ("dtype", "mode"), [("bf16", "integers"), ("i32", "integers"), ("f16", "random"), ("f8e4m3", "integers")]
)
def test_every_collective_is_right(emulator: Emulator, collective: str, dtype: str, mode: str) -> None:
    root = 3 if COLLECTIVES[collective].rooted else 0
    report = ahbm.run(
        collective, bytes_per_rank=200, dtype=dtype, mode=mode, root=root, dst=2, emulator=emulator, check=True
    )
    assert report.wrong == 0


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2", "i8", "u64"])
def test_operators_on_device_tensors(emulator: Emulator, op: str, dtype: str) -> None:
    report = ahbm.run(bytes_per_pe=64, dtype=dtype, op=op, placement=DPPolicy(), emulator=emulator, check=True)
    assert (report.ranks, report.bytes, report.wrong) == (16, 64, 0)
    one = ahbm.run(bytes_per_pe=64, dtype=dtype, op=op, placement=DPPolicy(num_cubes=1), emulator=emulator)
    assert (one.ranks, one.wrong) == (4, 0)


@pytest.mark.parametrize("op", ["band", "bor", "bxor"])
def test_operators_on_bits(emulator: Emulator, op: str) -> None:
    for algorithm in ("lrab_hierarchical_allreduce", "tree_allreduce"):
        assert ahbm.run(algorithm=algorithm, dtype="i16", op=op, emulator=emulator, check=True).wrong == 0
    assert ahbm.run("reduce_scatter", dtype="u8", op=op, emulator=emulator, check=True).wrong == 0
    with pytest.raises(UnsupportedError, match=f"{op} is not defined on f16"):
        ahbm.run(op=op, emulator=emulator)


def test_sizes(emulator: Emulator) -> None:
    def count(**sizes: Any) -> tuple[int, int]:
        report = ahbm.run(data=False, emulator=emulator, **sizes)
        assert report.wrong is None
        return report.count, report.bytes

    assert count(bytes_per_rank=100) == (50, 100)
    assert count(bytes_per_pe=100) == (200, 400)
    assert count() == (32, 64)
    assert count(bytes_per_rank=0) == (0, 0)
    assert count(bytes_per_rank=100, placement=DPPolicy()) == (12, 24)
    assert count(collective="all_gather", bytes_per_rank=100) == (12, 96)
    assert count(collective="all_gather", bytes_per_rank=0) == (0, 0)
    with pytest.raises(ConfigError, match="AHBM-C125"):
        count(bytes_per_rank=-2)
    with pytest.raises(ConfigError, match="AHBM-C128"):
        count(bytes_per_rank=4, bytes_per_pe=4)


def test_bus_bandwidth_factors() -> None:
    for name, factor in {
        "all_reduce": 1.5,
        "all_gather": 0.75,
        "all_to_all": 0.75,
        "broadcast": 1,
        "send_recv": 1,
    }.items():
        assert bandwidths(name, 4, 1000, 1000) == (1000.0, 1000.0 * factor)


def test_data_or_not_is_the_same_time(emulator: Emulator) -> None:
    fresh = Emulator.load(overrides=SMALL)
    timed = ahbm.run(bytes_per_rank=4096, data=False, emulator=fresh)
    checked = ahbm.run(bytes_per_rank=4096, emulator=fresh)
    assert (timed.latency_ns, timed.timeline_hash) == (checked.latency_ns, checked.timeline_hash)


def test_a_repeated_call_captures_and_simulates_nothing() -> None:
    Path("mine.py").write_text(RING)
    emulator = Emulator.load(overrides=SMALL)
    buffers = [np.full(64, rank, np.float32) for rank in range(4)]
    mine = requested("all_reduce", buffers)
    first = emulator.perform(mine, buffers, "mine.py")
    second = emulator.perform(mine, buffers, "mine.py")
    assert first.program is second.program
    assert first.timeline(record=True) is second.timeline(record=True)
    assert all((buffer == 24).all() for buffer in buffers)
    calls = emulator.algorithm("mine.py").kernel.__globals__["CALLS"]
    assert set(calls) == {16}
    known = len(calls)
    emulator.perform(mine, buffers, "mine.py")
    assert len(calls) == known
    Path("mine.py").write_text(RING.replace("CALLS", "NEW_CALLS"))
    assert emulator.perform(mine, buffers, "mine.py").program is first.program
    afresh = Emulator.load(overrides=SMALL)
    afresh.perform(mine, buffers, "mine.py")
    assert "NEW_CALLS" in afresh.algorithm("mine.py").kernel.__globals__


def test_groups_and_roots(emulator: Emulator) -> None:
    buffers = [np.arange(5, dtype=np.int64) + 10 * rank for rank in range(3)]
    emulator.perform(requested("broadcast", buffers, ranks=(3, 0, 2), root=1), buffers, "ring_broadcast")
    assert all((buffer == np.arange(5) + 10).all() for buffer in buffers)
    for ranks, root in ((None, 3), ((0, 1, 4), 0), ((0, 1, 1), 0)):
        with pytest.raises(ConfigError, match="AHBM-C120"):
            emulator.perform(requested("broadcast", buffers, ranks=ranks, root=root), buffers, "ring_broadcast")


def test_legacy_mode_ranks_are_pes() -> None:
    overrides = {**SMALL, "defaults.world_size": 9}
    report = ahbm.run(algorithm="ring_allreduce", bytes_per_rank=100, overrides=overrides, check=True)
    assert (report.ranks, report.wrong) == (9, 0)
    grid = {**overrides, "system.sips.topology": "torus_2d"}
    assert ahbm.run(bytes_per_rank=100, overrides=grid, check=True).ranks == 9
    with pytest.raises(ConfigError, match="AHBM-C121"):
        ahbm.run(overrides={**SMALL, "defaults.world_size": 1000})


def test_what_is_unfit_is_refused(emulator: Emulator) -> None:
    good = [np.zeros(8, np.float32) for _ in range(4)]
    frozen = np.zeros(8, np.float32)
    frozen.flags.writeable = False
    for odd in (np.zeros(9, np.float32), np.zeros(8, np.float64), np.zeros(16, np.float32)[::2], frozen):
        with pytest.raises(DataError, match="group rank 3"):
            emulator.perform(requested("all_reduce", good), [*good[:3], odd], "ring_allreduce")
    with pytest.raises(UnsupportedError, match="complex64"):
        requested("all_reduce", [np.zeros(8, np.complex64)] * 4)
    with pytest.raises(UnsupportedError, match="all_gather"):
        emulator.compile(
            requested("all_gather", [np.zeros((4, 8), np.float32)] * 4, placement=DPPolicy()), "ring_all_gather"
        )
    with pytest.raises(ConfigError, match="did you mean all_reduce"):
        ahbm.run("allreduce")
    with pytest.raises(ConfigError, match="AHBM-C122"):
        ahbm.run(overrides={**SMALL, "buffer_kind": "dram"})
    unfit: list[dict[str, Any]] = [{"cube": "diagonal"}, {"num_pes": 2}, {"cube": "replicate"}]
    for policy in unfit:
        with pytest.raises(UnsupportedError, match="AHBM-U120"):
            DPPolicy(**policy)
    with pytest.raises(UnsupportedError, match="AHBM-U121"):
        DPPolicy(num_cubes=5).cubes(4)
    with pytest.raises(UnsupportedError, match="they make no mesh"):
        ahbm.run(placement=DPPolicy(num_cubes=6))


def skip(condition: str) -> Callable[[str], str]:
    return lambda text: text.replace("acc = tl.combine", f"if {condition}:\n            acc = tl.combine")


@pytest.mark.parametrize(
    ("op", "change", "told"),
    [
        ("sum", skip("not (sip_rank == 3 and step == 1)"), "rank 3, elements [0,16): rank 1 missing"),
        ("max", skip("not (sip_rank == 3 and step == 1)"), "rank 3, elements [0,16): rank 1 missing"),
        ("min", skip("not (sip_rank == 0 and step == 0)"), "rank 0, elements [0,16): rank 3 missing"),
        (
            "sum",
            lambda text: text.replace("# COMBINE", "\n        if sip_rank == 2: acc = tl.combine(acc, current, op)"),
            "rank 2, elements [0,16): rank 0 twice, rank 1 twice, rank 3 twice",
        ),
        (
            "prod",
            lambda text: text.replace("# COMBINE", "\n        if sip_rank == 1: acc = tl.combine(acc, current, op)"),
            "rank 1, elements [0,16): rank 0 twice, rank 2 twice, rank 3 twice",
        ),
        ("sum", lambda text: text.replace("tl.store(tile, acc)", "tl.store(tile, acc + 1)"), "element 0"),
    ],
)
def test_a_wrong_result_names_the_contributions(op: str, change: Callable[[str], str], told: str) -> None:
    Path("mine.py").write_text(change(RING))
    assert ahbm.run(algorithm="mine.py", bytes_per_rank=32, dtype="i16", op=op, overrides=SMALL).wrong
    with pytest.raises(DataError) as caught:
        ahbm.run(algorithm="mine.py", bytes_per_rank=32, dtype="i16", op=op, overrides=SMALL, check=True)
    assert caught.value.code == "AHBM-V301"
    assert told in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg", "band", "bor", "bxor"])
def test_exact_data_are_exact_in_any_order(op: str, name: str) -> None:
    for parties in (1, 7, 300, *((3000,) if name == "f16" else ())):
        for mode in ("integers", "wide"):
            check_exact(op, name, parties, mode)


def check_exact(op: str, name: str, parties: int, mode: str) -> None:
    task = Request("all_reduce", range(parties), 5, name, op)
    if task.element.is_float and op in BITWISE:
        return
    given = inputs(task, mode, 1)
    forward, backward = Reference(task, given, exact=True), Reference(task, given[::-1], exact=True)
    stored = task.element.encode(forward.expected(0))
    assert not len(backward.wrong(0, stored))
    if mode == "integers" and op in ("sum", "avg") and (task.element.is_float or op == "avg"):
        magnitude = sum(np.abs(task.element.decode(array).astype(np.float64)) for array in given)
        assert (magnitude <= task.element.exact).all()


@pytest.mark.parametrize("collective", ["all_gather", "all_to_all", "broadcast"])
def test_what_is_copied_is_compared_as_it_is_stored(collective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of all ranks for each element of each rank would be a cube of the ranks."""
    task = Request(collective, range(64), 3, "f16")
    given = inputs(task, "integers", 0)
    right = [reference.Reference(task, given, exact=True)._moved(rank, slice(0, task.size)) for rank in range(64)]
    decoded: list[int] = []
    decode = Element.decode
    monkeypatch.setattr(Element, "decode", lambda self, stored: decoded.append(stored.size) or decode(self, stored))
    found = Reference(task, given, exact=True)
    assert not any(len(found.wrong(rank, result)) for rank, result in enumerate(right))
    assert not decoded
    right[5] = right[5].copy()
    right[5][-1] += 1
    assert found.wrong(5, right[5]).tolist() == [task.size - 1]
    assert sum(decoded) == 2 * task.size


def test_bf16_round_trip() -> None:
    bf16 = ELEMENTS["bf16"]
    values = np.array([0.0, 1.0, -2.5, 256.0, 1 + 2**-8, 1 + 3 * 2**-8])
    assert bf16.decode(bf16.encode(values)).tolist() == [0.0, 1.0, -2.5, 256.0, 1.0, 1 + 2**-6]


def test_a_wrong_result_explains_itself_and_tells_one_cause_once() -> None:
    kept = RING.replace("acc = tl.combine(acc, current, op)", "pass")
    assert kept != RING
    Path("mine.py").write_text(kept)
    report = ahbm.run(algorithm="mine.py", bytes_per_rank=32, dtype="i16", overrides=SMALL)
    told = str(report).splitlines()
    assert report.wrong and report.findings[0].code == "AHBM-V401" and report.findings[0].sites[0].origin
    assert "only rank 0 arrived" in told[1] and "mine.py:" in told[2]
    assert told[3] == "  hint: `ahbm inspect` with --element RANK:INDEX shows what an element was made of"
    assert told[4].startswith("  and the same 7 more times: rank") and len(told) == 5
    with pytest.raises(DataError, match="only rank 0 arrived; and the same on 3 more ranks") as caught:
        ahbm.run(algorithm="mine.py", bytes_per_rank=32, dtype="i16", overrides=SMALL, check=True)
    assert len([site for site in caught.value.sites if "only rank 0 arrived; and the same" in site.label]) == 1
    assert caught.value.sites[0].origin == "mine.py:17" and "gets no further: recv" in caught.value.sites[0].label


def test_a_wrong_result_that_contributions_do_not_explain_is_a_diff_of_values() -> None:
    Path("mine.py").write_text(RING.replace("tl.store(tile, acc)", "tl.store(tile, acc + 1)"))
    report = ahbm.run(algorithm="mine.py", bytes_per_rank=32, dtype="i16", overrides=SMALL)
    assert report.wrong and "AHBM-V" in str(report)


def test_one_place_alone_is_not_repeated() -> None:
    where = (Site("sip 1 store", "a.py:3"),)
    findings = [Finding("AHBM-V401", f"rank {n}, elements [0, 4): gone", where, "look") for n in range(9)]
    other = Finding("AHBM-V401", "rank 9, elements [0, 4): gone", (Site("sip 1 store", "a.py:4"),), "look")
    assert described(findings).splitlines()[-1] == "  and the same 8 more times: rank 1, 2, 3, 4, 5, 6 and 2 more"
    assert described([findings[0], other]) == f"{findings[0]}\n{other}" and described([]) == ""


MACHINES = ("default", *topology.names())


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_every_collective_runs_on_every_machine_in_the_box_at_eight_gibibytes(machine: str) -> None:
    emulator = Emulator.load(None if machine == "default" else machine)
    for collective in COLLECTIVES:
        report = ahbm.run(collective, bytes_per_rank="8G", data=False, emulator=emulator)
        assert report.latency_ns > (1e6 if collective != "barrier" else 0), collective


def test_queues_have_fewer_slots_where_no_memory_holds_them() -> None:
    def run(**more: Any) -> Report:
        name = "lrab_hierarchical_allreduce"
        return ahbm.run(algorithm=name, topology="npu_torus_4x4", bytes_per_rank="8G", data=False, **more)

    assert run().notes == ("queues have 2 slots in hbm: more do not fit",)
    with pytest.raises(LintError, match="AHBM-L108"):
        run(overrides={"buffer_kind": "hbm"})


def test_too_many_contributions_to_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ahbm.check.case.DIFF_PARTIES", 3)
    Path("mine.py").write_text(skip("not (sip_rank == 3 and step == 1)")(RING))
    with pytest.raises(DataError, match=r"rank 3, element \d+: got .* with 4 contributions \(more than 3\)"):
        ahbm.run(algorithm="mine.py", bytes_per_rank=32, dtype="i16", overrides=SMALL, check=True)
