"""Requests are compiled, priced and performed; what cannot be is a refusal."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import ahbm
from ahbm.base.placement import DPPolicy
from ahbm.base.request import Request
from ahbm.core.buffers import requested
from ahbm.core.compiled import Cost, Refusal
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, ConfigError, DataError
from support.choosing import configured

FOUR = {"system.sips.count": 4}


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    return Emulator.load(overrides=FOUR)


def test_a_request_is_a_value() -> None:
    request = Request("all_reduce", (0, 1, 2, 3), 256, "f32")
    assert request == Request("all_reduce", range(4), 256, "f32") and isinstance(request.ranks, range)
    assert hash(request) == hash(pickle.loads(pickle.dumps(request)))
    assert pickle.loads(pickle.dumps(request)) == request
    assert request != replace(request, op="max") and request != request.among((0, 1, 3))
    assert (request.size, request.nbytes, request.parties, request.shape) == (256, 1024, 4, (256,))
    gathered = replace(request, collective="all_gather")
    assert (gathered.size, gathered.nbytes, gathered.shape) == (1024, 4096, (1024,))
    tiles = replace(request, placement=DPPolicy(), tiles=16)
    assert (tiles.parties, tiles.shape) == (64, (16, 256))


def test_the_cost_is_that_of_the_run(emulator: Emulator) -> None:
    report = ahbm.run("all_reduce", bytes_per_rank=4096, dtype="f32", data=False, emulator=emulator)
    request = Request("all_reduce", range(4), 1024, "f32")
    cost = emulator.cost(request, configured(emulator, request))
    assert isinstance(cost, Cost)
    assert (cost.ps / 1000, cost.messages, cost.algorithm) == (report.latency_ns, report.messages, report.algorithm)
    assert cost.bound_ps is not None and cost.bound_ps / 1000 == report.bound_ns and cost.reason == report.limited_by


def test_what_cannot_be_performed_is_a_refusal(emulator: Emulator) -> None:
    good = Request("all_reduce", range(4), 1024, "f32")
    for bad, code in (
        (replace(good, ranks=(0, 9)), "AHBM-C120"),
        (replace(good, op="plus"), "AHBM-C123"),
        (replace(good, dtype="f8"), "AHBM-U130"),
        (replace(good, collective="allreduce"), "AHBM-C105"),
        (replace(good, placement=DPPolicy(), tiles=3), "AHBM-V101"),
    ):
        refusal = emulator.cost(bad, "ring_allreduce")
        assert isinstance(refusal, Refusal) and refusal.code == code and code in str(refusal)
        with pytest.raises(AhbmError) as caught:
            raise refusal.error()
        assert caught.value.code == code
    refusal = emulator.cost(good, "nosuch")
    assert isinstance(refusal, Refusal) and refusal.code == "AHBM-C110"


def test_buffers_must_be_those_of_the_request(emulator: Emulator) -> None:
    request = Request("all_reduce", range(4), 8, "f32")
    for buffers in ([np.zeros(8, np.float32)] * 3, [np.zeros(9, np.float32)] * 4, [np.zeros(8, np.float64)] * 4):
        with pytest.raises(DataError, match="AHBM-V101"):
            emulator.perform(request, buffers, configured(emulator, request))
    with pytest.raises(DataError, match="no buffers"):
        requested("all_reduce", [])
    with pytest.raises(DataError, match="no 4 equal chunks"):
        requested("all_gather", [np.zeros(6, np.float32)] * 4)
    with pytest.raises(ConfigError, match="did you mean all_reduce"):
        requested("allreduce", [np.zeros(6, np.float32)] * 4)


def test_a_program_is_verified_once(emulator: Emulator) -> None:
    request, calls = Request("all_reduce", range(4), 24, "f32"), []
    buffers = [np.ones(24, np.float32) for _ in range(4)]

    def refuse(_: object) -> None:
        raise DataError("AHBM-V401", "wrong")

    for _ in range(2):
        with pytest.raises(DataError, match="AHBM-V401"):
            emulator.perform(request, buffers, configured(emulator, request), verify=refuse)
        assert (buffers[0] == 1).all()
    for _ in range(2):
        emulator.perform(request, buffers, configured(emulator, request), verify=calls.append)
    assert len(calls) == 1 and (buffers[0] == 16).all()
