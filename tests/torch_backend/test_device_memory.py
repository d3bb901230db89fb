"""The memory of a device that is not there: torch's allocator, and its end."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from test_device import run

from ahbm.torch.device import memory
from ahbm.torch.device.memory import MIB, Memory

MACHINE = """\
system: {sips: {count: 1}}
cube: {memory_map: {hbm_total_gb: 1}}
sip: {cube_mesh: {w: 1, h: 1}}
"""


def device(capacity: int = 1 << 40) -> Memory:
    """A memory of so many bytes."""
    made = Memory(0)
    made._capacity = capacity
    return made


def test_sizes_are_rounded_as_torch_rounds_them() -> None:
    held = device()
    held.allocate(1)
    assert (held.allocated.now, held.reserved.now, held.requested.now) == (512, 2 * MIB, 1)
    middle = held.allocate(MIB + 1)
    assert (held.allocated.now, held.reserved.now) == (512 + MIB + 512, 22 * MIB)
    held.allocate(9 * MIB)  # from what is left of the same segment
    assert held.reserved.now == 22 * MIB
    large = held.allocate(11 * MIB + 1)
    assert held.reserved.now == 34 * MIB and large.block.size == 12 * MIB  # a rest of up to 1 MiB stays
    held.free(large)
    held.allocate(11 * MIB)  # the block that was freed
    assert held.reserved.now == 34 * MIB
    held.free(middle)
    held.empty_cache()  # its segment is in use
    assert held.reserved.now == 34 * MIB


def test_whatever_is_freed_is_whole_again() -> None:
    draw = random.Random(0)
    held, alive = device(), []
    for _ in range(2000):
        if alive and draw.random() < 0.5:
            held.free(alive.pop(draw.randrange(len(alive))))
        else:
            alive.append(held.allocate(draw.choice([100, 5000, MIB, 3 * MIB, 30 * MIB]) + draw.randrange(5000)))
        assert held.allocated.now == sum(use.block.size for use in alive) <= held.reserved.now
    for use in alive:
        held.free(use)
    held.empty_cache()
    assert held.allocated.now == held.reserved.now == 0 and held.segments.now == 0


@pytest.mark.parametrize("expandable", [False, True])
def test_what_is_free_is_given_back_before_the_memory_ends(expandable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.config, "expandable", expandable)
    held = device(200 * MIB)
    for use in [held.allocate(40 * MIB) for _ in range(4)]:
        held.free(use)
    kept = held.allocate(180 * MIB)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 40.00 MiB. GPU 0 has a total"):
        held.allocate(40 * MIB)
    held.free(kept)
    held.allocate(40 * MIB)
    assert held.ooms == 1


def test_a_segment_that_expands_leaves_no_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    def reserved() -> int:
        held = device()
        for size in range(20, 60, 2):
            held.free(held.allocate(size * MIB))
        return held.reserved.now

    plain = reserved()
    monkeypatch.setattr(memory.config, "expandable", True)
    assert reserved() == 60 * MIB < plain


HALVES = """\
import torch
net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
optimizer = torch.optim.Adam(net.parameters())
batch, tried = 1 << 17, 0
while True:
    try:
        for _ in range(3):
            net(torch.ones(batch, 1024, device='cuda')).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        break
    except torch.cuda.OutOfMemoryError as error:
        assert 'CUDA out of memory. Tried' in str(error) and 'GPU 0 has a total capacity of 1024.00 MiB' in str(error)
        batch, tried = batch // 2, tried + 1
free, total = torch.cuda.mem_get_info()
assert total == 1 << 30 and free == total - torch.cuda.memory_reserved()
assert torch.cuda.max_memory_reserved() >= torch.cuda.max_memory_allocated() > torch.cuda.memory_allocated()
assert torch.accelerator.memory_allocated() == torch.cuda.memory_stats()['allocated_bytes.all.current']
assert 'CUDA OOMs: 3' in torch.cuda.memory_summary()
torch.cuda.set_per_process_memory_fraction(0.5)
try:
    torch.empty(1 << 28, device='cuda')
except torch.OutOfMemoryError as error:
    assert '512.00 MiB allowed' in str(error)
print('halved', tried)
"""


def test_a_script_that_halves_its_batch_goes_on(tmp_path: Path) -> None:
    script, topology, target = tmp_path / "halves.py", tmp_path / "machine.yaml", tmp_path / "out"
    script.write_text(HALVES)
    topology.write_text(MACHINE)
    env = {"AHBM_TOPOLOGY": str(topology), "AHBM_REPORT": str(target)}
    done = run("--device", "cuda:1", "--ranks", "1", "--fake", str(script), **env)
    assert done.returncode == 0 and "halved 3" in done.stdout, done.stderr
    assert "ahbm: fits: 0.9" in done.stderr and ", most of it: " in done.stderr
    (found,) = json.loads((target / "answer.json").read_text())["memory"]
    assert found["failed"] is None and {"parameters", "optimizer state"} <= {kind for kind, _ in found["most"]}


ENDS = """\
import torch
held = [torch.empty(1 << 28, dtype=torch.uint8, device='cuda') for _ in range(3)]
try:
    torch.empty(16 << 40, device='cuda')
except torch.OutOfMemoryError as error:
    print(error)
torch.nn.Linear(512, 512).cuda()(torch.zeros(512, 512, device='cuda')).sum().backward()
torch.zeros(1 << 27, device='cuda')
"""


@pytest.mark.parametrize("fake", [(), ("--ranks", "1", "--fake")])
def test_the_end_of_the_memory_ends_a_script_with_an_answer(fake: tuple[str, ...], tmp_path: Path) -> None:
    script, topology = tmp_path / "ends.py", tmp_path / "machine.yaml"
    script.write_text(ENDS)
    topology.write_text(MACHINE)
    done = run("--device", "cuda:1", *fake, str(script), AHBM_TOPOLOGY=str(topology))
    assert done.returncode and "Tried to allocate 65536.00 GiB" in done.stdout, done.stderr
    assert 'ends.py", line 8' in done.stderr and "torch.OutOfMemoryError: CUDA out of memory. Tried" in done.stderr
    assert "ahbm: does not fit: 1." in done.stderr and "what was asked for last 0.5" in done.stderr


def test_products_have_workspaces_reserved_that_are_no_tensors() -> None:
    held = device()
    for _ in range(3):
        held.library(9)
    assert held.reserved.now == held.kept == 32 * MIB and held.allocated.now == 0
