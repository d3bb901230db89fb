"""`ahbm probe`: farther is never faster, larger is never slower per byte."""

from __future__ import annotations

from itertools import pairwise

import pytest

import ahbm
from ahbm.config.ccl import CclConfig
from ahbm.config.topology import load_machine
from ahbm.runs import probe


@pytest.fixture(scope="module")
def samples() -> list[probe.Sample]:
    config = CclConfig.load()
    return list(probe.measure(load_machine(), config.settings(config.default_algorithm).queues))


def latencies(samples: list[probe.Sample], kind: str, size: int) -> dict[str, float]:
    return {sample.pattern: sample.latency_ns for sample in samples if (sample.kind, sample.bytes) == (kind, size)}


@pytest.mark.parametrize("kind", ["read", "write", "ipcq"])
@pytest.mark.parametrize("size", probe.SIZES)
def test_latency_grows_with_distance(samples: list[probe.Sample], kind: str, size: int) -> None:
    found = latencies(samples, kind, size)
    near = ["own HBM", "HBM of the next PE"] if kind != "ipcq" else ["the next PE"]
    inside = [*near, *(name for name in found if name.endswith("cube"))]
    order = [found[name] for name in inside]
    assert order == sorted(order) and order[0] < order[-1]
    beyond = next(name for name in found if name.endswith("SIP"))
    assert found[beyond] > found[next(name for name in inside if name.endswith("next cube"))]


def test_bandwidth_grows_with_size(samples: list[probe.Sample]) -> None:
    for pattern in {(sample.kind, sample.pattern) for sample in samples}:
        series = [sample for sample in samples if (sample.kind, sample.pattern) == pattern]
        assert [sample.bytes for sample in series] == list(probe.SIZES)
        for small, large in pairwise(series):
            assert small.latency_ns < large.latency_ns
            assert small.bandwidth_gbs <= large.bandwidth_gbs


def test_reading_the_host_is_no_faster_than_writing_to_it(samples: list[probe.Sample]) -> None:
    for size in probe.SIZES:
        assert latencies(samples, "read", size)["host memory"] >= latencies(samples, "write", size)["host memory"]


@pytest.mark.parametrize(
    "overrides",
    [
        {"system.sips.count": 1},
        {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1, "cube.pe_layout.corners": 1, "cube.pe_layout.pe_per_corner": 1},
    ],
)
def test_small_machines_have_fewer_patterns(overrides: dict[str, object]) -> None:
    machine = load_machine(None, overrides)
    config = CclConfig.load()
    found = list(probe.measure(machine, config.settings(config.default_algorithm).queues, sizes=[4096]))
    assert found and all(sample.latency_ns > 0 for sample in found)


def test_patterns_that_take_no_time_have_no_bandwidth() -> None:
    machine = load_machine("npu_ring_8")
    config = CclConfig.load()
    found = list(probe.measure(machine, config.settings(config.default_algorithm).queues, sizes=[4096]))
    assert {(sample.latency_ns, sample.bandwidth_gbs) for sample in found if sample.pattern == "own HBM"} == {
        (0.0, None)
    }
    assert all(sample.bandwidth_gbs for sample in found if sample.latency_ns)


def test_a_pattern_is_no_call_of_a_library() -> None:
    sizes, kinds = [1 << 12, 1 << 20], ("read", "write", "ipcq")
    queues = CclConfig.load().settings("ring_allreduce").queues

    def found(**overrides: object) -> dict[str, dict[tuple[str, int], float]]:
        told = {name.replace("__", "."): value for name, value in overrides.items()}
        samples = list(probe.measure(load_machine("p5", told), queues, sizes))
        return {
            kind: {(one.pattern, one.bytes): one.latency_ns for one in samples if one.kind == kind} for kind in kinds
        }

    plain = found()
    assert plain == found(launch__overhead_ns=0, launch__per_rank_ns=0)
    spoken = found(protocol="simple")
    own = ("own HBM", 1 << 20)
    assert spoken["read"][own] == plain["read"][own]
    for nbytes in sizes:
        run = ahbm.run("send_recv", topology="p5", bytes_per_rank=nbytes, data=False, overrides={
            "protocol": "simple", "launch.overhead_ns": 0, "launch.per_rank_ns": 0,
        })  # fmt: skip
        assert spoken["ipcq"]["the next SIP", nbytes] == pytest.approx(run.latency_ns, rel=0.01)
    assert "which has few_bytes, ll, simple" in probe.note(load_machine("p5"))
    assert not probe.note(load_machine("p5", {"protocol": "ll"})) and not probe.note(load_machine())
