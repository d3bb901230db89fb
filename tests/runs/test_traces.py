"""`ahbm check` and `ahbm run` on Chakra traces: with buffers, without, and the traces that runs leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
import ahbm.distributed as dist
from ahbm._core import read_plan
from ahbm.base.verdicts import EXIT_CODES
from ahbm.cli import app
from ahbm.config.reading import Reading
from ahbm.errors import ConfigError, FormatError, UnsupportedError
from ahbm.runs import plans, timed
from ahbm.runs.verdict import CheckOptions, check_file
from support.plans import FOUR, TOPOLOGY, ring

Attributes = dict[str, int | str]

COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7


def varint(n: int) -> bytes:
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name: str, value: int | str) -> bytes:
    """An AttributeProto: int64_val is field 9, string_val field 29."""
    payload = field(9, value) if isinstance(value, int) else field(29, value.encode())
    return field(1, name.encode()) + payload


def node(at: int, kind: int, deps: list[int], micros: int = 0, **attributes: int | str) -> bytes:
    body = field(1, at) + field(2, f"n{at}".encode()) + field(3, kind)
    body += b"".join(field(5, dep) for dep in deps) + field(7, micros)
    return body + b"".join(field(10, attribute(*pair)) for pair in attributes.items())


def write(prefix: Path, ranks: list[list[bytes]], **metadata: str) -> Path:
    """The files of a trace, by hand: the schema's field numbers, not the project's writer."""
    for rank, nodes in enumerate(ranks):
        header = field(1, b"0.0.4") + b"".join(field(2, attribute(*pair)) for pair in metadata.items())
        data = b"".join(varint(len(message)) + message for message in [header, *nodes])
        prefix.with_name(f"{prefix.name}.{rank}.et").write_bytes(data)
    return prefix


def bare_ring(n: int, nbytes: int, micros: int) -> list[list[bytes]]:
    """The ring all-reduce that public tools ship: sizes and tags, no buffers."""
    ranks = []
    for rank in range(n):
        nodes: list[bytes] = []
        for turn in range(2 * (n - 1)):
            after = [len(nodes) - 1] if nodes else []
            size = nbytes // n
            nodes.append(node(len(nodes), SEND, after, comm_size=size, comm_dst=(rank + 1) % n, comm_tag=0))
            nodes.append(node(len(nodes), RECV, [len(nodes) - 1], comm_size=size, comm_src=(rank - 1) % n, comm_tag=0))
            if turn < n - 1:
                nodes.append(node(len(nodes), COMP, [len(nodes) - 1], micros))
        ranks.append(nodes)
    return ranks


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """The fused ring of four ranks as a trace; its prefix."""
    (tmp_path / "ring.xml").write_text(ring(4))
    ahbm.convert(tmp_path / "ring.xml", tmp_path / "ring.et")
    return tmp_path / "ring.et"


def test_a_trace_with_buffers_is_an_algorithm(traced: Path) -> None:
    """By `dist`, and by an emulator, which goes on with it when one of its files changes; the next one does not."""

    def worker() -> None:
        import numpy as np

        dist.init_process_group(backend="ahbm")
        x = np.full(64, dist.get_rank() + 1.0, np.float32)
        dist.all_reduce(x)
        assert (x == 10).all()

    ccl = traced.with_name("ccl.yaml")
    ccl.write_text("defaults: {algorithm: ring}\nalgorithms: {ring: {plan: ring.et}}\n")
    ahbm.spawn(worker, topology=TOPOLOGY, overrides=FOUR, ccl=ccl)
    emulator = ahbm.Emulator.load(TOPOLOGY, ccl, FOUR)
    first = emulator.algorithm("ring")
    last = traced.with_name("ring.3.et")
    last.write_bytes(last.read_bytes()[:40])
    assert emulator.algorithm("ring") is first
    with pytest.raises(FormatError):
        ahbm.Emulator.load(TOPOLOGY, ccl, FOUR).algorithm("ring")
    last.unlink()
    assert emulator.algorithm("ring") is first
    with pytest.raises(FormatError):
        ahbm.Emulator.load(TOPOLOGY, ccl, FOUR).algorithm("ring")


def test_a_trace_without_buffers_runs_for_its_time(tmp_path: Path) -> None:
    """The public consumer's closed form: 14 hops of 500 ns + 128 KiB at 50 GiB/s, and seven reductions of 7 us."""
    prefix = write(tmp_path / "bare", bare_ring(8, 1 << 20, 7), collective="allreduce")
    link = "system.sips.link"
    overrides = {"system.network_model": "analytic", f"{link}.latency_ns": 500, f"{link}.bandwidth_gbs": 53.6870912}
    plan = read_plan(str(prefix))
    report = timed.run(plan, "bare", TOPOLOGY, overrides=overrides)
    assert report.latency_ns == pytest.approx(14 * (500 + (1 << 17) / 53.6870912) + 7 * 7000, abs=1)
    assert (report.messages, report.bytes, report.collective) == (8 * 14, 14 << 20, "all_reduce")
    assert "time only" in str(report)
    with pytest.raises(UnsupportedError) as caught:
        plans.run(prefix, TOPOLOGY, bytes_per_rank=1 << 20)
    assert caught.value.code == "AHBM-U233"
    with pytest.raises(UnsupportedError) as caught:
        timed.run(plan, "bare", TOPOLOGY, nbytes=1 << 20)
    assert caught.value.code == "AHBM-U232"
    checked = check_file(prefix)
    assert (checked.verdict, checked.min_slots) == ("no_expectation", 1)


def test_lenient_reading_says_what_it_left_out(tmp_path: Path) -> None:
    ranks = bare_ring(2, 64, 1)
    ranks[1].append(node(99, COMP, [77], 1))
    prefix = write(tmp_path / "cut", ranks)
    assert check_file(prefix).verdict == "malformed"
    checked = check_file(prefix, CheckOptions(reading=Reading(lenient=True)))
    assert (checked.verdict, [f.code for f in checked.findings]) == ("no_expectation", ["AHBM-F164"])
    two = ["-t", TOPOLOGY, "--set", "system.sips.count=2"]
    run = CliRunner().invoke
    assert isinstance(run(app, ["run", f"{prefix}.et", *two]).exception, FormatError)
    result = run(app, ["run", f"{prefix}.et", "--lenient", "--json", *two])
    found = json.loads(result.stdout)
    assert [warning["code"] for warning in found["warnings"]] == ["AHBM-F164"]
    assert found["messages"] == 4


def send(at: int, deps: list[int], peer: int) -> bytes:
    return node(at, SEND, deps, comm_size=64, comm_dst=peer, comm_tag=0)


def recv(at: int, deps: list[int], peer: int) -> bytes:
    return node(at, RECV, deps, comm_size=64, comm_src=peer, comm_tag=0)


@pytest.mark.parametrize(
    ("ranks", "code", "origins"),
    [
        ([[node(3, COMP, [8], 1), node(8, COMP, [3], 1)]], "AHBM-F135", ["bad.0.et node 3", "bad.0.et node 8"]),
        ([[node(3, COMP, [7], 1)]], "AHBM-F134", ["bad.0.et node 3"]),
        ([[node(3, COMP, [], 1), node(3, COMP, [], 1)]], "AHBM-F133", ["bad.0.et, byte 8"]),
        ([[send(0, [], 1)], [node(0, COMP, [], 1)]], "AHBM-F137", ["bad.0.et node 0"]),
        ([[send(0, [], 1)], [node(0, RECV, [], comm_size=65, comm_src=0, comm_tag=0)]], "AHBM-F138", None),
        # Every rank receives before it sends.
        (
            [[recv(0, [], 1), send(1, [0], 1)], [recv(0, [], 0), send(1, [0], 0)]],
            "AHBM-D201",
            ["bad.0.et node 0", "bad.1.et node 0"],
        ),
    ],
)
def test_graphs_that_cannot_run(tmp_path: Path, ranks: list[list[bytes]], code: str, origins: list[str] | None) -> None:
    prefix = write(tmp_path / "bad", ranks)
    result = CliRunner().invoke(app, ["check", "--json", f"{prefix}.et"])
    answer = json.loads(result.stdout)
    verdict = "deadlock" if code.startswith("AHBM-D") else "malformed"
    assert (answer["verdict"], result.exit_code) == (verdict, EXIT_CODES[verdict])
    finding = answer["findings"][0]
    assert finding["code"] == code
    if origins is not None:
        assert {Path(origin).name for origin in finding["origins"]} >= set(origins)


def test_a_workload_is_read_and_not_run(tmp_path: Path) -> None:
    ranks = [[node(0, COLLECTIVE, [], comm_type=0, comm_size=1 << 20)] for _ in range(2)]
    prefix = write(tmp_path / "load", ranks)
    checked = check_file(prefix)
    assert (checked.verdict, checked.ranks, checked.ops) == ("unsupported", 2, 2)
    with pytest.raises(UnsupportedError) as caught:
        timed.run(read_plan(str(prefix)), "load", TOPOLOGY)
    assert caught.value.code == "AHBM-U231"


@pytest.mark.parametrize("data", [True, False])
def test_every_run_can_leave_a_trace(traced: Path, tmp_path: Path, data: bool) -> None:
    overrides = {**FOUR, "defaults.n_elem": 64}
    kernel = ahbm.run("all_reduce", topology=TOPOLOGY, overrides=overrides, data=data)
    kernel.write_trace(tmp_path / "kernel")
    plan = plans.run(traced, TOPOLOGY, bytes_per_rank=1 << 12, overrides=FOUR, data=data)
    plan.write_trace(tmp_path / "plan.et")
    for name in ("kernel", "plan"):
        left = read_plan(str(tmp_path / name))
        assert (left.format, left.ranks, left.buffers) == ("chakra", 4, False)
        assert left.ops > 4
    assert kernel.wrong == plan.wrong == (0 if data else None)
    bare = write(tmp_path / "bare", bare_ring(4, 64, 1))
    timed.run(read_plan(str(bare)), "bare", TOPOLOGY, overrides=FOUR).write_trace(tmp_path / "again")
    assert read_plan(str(tmp_path / "again")).ranks == 4


CLAIMING = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16"):
    return (n_elem, world_size, op, dtype)


def kernel(t_ptr, n, w, op, dtype, sip_rank, k, tw, th, *, tl):
    acc = cur = tl.load(t_ptr, shape=(n,), dtype=dtype)
    claims = [tl.recv_async("global_W", (n,), dtype) for _ in range(w - 1)]
    for claim in claims:
        tl.send(dir="global_E", src=cur)
        cur = WAIT
        acc = tl.combine(acc, cur, op)
    tl.store(t_ptr, acc)
"""


@pytest.mark.parametrize("wait", ["tl.wait(claim)", "acc"])
def test_what_is_claimed_without_waiting_is_received(wait: str, here: Path) -> None:
    Path("claiming.py").write_text(CLAIMING.replace("WAIT", wait), encoding="utf-8")
    report = ahbm.run(algorithm="./claiming.py", topology="npu_ring_8", bytes_per_rank=1 << 12, data=False)
    report.write_trace("run")
    plan = read_plan("run")
    assert plan.ranks == 8 and check_file("run").verdict in ("correct", "no_expectation")
    again = timed.run(plan, "run", "npu_ring_8")
    assert again.messages == report.messages == 8 * 7


def test_the_command(traced: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    machine = ["-t", TOPOLOGY, "--set", "system.sips.count=4"]
    result = run(app, ["run", str(traced), "--size", "64K", *machine, "--et", str(tmp_path / "left")])
    assert result.exit_code == 0
    assert "0 wrong" in result.stdout
    assert sorted(path.name for path in tmp_path.glob("left.*.et")) == [f"left.{rank}.et" for rank in range(4)]
    bare = write(tmp_path / "bare", bare_ring(4, 64, 1))
    for arguments in (
        [f"{bare}.et", "--protocol", "LL"],
        ["--et", "left", "x.py"],
        ["--lenient", "x.py"],
    ):
        found = run(app, ["run", *arguments, *machine]).exception
        assert isinstance(found, ConfigError)
        assert found.code == "AHBM-C146"


@pytest.mark.parametrize(
    ("collective", "topology"), [("all_reduce", None), ("all_reduce", "npu_ring_8"), ("broadcast", "npu_mesh_4x4")]
)
def test_the_trace_of_a_run_can_be_run(collective: str, topology: str | None, here: Path) -> None:
    """Its memory nodes take the time that they took."""
    report = ahbm.run(collective, topology=topology, bytes_per_rank=4096)
    report.write_trace("run")
    again = ahbm.open("run", topology=topology).run()
    assert (again.ranks, again.messages) == (report.ranks, report.messages)
    assert 0.3 < again.latency_ns / report.latency_ns < 1.5


def test_a_trace_of_no_known_size_has_no_protocol_and_says_so(tmp_path: Path) -> None:
    # Half a ring performs nothing that has a size.
    half = [nodes[: len(nodes) // 2] for nodes in bare_ring(8, 1 << 20, 0)]
    trace = f"{write(tmp_path / 'bare', half)}.0.et"
    told = "note: without a protocol of the machine's library, which has few_bytes, ll, simple, ring_ll, ring_simple"
    run = CliRunner().invoke
    for command in ("run", "explain", "inspect"):
        out = run(app, [command, trace, "-t", "p5"]).stdout
        assert out.count(told) == 1
        assert "of the machine's library" in run(app, [command, trace, "-t", "p5", "--json"]).stdout
        named = run(app, [command, trace, "-t", "p5", "--set", "protocol=simple"]).stdout
        assert named.count("note: a protocol without its ramp, simple: ") == 1
        assert "a protocol" not in run(app, [command, trace, "-t", "p5", "--set", "protocol=ll"]).stdout
        assert "a protocol" not in run(app, [command, trace, "-t", "npu_switch_8"]).stdout
