"""Protocols: what a run costs with each, which one it takes, and that its data are the same."""

from __future__ import annotations

import pickle
import warnings
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm._core import Machine
from ahbm.base.knobs import Knobs
from ahbm.base.packaged import TOPOLOGIES
from ahbm.base.request import Request
from ahbm.config.ccl import CclConfig
from ahbm.config.protocols import CallCosts, crossing, held
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError, DataError
from ahbm.job.reading import How
from ahbm.job.replay import JobReport, replay
from ahbm.job.transformer import Transformer
from ahbm.ranks.setup import Setup
from ahbm.table.cases import Sweep
from ahbm.table.nccl import notes
from support.choosing import compiled
from support.tables import reports_of

RANKS, LATENCY, GBS = 8, 100, 400
LINKS = {"system.sips.link.latency_ns": LATENCY, "system.sips.link.bandwidth_gbs": GBS}
KNOWN: dict[str, object] = LINKS | {
    "launch.overhead_ns": 8000,
    "protocols.ll.step_ns": 600,
    "protocols.ll.max_gbs": 18,
    "protocols.simple.step_ns": 3200,
    "protocols.simple.efficiency": 0.9,
    "protocols.simple.ramp_bytes": 1 << 20,
}


def run(nbytes: int, **overrides: object) -> ahbm.Report:
    told = KNOWN | {name.replace("__", "."): value for name, value in overrides.items()}
    return ahbm.run(
        "all_reduce", "ring_allreduce", "npu_fully_connected_8", bytes_per_rank=nbytes, data=False, overrides=told
    )


def ring(nbytes: int, step_ns: float, gbs: float) -> float:
    """Time in ns of a ring of messages that are sent one after the other."""
    return 8000 + 2 * (RANKS - 1) * (LATENCY + step_ns) + 2 * (RANKS - 1) / RANKS * nbytes / gbs


@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 16, 1 << 20, 1 << 24])
def test_a_call_takes_the_quickest_at_the_time_of_its_law(nbytes: int) -> None:
    ramped = 0.9 * GBS / (1 + sqrt((1 << 20) / nbytes))
    laws = {"ll": ring(nbytes, 600, 18), "simple": ring(nbytes, 3200, ramped)}
    best = min(laws, key=lambda name: laws[name])
    found = run(nbytes)
    assert found.latency_ns == pytest.approx(laws[best], rel=1e-4)
    assert found.notes[-1] == f"protocol {best}, the quickest of 2"
    for name, law in laws.items():
        assert run(nbytes, protocol=name).latency_ns == pytest.approx(law, rel=1e-4)
    assert run(nbytes, protocol="simple", protocols__simple__ramp_bytes=0).latency_ns == pytest.approx(
        ring(nbytes, 3200, 0.9 * GBS), rel=1e-4
    )


@pytest.mark.parametrize(("nbytes", "channels"), [(1 << 10, 1), (1 << 16, 1), (1 << 18, 4), (1 << 20, 8), (1 << 24, 8)])
def test_a_call_has_as_many_channels_as_its_bytes_fill(nbytes: int, channels: int) -> None:
    keys = {"protocols__ll__channels": 8, "protocols__ll__channel_gbs": 2, "protocols__ll__channel_bytes": 1 << 16}
    found = run(nbytes, protocol="ll", **keys)
    assert found.latency_ns == pytest.approx(ring(nbytes, 600, 2 * channels), rel=1e-4)
    # What a link carries, and what the protocol does, hold besides.
    narrow = run(nbytes, protocol="ll", **keys | {"protocols__ll__max_gbs": 5})
    assert narrow.latency_ns == pytest.approx(ring(nbytes, 600, min(2 * channels, 5)), rel=1e-4)
    # Without bytes for each, a call has all of them.
    del keys["protocols__ll__channel_bytes"]
    assert run(nbytes, protocol="ll", **keys).latency_ns == pytest.approx(ring(nbytes, 600, 16), rel=1e-4)


@pytest.mark.parametrize("ramp", [0, 1 << 20])
def test_messages_between_nodes_have_their_own_step_and_bandwidth(ramp: int) -> None:
    nodes: dict[str, object] = {
        "system.sips.topology": "nodes",
        "system.sips.nodes.size": 4,
        "system.sips.nodes.nic_gbs": 50,
        "system.sips.nodes.striped": True,
        "protocols.p.step_ns": 600,
        "protocols.p.ramp_bytes": ramp,
        # No message waits for the credit of one before.
        "protocols.p.slots": 16,
    }

    def time(nbytes: int, **keys: float) -> float:
        told = LINKS | nodes | {f"protocols.p.{name}": value for name, value in keys.items()}
        return ahbm.run(
            "all_reduce", "ring_allreduce", "npu_fully_connected_8", bytes_per_rank=nbytes, data=False, overrides=told
        ).latency_ns

    # Of the 14 steps of a message that goes round, 4 are between the nodes.
    assert time(16, nic_step_ns=5000) - time(16) == pytest.approx(4 * (5000 - 600))
    nbytes = 1 << 28
    share = 1 + sqrt(ramp / nbytes)
    wire = 2 * (RANKS - 1) / RANKS * nbytes / 20 * share
    # The ring's messages between nodes have the four interfaces of a node.
    assert time(nbytes, nic_gbs=5) == pytest.approx(wire, rel=0.01)
    assert time(nbytes, max_gbs=20) == pytest.approx(wire, rel=0.01)
    assert time(nbytes, nic_gbs=20, channels=2, channel_gbs=5) == pytest.approx(2 * wire, rel=0.01)


def test_channels_that_a_selector_asks_for_are_those_of_the_protocols() -> None:
    keys = {"protocols.ll.channels": 8, "protocols.ll.channel_gbs": 2, "protocol": "ll"}
    emulator = Emulator.load("npu_fully_connected_8", None, KNOWN | keys)
    request = Request("all_reduce", range(RANKS), 1 << 19)

    def took(channels: int) -> tuple[float, str]:
        compiled = emulator.compile(request, emulator.with_knobs(request, "ring_allreduce", Knobs(channels=channels)))
        return compiled.latency_ps / 1000, " ".join(compiled.notes)

    for channels in (1, 3, 8):
        assert took(channels)[0] == pytest.approx(ring(1 << 20, 600, 2 * channels), rel=1e-4)
    ns, notes = took(9)
    assert ns == took(8)[0] and "channels" in notes


NODES, LINK = "system.sips.nodes.nic_gbs", "system.sips.link.bandwidth_gbs"


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (NODES, 800, "carry 527.6 GB/s inside a node, and its interfaces 8442 to others: the links bind"),
        (NODES, 10, None),
        (
            LINK,
            1000,
            "carry 1000 GB/s inside a node, and its interfaces 527.6 to others: between nodes the interfaces bind",
        ),
        (LINK, 500, None),
    ],
)
def test_a_bandwidth_that_another_wire_holds_is_told(key: str, value: int, told: str | None) -> None:
    sizes = [1 << 26, 1 << 28]
    sweep = Sweep("all_reduce", 1, 1, topology="p5_2_nodes", overrides={key: value}, listed=sizes, data=False)
    found = [note for note in notes(reports_of(sweep)) if "bind" in note]
    other = LINK if key == NODES else NODES
    assert found == ([] if told is None else [f"from {sizes[0]} B on {key}={value}: links {told}, {other}"])


def test_a_limit_of_a_protocol_that_no_wire_is_told_of_holds() -> None:
    limited = {"protocols.own.max_gbs": 100, LINK: 200}
    sweep = Sweep("all_reduce", 1, 1, topology="npu_ring_8", overrides=limited, listed=[1 << 20], data=False)
    # Who states the protocol itself knows it.
    assert not [note for note in notes(reports_of(sweep)) if "limit holds" in note]
    machine = load_machine("npu_ring_8", {"protocols.own.max_gbs": 100}).changed([(LINK, "200")])
    text = "100 GB/s over a link: the protocol's limit holds"
    plain = Machine.from_yaml(
        (TOPOLOGIES / "npu_ring_8.yaml").read_text("utf-8") + "protocols: {own: {max_gbs: 100}}\n",
        "own",
        [(LINK, "200")],
    )
    assert held(machine, "own") == []
    assert held(plain, "own") == [f"{LINK}=200 is more than protocol own carries, {text}"]


def test_what_a_protocol_leaves_of_links() -> None:
    def most(**overrides: object) -> tuple[float | None, ...] | None:
        own = {f"protocols.own.{key}": value for key, value in overrides.items()}
        nodes = {"system.sips.topology": "nodes", "system.sips.nodes": "{size: 4, nic_gbs: 50, striped: true}"}
        machine = load_machine("npu_ring_8", nodes | LINKS | own)
        assert machine.caps(1.01) is None
        return machine.with_costs(CallCosts("own")).caps(1.01)

    # Links of 400 GB/s, four interfaces of 50 GB/s.
    assert most(step_ns=1) == (None, None, None)
    assert most(max_gbs=100) == (100, 100, None)
    assert most(max_gbs=300) == (300, None, None)
    assert most(max_gbs=300, efficiency=0.7) == (None, None, None)
    assert most(nic_gbs=20) == (None, 80, 80)
    assert most(channels=2, channel_gbs=30, nic_gbs=40) == (60, 60, 160)


def test_a_machine_with_the_costs_of_a_call_is_the_machine() -> None:
    plain = load_machine("p5_2_nodes")
    costs = CallCosts("simple", 1 << 20, interfaces=2, part=(1, 3))
    called = plain.with_costs(costs)
    assert (called.hash, called.parameters, called.protocol) == (plain.hash, plain.parameters, None)
    assert called.caps(1.01) != plain.with_costs(costs._replace(nbytes=1 << 26)).caps(1.01)
    # Its copies, and what changes of it leave, are of the same call.
    again = plain.with_costs(CallCosts()).with_costs(costs)
    for copy in (pickle.loads(pickle.dumps(called)), called.changed([]), again):
        assert copy.caps(1.01) == called.caps(1.01) != plain.caps(1.01)
    with pytest.raises(DataError, match="AHBM-V125"):
        plain.with_costs(CallCosts("ll256"))
    with pytest.raises(ConfigError, match="AHBM-C129"):
        plain.with_costs(("simple", -1))  # type: ignore[arg-type]


def test_the_interfaces_of_a_call_are_those_of_its_ranks() -> None:
    machine, nodes = load_machine("p5_2_nodes"), range(16)
    assert crossing(machine, range(8), "all_reduce", False) == CallCosts()[4:]
    for ranks, collective, explicit, wanted in [
        (nodes, "all_reduce", False, (8, False, (1, 1))),
        ((0, 1, 8, 9), "all_reduce", False, (2, False, (1, 1))),
        ((0, 1, 8), "broadcast", False, (1, False, (1, 1))),
        (nodes, "all_reduce", True, (1, False, (1, 1))),
        (nodes, "send_recv", False, (1, False, (1, 1))),
        (nodes, "all_to_all", False, (8, True, (1, 1))),
        ((0, 8), "all_to_all", False, (1, False, (1, 1))),
    ]:
        assert crossing(machine, ranks, collective, explicit) == wanted, (ranks, collective)
    # One rank of the first node sends all that crosses: an eighth of the interfaces is busy.
    shares = [[int(i == 0 and j >= 8) for j in nodes] for i in nodes]
    assert crossing(machine, nodes, "all_to_all", False, shares) == (8, True, (8, 64))
    assert crossing(load_machine("dgx_h100"), range(8), "all_reduce", True) == CallCosts()[4:]


def test_a_range_decides_before_the_time_does() -> None:
    quick = run(1 << 12)
    held = run(1 << 12, protocols__ll__max_bytes=4095)
    assert quick.notes[-1].startswith("protocol ll") and held.notes[-1] == "protocol simple"
    assert held.latency_ns > quick.latency_ns
    assert run(1 << 12, protocols__ll__max_bytes=4096).latency_ns == quick.latency_ns
    with pytest.raises(ConfigError) as caught:
        run(1 << 12, protocols__ll__max_bytes=1, protocols__simple__min_bytes=1 << 20)
    assert caught.value.code == "AHBM-C188"


SPEAKING = """
system: {sips: {count: 8, topology: nodes, link: {latency_ns: 0, bandwidth_gbs: 400}, nodes: {size: 4, nic_gbs: 50}}}
library: {all_reduce: [double_binary_tree_allreduce, ring_allreduce]}
protocols:
  ll: {step_ns: 600, nic_gbs: 5, algorithms: [double_binary_tree_allreduce], max_chunk_bytes: 4095}
  simple: {step_ns: 3000, algorithms: [double_binary_tree_allreduce], max_chunk_bytes: 4095}
  ring: {step_ns: 600, algorithms: [ring_allreduce], min_chunk_bytes: 4096}
"""


def speaking(text: str = SPEAKING) -> Emulator:
    plain = (TOPOLOGIES / "npu_fully_connected_8.yaml").read_text(encoding="utf-8")
    plain = plain[plain.index("# Nothing inside") :]
    return Emulator(Machine.from_yaml(text + plain, "speaking", []), CclConfig.packaged())


@pytest.mark.parametrize(
    ("nbytes", "algorithm", "note"),
    [
        (1 << 10, "double_binary_tree_allreduce", "protocol ll, the quickest of 2"),
        # The last whole chunk below the border, and the first above it.
        (8 * 4096 - 2, "double_binary_tree_allreduce", "protocol simple, the quickest of 2"),
        (8 * 4096, "ring_allreduce", "protocol ring"),
    ],
)
def test_a_protocol_goes_with_its_algorithms_and_chunks(nbytes: int, algorithm: str, note: str) -> None:
    emulator = speaking(SPEAKING.replace("nic_gbs: 5,", "nic_gbs: 0.1,"))
    found = compiled(emulator, Request("all_reduce", range(8), nbytes // 2))
    assert (found.algorithm, found.notes[-1]) == (algorithm, note)


def test_who_names_an_algorithm_gets_it_at_every_size() -> None:
    emulator, small, large = speaking(), *(Request("all_reduce", range(8), count) for count in (64, 1 << 20))
    for request, algorithm, protocol in [
        # The protocol of the ring is for larger chunks; those of the trees for smaller ones.
        (small, "ring_allreduce", "ll"),
        (large, "double_binary_tree_allreduce", "ring"),
        # Nobody names this one.
        (small, "recursive_doubling_allreduce", "ll"),
    ]:
        assert emulator.compile(request, algorithm).protocol == protocol
    assert compiled(emulator, Request("all_gather", range(8), 64)).protocol == "ll"


def test_a_protocol_of_an_algorithm_that_nobody_knows_is_told() -> None:
    with pytest.raises(ConfigError) as caught:
        unknown = speaking(SPEAKING.replace("algorithms: [ring_allreduce]", "algorithms: [rign_allreduce]"))
        compiled(unknown, Request("all_reduce", range(8), 64))
    assert caught.value.code == "AHBM-C194" and "protocol ring with rign_allreduce" in str(caught.value)


def test_slices_of_a_protocol_are_those_of_kernels_that_take_them() -> None:
    request = Request("all_reduce", range(8), 1 << 15)
    cut = SPEAKING.replace("step_ns: 600,", "step_ns: 600, slice_bytes: 1024,")
    (whole, ring), (sliced, same) = (
        (compiled(one, request), one.compile(request, "ring_allreduce"))
        for one in (speaking(text + "protocol: ll\n") for text in (SPEAKING, cut))
    )
    # Chunks are passed on while later ones arrive, which takes more messages and less time.
    assert sliced.messages > whole.messages and sliced.latency_ps < whole.latency_ps
    assert ring.latency_ps == same.latency_ps


def test_slots_of_a_protocol_are_those_of_its_queues() -> None:
    assert run(1 << 20, protocols__ll__slots=1, protocol="ll").memory_bytes == (1 << 20) + (1 << 17)
    assert run(1 << 20, protocols__ll__slots=3, protocol="ll").memory_bytes == (1 << 20) + 3 * (1 << 17)


def test_a_machine_without_any_is_what_it_was() -> None:
    plain = Emulator.load("npu_fully_connected_8").machine
    assert (plain.protocols, plain.protocol, plain.launch_ps) == ([], None, 0)
    assert Emulator.load("npu_fully_connected_8", overrides={"launch.overhead_ns": 0}).machine.hash != plain.hash


def test_results_are_the_same_by_every_protocol() -> None:
    def worker() -> bytes:
        dist.init_process_group(backend="ahbm", topology="npu_fully_connected_8", overrides=KNOWN)
        x = np.arange(4096, dtype=np.float32) * (1 + dist.get_rank())
        dist.all_reduce(x)
        return x.tobytes()

    results = ahbm.spawn(worker, topology="npu_fully_connected_8", overrides=KNOWN)
    assert set(results) == {(np.arange(4096, dtype=np.float32) * 36).tobytes()}


def job(fold: bool = True, **overrides: object) -> JobReport:
    made = Transformer(layers=2, hidden=64, heads=2, sequence=32, vocabulary=1 << 15, dp=8, bucket_bytes=1 << 16)
    told = KNOWN | {name.replace("__", "."): value for name, value in overrides.items()}
    setup = Setup("npu_fully_connected_8", algorithm="ring_allreduce", overrides=told)
    return replay(made.workload(), "job", setup, How(fold=fold))


def test_a_call_of_a_job_takes_what_it_takes_alone() -> None:
    found = job()
    notes = {call.bytes: run(call.bytes).notes[-1].split(",")[0] for call in found.calls}
    assert set(notes.values()) == {"protocol ll", "protocol simple"} and not found.together
    for call in found.calls:
        assert call.latency_ns == pytest.approx(run(call.bytes).latency_ns)


@pytest.mark.parametrize("ahead", [0, 8, 1 << 16])
def test_a_call_beside_another_takes_its_launch_as_alone(ahead: int) -> None:
    """One rule, whatever else is in flight: two groups whose messages share no link take what each takes alone."""
    told = KNOWN | {"defaults.algorithm": "ring_allreduce"}

    def worker() -> float:
        dist.init_process_group(topology="npu_fully_connected_8", overrides=told)
        groups = [dist.new_group(list(half)) for half in (range(4), range(4, 8))]
        half = dist.get_rank() // 4
        if half and ahead:
            dist.all_reduce(np.ones(ahead, np.float32), group=groups[half])
        dist.all_reduce(np.ones(4096, np.float32), group=groups[half])
        return dist.stats()[-1].latency_ns

    times = ahbm.spawn(worker, topology="npu_fully_connected_8", overrides=told)
    cost = Emulator.load("npu_fully_connected_8", overrides=told).cost(
        Request("all_reduce", range(4), 4096, "f32"), "ring_allreduce"
    )
    assert times == [cost.ps / 1000] * 8  # type: ignore[union-attr]


def test_a_job_says_how_many_calls_each_protocol_has() -> None:
    found = job()
    counts = [sum(call.protocol == name for call in found.calls) for name in ("ll", "simple")]
    ll, simple = (f"{count} call{'s' * (count > 1)}" for count in counts)
    sheet, told = found.notes
    assert sheet.startswith("computations by the data sheet of A100 80 GB SXM: 312 TFLOP/s")
    assert told == f"protocols: ll of {ll}, simple of {simple}" and sum(counts) == len(found.calls)
    assert job(protocol="simple", protocols__simple__ramp_bytes=0).notes == (sheet,)


def test_the_trace_of_a_job_says_that_its_messages_find_protocols_of_their_own(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="a call of its own, which finds a protocol by its own size"):
        job().write_trace(tmp_path / "job")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job(protocol="simple", protocols__simple__ramp_bytes=0).write_trace(tmp_path / "job")


def test_a_range_for_all_sizes_is_that_protocol() -> None:
    named = job(protocol="ll")
    assert job(protocols__simple__min_bytes=1 << 40).latency_ns == named.latency_ns
    assert job().latency_ns < named.latency_ns
    assert job().times_hash == job(fold=False).times_hash


@pytest.mark.parametrize("small", [1 << 9, 1 << 12])
def test_calls_at_one_time_keep_their_protocols(small: int) -> None:
    def worker() -> float:
        dist.init_process_group(backend="ahbm", topology="npu_fully_connected_8", overrides=told)
        halves = [dist.new_group([0, 1, 2, 3]), dist.new_group([4, 5, 6, 7])]
        half = dist.get_rank() // 4
        dist.all_reduce(np.ones(small if half == 0 else 1 << 20, np.float16), group=halves[half])
        return dist.simulated_time()

    told = KNOWN | {"launch.overhead_ns": 0, "defaults.algorithm": "ring_allreduce"}
    times = ahbm.spawn(worker, topology="npu_fully_connected_8", overrides=told)
    # The halves share no link, so each is as quick as it is alone.
    for rank, nbytes in ((0, 2 * small), (7, 2 << 20)):
        alone = ahbm.run(
            "all_reduce", "ring_allreduce", "npu_fully_connected_8", bytes_per_rank=nbytes, data=False,
            overrides=told | {"system.sips.count": 4},
        )  # fmt: skip
        assert times[rank] == alone.latency_ns
