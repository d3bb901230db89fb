"""Values that pass through a narrower type are found, those that pass through a wider one are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ahbm
from ahbm.base import packaged
from ahbm.base.elements import ELEMENTS
from ahbm.base.request import Request
from ahbm.check.case import narrowed
from ahbm.check.checks import examine
from ahbm.check.exploration import attempt
from ahbm.check.reference import inputs
from ahbm.errors import DataError, Finding
from ahbm.runs.measure import prepare

THROUGH = """

inner = kernel


class Through:
    def __init__(self, tl, on):
        self.tl, self.on = tl, on

    def __getattr__(self, name):
        return getattr(self.tl, name)

    def through(self, value, dtype):
        return self.tl.cast(self.tl.cast(value, "{other}"), dtype) if self.on else value

    def load(self, *args, **keywords):
        value = self.tl.load(*args, **keywords)
        return self.through(value, keywords["dtype"]) if "{place}" == "load" else value

    def recv(self, *args, **keywords):
        value = self.tl.recv(*args, **keywords)
        return self.through(value, keywords["dtype"]) if "{place}" == "recv" else value

    def store(self, address, value):
        self.tl.store(address, self.through(value, "{dtype}") if "{place}" == "store" else value)


def kernel(*args, tl):
    inner(*args, tl=Through(tl, args[-4] == 1))
"""
"""A kernel of which rank 1 casts what it loads, receives or stores."""
ALGORITHMS = {
    "all_reduce": "ring_allreduce",
    "all_gather": "ring_all_gather",
    "reduce_scatter": "ring_reduce_scatter",
    "all_to_all": "pairwise_all_to_all",
    "broadcast": "binomial_broadcast",
}
NARROWER = {
    "f64": ("f32", "f16", "bf16", "i64"),
    "f32": ("f16", "bf16", "i32"),
    "f16": ("bf16", "i16"),
    "bf16": ("f16", "i32"),
    "i64": ("i32", "i16", "i8", "f64", "f32"),
    "i32": ("i16", "i8", "f32"),
    "i16": ("i8", "f16"),
    "u64": ("u32", "i32", "f64"),
    "u32": ("u16", "f32"),
    "u16": ("u8", "bf16"),
}
HOLDING = {
    "f32": ("f64",),
    "f16": ("f32", "f64"),
    "bf16": ("f32",),
    "i64": ("u64",),
    "i32": ("i64", "f64", "u32"),
    "i16": ("i32", "f32"),
    "i8": ("i16", "f16", "bf16", "u8"),
    "u64": ("i64",),
    "u32": ("i64", "f64", "i32"),
    "u16": ("i32", "f32"),
    "u8": ("i8", "u32", "bf16"),
}

PLACES = ("load", "recv", "store")
FOUR: dict[str, Any] = {"overrides": {"system.sips.count": 4}}
"""Ranks enough for one that casts, its neighbours and one beyond them."""


def write_casting(collective: str, dtype: str, other: str, place: str) -> None:
    text = (packaged.ALGORITHMS / f"{ALGORITHMS[collective]}.py").read_text()
    Path("casting.py").write_text(text + THROUGH.format(other=other, place=place, dtype=dtype))


def casting(collective: str, dtype: str, other: str, place: str, op: str = "sum") -> ahbm.Report:
    write_casting(collective, dtype, other, place)
    return ahbm.run(
        collective, "casting.py", "npu_ring_8", bytes_per_rank=1 << 10, dtype=dtype, check="result", op=op, **FOUR
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("collective", ALGORITHMS)
@pytest.mark.parametrize("dtype", NARROWER)
def test_a_cast_that_loses_bits(dtype: str, collective: str, place: str, here: Path) -> None:
    if (collective, place) == ("broadcast", "load"):
        return  # only the root loads
    # Each type in turn: every cast meets every place, in several collectives.
    turns = min(len(NARROWER[dtype]), len(ALGORITHMS) - 1)
    turn = ([*ALGORITHMS].index(collective) + PLACES.index(place)) % turns
    for other in NARROWER[dtype][turn::turns]:
        with pytest.raises(DataError, match="AHBM-V301") as caught:
            casting(collective, dtype, other, place)
        assert f"narrower than {dtype}" in str(caught.value.findings[0].hint)


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all"])
@pytest.mark.parametrize("dtype", HOLDING)
def test_a_cast_that_loses_none(dtype: str, collective: str, here: Path) -> None:
    for other in HOLDING[dtype]:
        for place in ("load", "recv", "store"):
            report = casting(collective, dtype, other, place)
            assert report.wrong == 0 and not report.findings


@pytest.mark.parametrize("op", ["prod", "min", "max", "avg", "band", "bor", "bxor"])
def test_every_operator_shows_it(op: str, here: Path) -> None:
    for dtype, other in [("u32", "u16"), ("i64", "i16"), *([] if op[0] == "b" else [("f32", "f16"), ("f64", "bf16")])]:
        with pytest.raises(DataError, match="AHBM-V301"):
            casting("all_reduce", dtype, other, "recv", op=op)


def followed(collective: str, dtype: str, other: str, place: str, op: str = "sum") -> list[Finding]:
    """What following contributions finds, without numbers, as before the first call of a shape."""
    write_casting(collective, dtype, other, place)
    case = prepare(collective, "casting.py", "npu_ring_8", bytes_per_rank=1 << 10, dtype=dtype, op=op, **FOUR)
    return list(examine(case, case.compiled(), frozenset({"result"}), calls=1, orders=1))


@pytest.mark.slow
@pytest.mark.parametrize("collective", ALGORITHMS)
@pytest.mark.parametrize("dtype", NARROWER)
def test_contributions_lose_bits_in_a_cast(dtype: str, collective: str, here: Path) -> None:
    for other in NARROWER[dtype]:
        for place in ("recv", "store"):
            found = followed(collective, dtype, other, place)
            assert {finding.code for finding in found} == {"AHBM-V401"}
            assert f"to a type narrower than {dtype}" in found[0].message
            lines = Path("casting.py").read_text().splitlines()
            line = next(number for number, text in enumerate(lines, 1) if "def through" in text) + 1
            assert found[0].sites[0].origin == f"casting.py:{line}" and f"cast {other}[" in found[0].sites[0].label


@pytest.mark.parametrize("dtype", HOLDING)
def test_contributions_keep_their_bits_in_a_cast(dtype: str, here: Path) -> None:
    for other in HOLDING[dtype]:
        for collective in ("all_reduce", "all_to_all"):
            assert followed(collective, dtype, other, "recv") == []


@pytest.mark.parametrize("op", ["prod", "min", "max", "avg", "band", "bor", "bxor"])
def test_contributions_to_every_operator_lose_bits(op: str, here: Path) -> None:
    for dtype, other in [("u32", "u16"), ("i64", "i16")]:
        assert {finding.code for finding in followed("all_reduce", dtype, other, "recv", op)} == {"AHBM-V401"}
        assert followed("all_reduce", other, dtype, "recv", op) == []


WIDER = """
COLLECTIVE = "reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):
    return (n_elem, world_size)


def kernel(t_ptr, n, world, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    value = tl.load(t_ptr, shape=(n,), dtype="f16")
    if sip_rank:
        tl.send(dir="sip0", src=value)
        return
    total = tl.cast(value, "f32")
    for other in range(1, world):
        total = total + tl.cast(tl.recv(dir=f"sip{other}", shape=(n,), dtype="f16"), "f32")
    tl.store(t_ptr, tl.cast(total, "f16"))
"""


def test_an_accumulator_may_be_wider(here: Path) -> None:
    Path("wider.py").write_text(WIDER)
    report = ahbm.run("reduce", "wider.py", "npu_ring_8", bytes_per_rank=512, check="result")
    assert report.wrong == 0 and not report.findings
    Path("wider.py").write_text(WIDER.replace('"f32"', '"bf16"'))
    with pytest.raises(DataError, match="AHBM-V301"):
        ahbm.run("reduce", "wider.py", "npu_ring_8", bytes_per_rank=512, check="result")
    with pytest.raises(DataError, match="AHBM-V401"):
        ahbm.run("reduce", "wider.py", "npu_ring_8", bytes_per_rank=512, check="result", data=False)


def test_exploring_and_plain_runs_find_it_too(here: Path) -> None:
    with pytest.raises(DataError):
        casting("all_reduce", "f32", "f16", "recv")
    assert ahbm.run("all_reduce", "casting.py", "npu_ring_8", bytes_per_rank=1 << 10, dtype="f32").wrong
    case = prepare("all_reduce", "casting.py", "npu_ring_8", bytes_per_rank=1 << 10, dtype="f32")
    failure = attempt(case, 5, checks=frozenset({"result"}))
    assert failure is not None and failure.findings[0].code == "AHBM-V401"


@pytest.mark.parametrize("algorithm", [*ALGORITHMS.values(), "lrab_hierarchical_allreduce", "tree_allreduce"])
def test_right_algorithms_pass_at_every_width(algorithm: str) -> None:
    for dtype in ELEMENTS:
        machine = {"system.sips.count": 9, "sip.cube_mesh": "{w: 2, h: 1}"}
        collective = next((name for name, known in ALGORITHMS.items() if known == algorithm), "all_reduce")
        case = prepare(collective, algorithm, "torus_2d", bytes_per_rank=720, dtype=dtype, overrides=machine)
        assert narrowed(case, 3) is None


def test_no_narrower_type_holds_a_wide_number() -> None:
    def stored(dtype: str) -> NDArray[Any]:
        element = ELEMENTS[dtype]
        return element.decode(inputs(Request("all_gather", range(2), 4000, dtype), "wide", 1)[0])

    for dtype, others in {"f64": ("f32", "f16", "bf16"), "f32": ("f16", "bf16"), "f16": ("bf16",)}.items():
        numbers = stored(dtype)
        for other in others:
            with np.errstate(over="ignore"):
                narrow = ELEMENTS[other].decode(ELEMENTS[other].encode(numbers))
            # At least a quarter of the narrower type's unit, so that no tolerance of the wider one hides it.
            assert (np.abs(narrow - numbers) >= ELEMENTS[other].epsilon / 8 * np.abs(numbers)).all()
