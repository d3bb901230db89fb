"""Kernels as files: what is written does what the kernel does, right or wrong; what no plan can say is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.check.reference import inputs
from ahbm.cli import app
from ahbm.config.ccl import CclConfig
from ahbm.errors import AhbmError, BudgetError, ConfigError, UnsupportedError
from ahbm.runs import plans
from ahbm.runs.measure import prepare
from ahbm.runs.verdict import CheckOptions, check_file
from planted.generator import cases as generated
from planted.judge.calls import NUMBERS, Kernel

FORMATS = ("xml", "json", "et")
IN_SWITCHES = (
    "nvls_allreduce",
    "nvls_all_gather",
    "nvls_reduce_scatter",
    "nvls_tree_allreduce",
    "collnet_direct_allreduce",
)
UNSTATED = ("direct_send_recv", "dissemination_barrier", *IN_SWITCHES)
STATED = [name for name in CclConfig.packaged().algorithms if name not in UNSTATED]
Body = Callable[[Any, int, int, int], None]


def ranks(count: int) -> dict[str, object]:
    return {"system.sips.count": count, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}


def kernel_of(body: Body, collective: str = "all_reduce") -> Any:
    """An algorithm whose kernel calls `body(tl, rank, ranks, elements)`; its array of f32 begins at address 0."""

    class At:
        def __init__(self, tl: Any, start: int) -> None:
            self.tl, self.start = tl, start

        def __getattr__(self, name: str) -> Any:
            return getattr(self.tl, name)

        def load(self, first: int, count: int) -> Any:
            return self.tl.load(self.start + 4 * first, shape=(count,), dtype="f32")

        def store(self, first: int, value: Any) -> None:
            self.tl.store(self.start + 4 * first, value)

        def recv(self, way: str, count: int) -> Any:
            return self.tl.recv(dir=way, shape=(count,), dtype="f32")

        def post(self, way: str, count: int) -> Any:
            return self.tl.recv_async(dir=way, shape=(count,), dtype="f32")

    def kernel(t_ptr: int, n: int, world: int, rank: int, kind: int, w: int, h: int, *, tl: Any) -> None:
        body(At(tl, t_ptr), rank, world, n)

    def kernel_args(world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, dtype: str = "f32") -> Any:
        return (n_elem, world_size)

    return ahbm.algorithm(kernel, kernel_args=kernel_args, collective=collective, name=body.__name__)


def write(body: Body, path: Path, count: int = 3, nbytes: int = 96, **more: Any) -> Path:
    ahbm.convert(kernel_of(body), path, overrides=ranks(count), dtype="f32", nbytes=nbytes, **more)
    return path


def rotate(tl: Any, rank: int, world: int, n: int) -> None:
    total = current = tl.load(0, n)
    for _ in range(world - 1):
        tl.send(dir="global_E", src=current)
        current = tl.recv("global_W", n)
        total = total + current
    tl.store(0, total)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize(("topology", "count"), [("npu_ring_8", None), (None, 4), (None, 3)])
def test_what_comes_with_the_package_is_right_in_every_format(
    name: str, topology: str | None, count: int | None, tmp_path: Path
) -> None:
    overrides = {} if count is None else ranks(count)
    for suffix in FORMATS:
        path = tmp_path / f"{name}.{suffix}"
        ahbm.convert(name, path, topology=topology, overrides=overrides, nbytes=24 * 1024)
        assert check_file(path).verdict == "correct", suffix
        report = plans.run(path, topology, overrides=overrides, bytes_per_rank=24 * 1024)
        assert (report.wrong, report.ranks) == (0, count or 8), suffix


def test_a_file_is_as_quick_as_its_kernel(tmp_path: Path) -> None:
    """On a plain machine, where one PE does the work of a rank either way."""
    for name in ("ring_allreduce", "recursive_doubling_allreduce"):
        path = tmp_path / f"{name}.xml"
        ahbm.convert(name, path, topology="npu_ring_8", nbytes=1 << 16)
        options = plans.Options(slice_bytes=1 << 30, slots=4)
        file = plans.run(path, "npu_ring_8", options, bytes_per_rank=1 << 16)
        kernel = ahbm.run("all_reduce", name, "npu_ring_8", bytes_per_rank=1 << 16)
        assert file.messages == kernel.messages
        assert file.latency_ns == pytest.approx(kernel.latency_ns, rel=0.05)


def test_a_ring_is_one_thread_block_that_takes_and_adds(tmp_path: Path) -> None:
    ahbm.convert("ring_allreduce", tmp_path / "ring.xml", overrides={"system.sips.count": 4})
    lines = (tmp_path / "ring.xml").read_text().splitlines()
    assert 'nchannels="1" nchunksperloop="4" ngpus="4" coll="allreduce" inplace="1"' in lines[0]
    kinds = [line.split('type="')[1].split('"')[0] for line in lines if "<step" in line]
    assert kinds == 4 * ["s", "rrc", "s", "rrc", "s", "rrc", "s", "r", "s", "r", "s", "r"]
    assert sum("<tb " in line for line in lines) == 4


def scripted(seed: int) -> tuple[Body, int]:
    """A kernel that loads, adds, stores and passes on at random, and how many elements it has; no collective at all."""

    def script(tl: Any, rank: int, world: int, n: int) -> None:
        chance, values = Random(seed), []
        for _ in range(chance.randrange(2, 9)):
            for _ in range(chance.randrange(4)):
                size = chance.choice([2, 4])
                match chance.randrange(4):
                    case 0:
                        values.append(tl.load(chance.randrange(0, n - size + 1, 2), size))
                    case 1 if values:
                        value = chance.choice(values)
                        tl.store(chance.randrange(0, n - value.shape[0] + 1, 2), value)
                    case 2 if values:
                        value = chance.choice(values)
                        alike = [other for other in values if other.shape == value.shape]
                        values.append(value + chance.choice(alike))
                    case _:
                        values = values[len(values) // 2 :]
            sent = [chance.choice(values) for _ in range(chance.randrange(3))] if values else []
            ways = [chance.choice([("global_E", "global_W"), ("global_W", "global_E")]) for _ in sent]
            posted = [
                tl.post(back, value.shape[0]) if chance.random() < 0.3 else None
                for value, (_, back) in zip(sent, ways, strict=True)
            ]
            for value, (way, _) in zip(sent, ways, strict=True):
                tl.send(dir=way, src=value)
            arrived = [
                tl.wait(future) if future is not None else tl.recv(back, value.shape[0])
                for value, (_, back), future in zip(sent, ways, posted, strict=True)
            ]
            if arrived and chance.random() < 0.5:
                tl.store(chance.randrange(0, n - arrived[0].shape[0] + 1, 2), arrived[0])
            values += arrived

    return script, Random(seed).choice([4, 8, 10, 16])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_kernels_leave_the_same_bytes(seed: int, tmp_path: Path) -> None:
    body, n = scripted(seed)
    try:
        write(body, tmp_path / "script.xml", nbytes=4 * n)
    except AhbmError as error:
        # A posted receive may be overtaken by a plain one of another size: then there is no such kernel.
        assert error.findings[0].code.startswith("AHBM-L")
        return
    arguments: dict[str, Any] = {"bytes_per_rank": 4 * n, "dtype": "f32", "overrides": ranks(3)}
    kernel = prepare("all_reduce", kernel_of(body), **arguments)
    given = inputs(kernel.request, "integers", seed)
    _, wanted = kernel.execute(given)
    for suffix in ("xml", "json"):
        if suffix == "json":
            # Chunks of execution plans are multiples of 16 bytes.
            write(body, tmp_path / "script.json", nbytes=4 * n)
            arguments["bytes_per_rank"] *= 8
            given = [np.repeat(array, 8) for array in given]
            wanted = [np.repeat(array, 8) for array in wanted]
        plan = plans.prepare(tmp_path / f"script.{suffix}", None, plans.Options(slots=4), **arguments)
        _, found = plan.execute(given)
        assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True)), suffix


def lost(tl: Any, rank: int, world: int, n: int) -> None:
    tl.send(dir="global_E", src=tl.load(0, n))
    tl.store(0, tl.load(0, n) + tl.recv("global_W", n))


def stuck(tl: Any, rank: int, world: int, n: int) -> None:
    total = tl.load(0, n)
    for _ in range(world - 1):
        current = tl.recv("global_W", n)
        tl.send(dir="global_E", src=total)
        total = total + current
    tl.store(0, total)


def burst(tl: Any, rank: int, world: int, n: int) -> None:
    """Three messages on their way before the first is taken."""
    own = tl.load(0, n)
    for way in ("global_E", "global_E", "global_E"):
        tl.send(dir=way, src=own)
    total = own
    for _ in range(3):
        total = total + tl.recv("global_W", n)
    tl.store(0, total)


def posted(tl: Any, rank: int, world: int, n: int) -> None:
    """As many messages on their way as nothing but posted receives can take."""
    own = total = tl.load(0, n)
    futures = [tl.post("global_W", n) for _ in range(6)]
    for _ in range(6):
        tl.send(dir="global_E", src=own)
    for future in futures:
        total = total + tl.wait(future)
    tl.store(0, total)


@pytest.mark.parametrize(
    ("body", "slots", "verdict"),
    [(rotate, 2, "correct"), (lost, 2, "wrong"), (stuck, 2, "deadlock"), (burst, 2, "deadlock"), (burst, 3, "wrong"),
     (posted, 1, "wrong")],
)  # fmt: skip
def test_a_wrong_kernel_is_a_wrong_file(body: Body, slots: int, verdict: str, tmp_path: Path) -> None:
    for suffix in ("xml", "et"):
        path = write(body, tmp_path / f"{body.__name__}.{suffix}")
        assert check_file(path, CheckOptions(slots=slots)).verdict == verdict, suffix


BUGS = (
    "contribution lost",
    "contribution doubled",
    "stale value",
    "store dropped",
    "offset shifted",
    "messages swapped",
)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_random_bugs_are_judged_alike_in_kernel_and_file(bug: str, tmp_path: Path) -> None:
    judged = 0
    for number in range(8):
        case = generated.case(f"files/{number}", "kernel", tmp_path, bug)
        kernel = case.program.subject
        assert isinstance(kernel, Kernel)
        if kernel.op != "sum" or kernel.root:
            continue
        overrides = {**ranks(kernel.ranks), "defaults.n_slots": kernel.slots}
        nbytes = np.dtype(NUMBERS[kernel.dtype]).itemsize * kernel.elements
        path = tmp_path / "case.xml"
        try:
            ahbm.convert(tmp_path / "case.py", path, overrides=overrides, nbytes=nbytes, dtype=kernel.dtype)
        except AhbmError as error:
            # No plan has the operation, or the kernel cannot be captured at all.
            assert error.code == "AHBM-U294" or case.checked.verdict == "malformed"
            continue
        found = check_file(path, CheckOptions(slots=kernel.slots))
        assert found.verdict == case.checked.verdict, case.program.name
        judged += 1
    assert judged


def test_an_execution_plan_has_the_slots_of_the_kernel(tmp_path: Path) -> None:
    assert check_file(write(burst, tmp_path / "four.json")).verdict == "wrong"
    assert check_file(write(burst, tmp_path / "two.json", slots=2)).verdict == "deadlock"


def test_a_finding_names_the_line_of_the_kernel() -> None:
    emulator = ahbm.Emulator.load(overrides=ranks(3))
    case = prepare("all_reduce", kernel_of(lost), emulator=emulator, dtype="f32", bytes_per_rank=96)
    _, _, findings, _ = emulator.plan(case.request, case.algorithm).check()
    assert any(f"{Path(__file__).name}:" in site["origin"] for finding in findings for site in finding["sites"])


REFUSED: dict[str, tuple[Body, str]] = {
    "exp f32[24]": (lambda tl, rank, world, n: tl.store(0, tl.exp(tl.load(0, n))), "nothing else"),
    "mul f32[24]": (lambda tl, rank, world, n: tl.store(0, tl.load(0, n) * 2), "nothing else"),
    "max f32[24]": (lambda tl, rank, world, n: tl.store(0, tl.maximum(tl.load(0, n), tl.load(0, n))), "kernels add"),
    "full f32[24]": (lambda tl, rank, world, n: tl.store(0, tl.zeros((n,), "f32")), "no numbers of its own"),
    "cast f16[24]": (lambda tl, rank, world, n: tl.cast(tl.load(0, n), "f16"), "one element type"),
    "recv(dir=None) f32[24]": (
        lambda tl, rank, world, n: (tl.send(dir="global_E", src=tl.load(0, n)), tl.recv(None, n))[1],
        "whose message is next",
    ),
    "add f32[24]": (lambda tl, rank, world, n: tl.store(0, tl.load(0, n) + tl.load(0, 1)), "repeats no elements"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_operation_that_no_plan_has_is_named_with_its_line(what: str, tmp_path: Path) -> None:
    body, why = REFUSED[what]
    with pytest.raises(UnsupportedError) as caught:
        write(body, tmp_path / "no.xml")
    (finding,) = caught.value.findings
    assert finding.code == "AHBM-U294"
    assert finding.message.startswith(f"{what} of <lambda>: ")
    assert finding.message.endswith(why)
    assert Path(__file__).name in finding.sites[0].origin
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["direct_send_recv", "dissemination_barrier"])
def test_what_is_no_collective_of_plans_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="which no plan states") as caught:
        ahbm.convert(name, tmp_path / "no.json")
    assert caught.value.code == "AHBM-U294"


@pytest.mark.parametrize("name", IN_SWITCHES)
def test_what_a_switch_does_is_no_step_of_a_plan(name: str, tmp_path: Path) -> None:
    nodes = {"topology": "nodes", "nodes.size": 2, "nodes.reduces": True, "nodes.spine_reduces": True}
    with pytest.raises(UnsupportedError) as caught:
        ahbm.convert(name, tmp_path / "no.json", overrides=ranks(4) | {f"system.sips.{k}": v for k, v in nodes.items()})
    assert caught.value.code == "AHBM-U294" and f"{name}.py" in caught.value.findings[0].sites[0].origin


def test_a_size_of_too_many_chunks_is_refused_with_their_number(tmp_path: Path) -> None:
    with pytest.raises(BudgetError) as caught:
        ahbm.convert("ring_allreduce", tmp_path / "no.xml", overrides=ranks(7), nbytes=1 << 20)
    (finding,) = caught.value.findings
    assert (finding.code, finding.sites[0].label) == (
        "AHBM-B211",
        "ring_allreduce cuts 1048576 bytes into 524288 chunks of 2 bytes",
    )
    limits = [("cells", 1 << 23)]
    assert ahbm.convert("ring_allreduce", tmp_path / "no.xml", overrides=ranks(7), nbytes=1 << 20, limits=limits)


def test_a_root_is_kept_where_the_format_has_one(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"overrides": ranks(4), "root": 2}
    with pytest.raises(UnsupportedError) as caught:
        ahbm.convert("binomial_reduce", tmp_path / "no.xml", **arguments)
    assert caught.value.code == "AHBM-U292"
    ahbm.convert("binomial_reduce", tmp_path / "rooted.et", **arguments)
    assert check_file(tmp_path / "rooted.et").verdict == "correct"


KERNEL = """
COLLECTIVE = ("all_reduce", "reduce")


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n, world, dtype, rank, kind, w, h, *, tl):
    total = current = tl.load(t_ptr, shape=(n,), dtype=dtype)
    for _ in range(world - 1):
        tl.send(dir="global_E", src=current)
        current = tl.recv(dir="global_W", shape=(n,), dtype=dtype)
        total = total + current
    tl.store(t_ptr, total)
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(KERNEL)

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["convert", *arguments])

    for arguments in (
        ["-a", "ring_allreduce", "--ranks", "4", "-o", "a.xml"],
        ["-a", "ring_allreduce", "a.xml", "--ranks", "4"],
        ["all_reduce", "a.xml", "-a", "ring_allreduce", "--ranks", "4"],
        ["ring_allreduce", "--ranks", "4", "-o", "a.xml"],
        ["all_reduce", "--ranks", "4", "-a", "mine.py", "-o", "a.xml"],
        ["all_gather", "--ranks", "4", "-o", "a.xml"],
    ):
        Path("a.xml").unlink(missing_ok=True)
        result = invoke(*arguments, "--json")
        assert result.exit_code == 0, (arguments, result.exception)
        assert json.loads(result.stdout)["files"] == ["a.xml"]
        assert check_file("a.xml").verdict == "correct"
    Path("mine.py").write_text(KERNEL.replace('("all_reduce", "reduce")', '"reduce"'))
    assert invoke("mine.py", "--ranks", "4", "--size", "1M", "-o", "reduce.json").exit_code == 0
    assert check_file("reduce.json").collective == "reduce"
    Path("mine.py").write_text(KERNEL)
    for arguments, code in [
        (["mine.py", "-o", "b.xml"], "AHBM-C146"),
        (["-a", "ring_allreduce"], "AHBM-C146"),
        (["-o", "b.xml"], "AHBM-C146"),
        (["a.xml", "b.xml", "-a", "ring_allreduce"], "AHBM-C146"),
        (["a.xml", "b.xml", "--ranks", "4"], "AHBM-C146"),
        (["ring_allreduce", "b.xml", "--quirks"], "AHBM-C146"),
        (["no_such_kernel", "-o", "b.xml"], "AHBM-C110"),
        (["all_gather", "-a", "ring_allreduce", "-o", "b.xml"], "AHBM-C115"),
        (["-a", "ring_allreduce", "-o", "b.txt"], "AHBM-U291"),
    ]:
        error = invoke(*arguments).exception
        assert isinstance(error, ConfigError | UnsupportedError), (arguments, error)
        assert error.code == code, arguments
    assert not Path("b.xml").exists()


def test_a_file_named_like_a_kernel_runs_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ahbm.convert("ring_allreduce", "ring_allreduce.xml", topology="npu_ring_8")
    for algorithm in ("ring_allreduce.xml", "ring_allreduce"):
        report = ahbm.run("all_reduce", algorithm, "npu_ring_8", bytes_per_rank=1 << 16)
        assert (report.algorithm, report.wrong) == (algorithm.replace(".", "_"), 0)
