"""One question, two ways to ask it: all ranks, and one rank that stands for all of them. The answers are equal, to the
picosecond."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import torchrun
from test_device import run
from torch.distributed.device_mesh import init_device_mesh

import ahbm
import ahbm.torch
from ahbm.base.request import Request
from ahbm.errors import UnsupportedError
from ahbm.torch import place as places_of
from ahbm.torch import places, report
from ahbm.torch.alone import Alone
from ahbm.torch.device.lanes import Lanes
from support.choosing import compiled

Program = Callable[[int, int, Lanes], None]
"""What a rank of so many does; kernels are written into the lanes."""
MACHINES: dict[str, dict[str, Any]] = {
    "ring": {"topology": "npu_ring_8"},
    "default": {"overrides": {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}},
    "torus": {
        "overrides": {
            "sip.cube_mesh.w": 1,
            "sip.cube_mesh.h": 1,
            "system.sips.topology": "torus_2d",
            "system.sips.count": 8,
            "system.sips.w": 4,
            "system.sips.h": 2,
        }
    },
    "launched": {"topology": "dgx_h100"},
}


@contextmanager
def written() -> Iterator[dict[int, Lanes]]:
    """Every rank's calls are written down."""
    found: dict[int, Lanes] = {}

    def opened(place: places_of.Place, *_: object) -> None:
        place.lanes = found.setdefault(place.rank, Lanes(10))

    places.on_open.append(opened)
    before, places_of.devices[0] = places_of.devices[0], True
    try:
        yield found
    finally:
        places.on_open.remove(opened)
        places_of.devices[0] = before


def by_all(program: Program, ranks: int, folder: Path, machine: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """What a replay of all ranks says, and the table of the run."""
    seats: list[Any] = []

    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        (place,) = places.places()
        program(rank, ranks, place.lanes)
        place.synchronize()
        if rank == 0:
            seats.append(place.seat)
        dist.destroy_process_group()

    with written() as lanes:
        ahbm.torch.spawn(worker, world_size=ranks, **machine)
    for rank in range(ranks):
        lanes[rank].write(folder / "all", rank, ranks, None)
    return answer(folder / "all", machine), report.text(seats[0].ledger)


def by_one(
    program: Program, ranks: int, folder: Path, machine: dict[str, Any], rank: int = 0
) -> tuple[dict[str, Any], str]:
    """The same of one rank that stands for all."""
    with written() as lanes:
        ahbm.torch.init_alone(rank, ranks, **machine)
        try:
            (place,) = places.places()
            program(rank, ranks, place.lanes)
            place.synchronize()
            assert isinstance(place.seat, Alone)
            table = report.text(place.seat.ledger)
            lanes[rank].write(folder / "one", rank, ranks, place.seat.families.known)
        finally:
            dist.destroy_process_group()
    assert [file.name for file in folder.glob("one*")] == ["one.0.et"]
    return answer(folder / "one", machine), table


def answer(job: Path, machine: dict[str, Any]) -> dict[str, Any]:
    """All figures of a replay, without the places of its files."""
    found = ahbm.open(job, kind="job", **machine).run()
    assert len({found.latency_ns, ahbm.open(job, kind="job", fold=False, **machine).run().latency_ns}) == 1
    by_line = sorted(json.dumps(asdict(call), sort_keys=True) for call in found.calls)
    exposed = sorted((one.rank, one.exposed_ns, one.waiting_ns) for one in found.exposed)
    return {
        "step": found.latency_ns,
        "ranks": found.ranks,
        "calls": by_line,
        "exposed": exposed,
        "path": found.on_path(),
    }


def pairs(rank: int, ranks: int, lanes: Lanes) -> None:
    """Pairs whose calls share the links of a ring."""
    half = ranks // 2
    groups = [dist.new_group([i, i + half]) for i in range(half)]
    dist.all_reduce(torch.ones(1 << 16), group=groups[rank % half])


def grid(rank: int, ranks: int, lanes: Lanes) -> None:
    """Tensor-parallel neighbours, then data-parallel ranks at a distance."""
    near = [dist.new_group([i, i + 1]) for i in range(0, ranks, 2)]
    far = [dist.new_group(range(i, ranks, 2)) for i in range(2)]
    lanes.kernel("mm", 1 << 30, 1 << 20, "f16", False)
    dist.all_reduce(torch.ones(1 << 16), group=near[rank // 2])
    dist.all_reduce(torch.ones(1 << 16), group=far[rank % 2])


def overlapping(rank: int, ranks: int, lanes: Lanes) -> None:
    """Two groups of all ranks, whose calls overlap."""
    groups = [dist.new_group(range(ranks)) for _ in range(2)]
    works = [dist.all_reduce(torch.ones(1 << 16), group=group, async_op=True) for group in groups]
    for work in works:
        work.wait()  # type: ignore[union-attr]


def in_turn(rank: int, ranks: int, lanes: Lanes) -> None:
    """Calls of all ranks, one after the other, beside kernels."""
    for _ in range(4):
        lanes.kernel("mm", 1 << 30, 1 << 20, "tf32", False)
        lanes.kernel("copy_", 0, 1 << 20, "f16", True)
        dist.all_reduce(torch.ones(1 << 16))


def by_mesh(rank: int, ranks: int, lanes: Lanes) -> None:
    """The groups of a mesh of devices, and roots."""
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "tp"))
    rows, columns = mesh["tp"].get_group(), mesh["dp"].get_group()
    dist.broadcast(torch.ones(1 << 12), group=rows, group_src=1)
    work = dist.all_gather_into_tensor(torch.ones(ranks // 2, 64), torch.ones(64), group=rows, async_op=True)
    dist.reduce(torch.ones(1 << 14), group=columns, group_dst=1)
    work.wait()  # type: ignore[union-attr]


def by_splitting(rank: int, ranks: int, lanes: Lanes) -> None:
    """Parts of a group, and parts of these."""
    quarter = [list(range(i, i + ranks // 2)) for i in range(0, ranks, ranks // 2)]
    half: Any = dist.split_group(dist.group.WORLD, quarter)
    inner: Any = dist.split_group(half, [[i, i + ranks // 4] for i in range(ranks // 4)])
    dist.all_reduce(torch.ones(1 << 14), group=half)
    dist.all_reduce(torch.ones(1 << 14), group=inner)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("program", [pairs, grid, overlapping, in_turn, by_mesh, by_splitting])
def test_both_ways_give_one_answer(program: Program, machine: str, tmp_path: Path) -> None:
    whole = by_all(program, 8, tmp_path, MACHINES[machine])
    for rank in (0, 5):
        assert by_one(program, 8, tmp_path, MACHINES[machine], rank) == whole


def beside(at: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    """A place in a mesh but for its coordinates along `axes`."""
    return [n for i, n in enumerate(at) if i not in axes]


def meshes(seed: int) -> Program:
    """Groups along dimensions of a random mesh, made in a random manner, and calls of them beside kernels."""
    dice = random.Random(seed)
    shape = dice.choice([(2, 2, 2), (2, 4), (4, 2), (8,), (2, 2)])
    axes = [axes for n in range(1, len(shape) + 1) for axes in itertools.combinations(range(len(shape)), n)]
    manner = dice.choice(["in turn", "by rank", "shuffled"])
    steps = [
        (
            dice.choice(["kernel", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier"]),
            dice.randrange(len(axes)),
            dice.choice([64, 4096, 65536]),
            dice.random() < 0.5,
            dice.random(),
        )
        for _ in range(8)
    ]

    def program(rank: int, ranks: int, lanes: Lanes) -> None:
        at = list(itertools.product(*map(range, shape)))
        families = [
            sorted({tuple(r for r in range(ranks) if beside(at[r], of) == beside(at[own], of)) for own in range(ranks)})
            for of in axes
        ]
        made: dict[tuple[int, tuple[int, ...]], Any] = {}
        order = [(number, group) for number, family in enumerate(families) for group in family]
        if manner == "by rank":  # every rank's groups of all kinds, then those of the next
            by_rank = [(n, g) for r in range(ranks) for n, f in enumerate(families) for g in f if r in g]
            order = list(dict.fromkeys(by_rank))
        if manner == "shuffled":
            random.Random(seed).shuffle(order)
        for number, group in order:
            made[number, group] = dist.new_group(list(group))
        works = []
        for what, number, count, waits, part in steps:
            (ranks_of,) = (group for group in families[number] if rank in group)
            group, n = made[number, ranks_of], len(ranks_of)
            work: Any = None
            if what == "kernel":
                lanes.kernel("mm", count << 16, count, "f32", False)
            elif what == "all_reduce":
                work = dist.all_reduce(torch.ones(count), group=group, async_op=True)
            elif what == "all_gather":
                work = dist.all_gather_into_tensor(torch.ones(n * count), torch.ones(count), group=group, async_op=True)
            elif what == "reduce_scatter":
                work = dist.reduce_scatter_tensor(torch.ones(count), torch.ones(n * count), group=group, async_op=True)
            elif what == "all_to_all":
                work = dist.all_to_all_single(torch.ones(n * count), torch.ones(n * count), group=group, async_op=True)
            elif what == "broadcast":
                work = dist.broadcast(torch.ones(count), group=group, group_src=int(part * n), async_op=True)
            else:
                work = dist.barrier(group=group, async_op=True)
            if work is not None and waits:
                work.wait()
            elif work is not None:
                works.append(work)
        for work in works:
            work.wait()

    program.__doc__ = f"{shape}"
    return program


@pytest.mark.parametrize("seed", range(12))
def test_both_ways_give_one_answer_on_random_meshes(seed: int, tmp_path: Path) -> None:
    program = meshes(seed)
    ranks = 4 if program.__doc__ == "(2, 2)" else 8
    machine = MACHINES[sorted(MACHINES)[seed % len(MACHINES)]]
    assert by_one(program, ranks, tmp_path, machine, seed % ranks) == by_all(program, ranks, tmp_path, machine)


def test_the_clock_of_one_rank_is_that_of_all() -> None:
    """Calls of groups beside each other take as long as they do with the others."""
    machine = MACHINES["ring"]
    ahbm.torch.init_alone(2, 8, **machine)
    try:
        (place,) = places.places()
        with written():
            pairs(2, 8, Lanes(1))
            place.synchronize()
        assert isinstance(place.seat, Alone)
        together = place.now_ps()
        alone = compiled(place.seat.emulator, Request("all_reduce", (2, 6), 1 << 16, "f32")).latency_ps
        assert together > 2 * alone
        assert [place.now_ps()] * 8 == place.seat.ledger.times().clocks
        dist.all_reduce(torch.ones(1 << 16))
        assert place.now_ps() == place.seat.ledger.times().clocks[2] > together
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("groups", "others"),
    [([[0, 1]], 0), ([[0, 1], [1, 2]], 1), ([[0, 1], [2, 3, 4]], 0), ([[0, 1, 2], [3, 4, 5], [5, 6, 7]], 2)],
)
def test_groups_that_make_no_mesh_are_refused(groups: list[list[int]], others: int) -> None:
    ahbm.torch.init_alone(0, 8, **MACHINES["default"])
    try:
        made = [dist.new_group(group) for group in groups]
        with pytest.raises(UnsupportedError, match=f"AHBM-U157.*{others} other groups of as many ranks"):
            dist.all_reduce(torch.ones(4), group=made[0])
        alone = [dist.new_group([rank]) for rank in (0, 3)]
        dist.all_reduce(torch.ones(4), group=alone[0])
        own = dist.new_group([0, 1, 2, 3], use_local_synchronization=True)
        with pytest.raises(UnsupportedError, match="AHBM-U157"):
            dist.all_reduce(torch.ones(4), group=own)
    finally:
        dist.destroy_process_group()


GRID = """\
import torch, torch.distributed as dist
dist.init_process_group('nccl')
r, n = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(r % torch.cuda.device_count())
near = [dist.new_group([i, i + 1]) for i in range(0, n, 2)]
far = [dist.new_group(list(range(i, n, 2))) for i in range(2)]
net = torch.nn.Linear(256, 256, device='cuda')
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    net(torch.ones(64, 256).cuda()).sum().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, group=near[r // 2])
        dist.all_reduce(p.grad, group=far[r % 2])
    optimizer.step()
torch.cuda.synchronize()
dist.destroy_process_group()
"""


def test_a_script_is_answered_alike_by_one_process_and_by_all(tmp_path: Path) -> None:
    script, found = tmp_path / "grid.py", []
    script.write_text(GRID)
    for kernels in ("", "addmm=50,copy=3"):
        env = {"AHBM_TOPOLOGY": "npu_ring_8", "AHBM_PAGE": "0", "AHBM_KERNELS": kernels}
        for number in range(2):
            target = tmp_path / f"{number}{bool(kernels)}"
            if number:
                done = run("--device", "cuda", "--ranks", "4", str(script), AHBM_REPORT=str(target), **env)
            else:
                started = ("-m", "ahbm.torch", "--device", "cuda")
                done = torchrun(script, 4, launcher=started, AHBM_REPORT=str(target), **env)
            assert done.returncode == 0, done.stderr
            told = json.loads((target / "answer.json").read_text())
            found.append(told | {key: told[key][:1] for key in ("memory", "memory_peak_bytes")})
            replayed = ahbm.open(target / "step", kind="job", topology="npu_ring_8").run()
            if not kernels:
                assert replayed.latency_ns / found[-1]["steps"] == found[-1]["step_ns"]
    assert found[0] == found[1] and found[2] == found[3]
    assert found[2]["step_ns"] > found[0]["step_ns"]
    assert found[2]["notes"][0] == "AHBM_KERNELS: addmm takes 50 times as long, copy takes 3 times as long"
