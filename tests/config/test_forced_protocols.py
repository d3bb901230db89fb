"""A protocol that somebody names: refused where a calibrated machine's numbers of it say nothing, and where it has
none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm._core import Machine
from ahbm.base.knobs import Knobs
from ahbm.base.request import Request
from ahbm.config.ccl import CclConfig
from ahbm.config.protocols import BEYOND, forced, permits
from ahbm.config.topology import load_machine, names
from ahbm.core.choice import SELECTOR, Choice
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, ConfigError
from support.plans import ring

CALIBRATED = [name for name in names() if load_machine(name).bands is not None]


def _beyond(machine: Machine) -> list[tuple[str, int, int]]:
    """Protocols with ranks and bytes that are just outside of those that may be named."""
    found = []
    for name, ranks, least, most in machine.ranges:
        found += [(name, ranks, size) for size in (least // BEYOND - 2, BEYOND * most + 2) if size > 0]
    return [each for each in found if not permits(machine, each[0], each[2], each[1])]


@pytest.mark.parametrize("name", CALIBRATED)
def test_every_size_has_a_protocol_that_may_be_named(name: str) -> None:
    machine = load_machine(name)
    assert {row[0] for row in machine.ranges} <= {each.name for each in machine.protocols}
    for ranks in {row[1] for row in machine.ranges}:
        for at in range(36):
            assert any(permits(machine, each.name, 1 << at, ranks) for each in machine.protocols), 1 << at
    for protocol, ranks, least, most in machine.ranges:
        assert forced(machine, protocol, least, ranks).name == forced(machine, protocol.upper(), most, ranks).name


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_protocol_beyond_its_rows_is_refused_by_name(name: str) -> None:
    machine = load_machine(name)
    assert len(machine.ranges) < 2 or _beyond(machine)
    for protocol, ranks, nbytes in _beyond(machine):
        with pytest.raises(ConfigError, match=f"protocol {protocol} says nothing of {nbytes} bytes") as refused:
            forced(machine, protocol, nbytes, ranks)
        assert refused.value.code == "AHBM-C192"
        others = [each.name for each in machine.protocols if each.name != protocol]
        assert all(other in str(refused.value) for other in others)


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_name_that_the_machine_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="weird") as refused:
        forced(load_machine(name), "weird", 1024)
    assert refused.value.code == "AHBM-C210"
    assert all(each.name in str(refused.value) for each in load_machine(name).protocols)


def _by_selector(protocol: str, nbytes: int, tmp_path: Path) -> object:
    def choose(call: Any, table: Any) -> Choice:
        return Choice(SELECTOR, "nccl_ring_allreduce", protocol=protocol)

    return ahbm.run("all_reduce", topology="dgx_h100", bytes_per_rank=nbytes, data=False, selector=choose)


def _by_rule(protocol: str, nbytes: int, tmp_path: Path) -> object:
    ccl = tmp_path / "ccl.yaml"
    static = f"{{algorithm: nccl_ring_allreduce, protocol: {protocol}}}"
    rule = f"{{kind: static, algorithms: {{all_reduce: {static}}}}}"
    ccl.write_text(f"collectives:\n  all_reduce:\n    - selector: {rule}\n", "utf-8")
    return ahbm.run("all_reduce", topology="dgx_h100", bytes_per_rank=nbytes, data=False, ccl=ccl)


def _by_machine(protocol: str, nbytes: int, tmp_path: Path) -> object:
    overrides = {"protocol": protocol}
    return ahbm.run("all_reduce", topology="dgx_h100", bytes_per_rank=nbytes, data=False, overrides=overrides)


def _by_choice(protocol: str, nbytes: int, tmp_path: Path) -> object:
    emulator = Emulator(load_machine("dgx_h100"), CclConfig.packaged())
    request = Request("all_reduce", range(8), nbytes // 2, "f16")
    return emulator.compile(request, emulator.with_knobs(request, "ring_allreduce", Knobs(protocol=protocol)))


def _plan(tmp_path: Path, protocol: str) -> Path:
    file = tmp_path / "ring.xml"
    file.write_text(ring(8, protocol), "utf-8")
    return file


def _by_plan(protocol: str, nbytes: int, tmp_path: Path) -> object:
    file = str(_plan(tmp_path, protocol.upper()))
    return ahbm.open(file, topology="dgx_h100", bytes_per_rank=nbytes).run(data=False)


def _by_option(protocol: str, nbytes: int, tmp_path: Path) -> object:
    file = str(_plan(tmp_path, "Simple"))
    return ahbm.open(file, topology="dgx_h100", bytes_per_rank=nbytes, protocol=protocol.upper()).run(data=False)


@pytest.mark.parametrize("way", [_by_selector, _by_rule, _by_machine, _by_choice, _by_plan, _by_option])
def test_wherever_it_is_named_it_is_refused(way: Any, tmp_path: Path) -> None:
    assert way("ll", 64, tmp_path)
    with pytest.raises(
        AhbmError, match=r"protocol ll says nothing of 67108864 bytes.*to 4194304 bytes.*simple"
    ) as refused:
        way("ll", 1 << 26, tmp_path)
    assert refused.value.code == "AHBM-C192"


@pytest.mark.parametrize("way", [_by_selector, _by_rule, _by_choice])
def test_wherever_it_is_named_it_must_be_there(way: Any, tmp_path: Path) -> None:
    with pytest.raises(AhbmError, match="'weird': it has few_bytes, ll, simple") as refused:
        way("weird", 64, tmp_path)
    assert refused.value.code == "AHBM-C210"


def test_a_machine_without_protocols_carries_a_name(tmp_path: Path) -> None:
    def choose(call: Any, table: Any) -> Choice:
        return Choice(SELECTOR, "ring_allreduce", protocol="weird")

    found = ahbm.run("all_reduce", topology="npu_ring_8", bytes_per_rank=4096, data=False, selector=choose)
    assert any("weird carried, not modelled" in note for note in found.notes)


def test_a_what_if_may_not_name_it_either() -> None:
    why = ahbm.open("all_reduce", topology="dgx_h100", bytes_per_rank=1 << 20).explain()
    with pytest.raises(AhbmError) as refused:
        why.what_if({"protocol": "few_bytes"})
    assert refused.value.code == "AHBM-C192"


def test_numbers_that_a_user_states_hold_anywhere() -> None:
    overrides = {"protocol": "ll", "protocols.ll.max_gbs": 20}
    found = ahbm.run("all_reduce", topology="dgx_h100", bytes_per_rank=1 << 20, data=False, overrides=overrides)
    assert found.latency_ns < 1e6
