"""How scripts on devices that are not there end, which steps they are told of, by which lines and which clock."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

from jobs import python, torchrun

GAN = """\
import torch
a, b = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(1024, 1024).cuda()
oa, ob = torch.optim.Adam(a.parameters()), torch.optim.Adam(b.parameters())
for i in range(5):
    oa.zero_grad(); a(torch.ones(8, 64, device="cuda")).square().mean().backward(); oa.step()
    ob.zero_grad(); b(torch.ones(256, 1024, device="cuda")).square().mean().backward(); ob.step()
"""


def run(tmp_path: Path, script: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A script on a device."""
    file = tmp_path / "script.py"
    file.write_text(script)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AHBM_")}
    env = clean | {"AHBM_PAGE": "0", "AHBM_REPORT": str(tmp_path / "out")} | env
    return python("-m", "ahbm.torch", "--device", "cuda:1", *options, str(file), env=env)


def told(tmp_path: Path) -> dict[str, object]:
    """What it was answered."""
    found: dict[str, object] = json.loads((tmp_path / "out" / "answer.json").read_text())
    return found


def test_a_step_is_that_of_all_optimizers_however_many_steps_are_looked_at(tmp_path: Path) -> None:
    found = []
    for number in ("1", "2", "4"):
        done = run(tmp_path, GAN, AHBM_STEPS=number)
        assert done.returncode == 0, done.stderr
        assert told(tmp_path)["steps"] == int(number)
        found.append(told(tmp_path)["step_ns"])
    assert len(set(found)) == 1
    done = run(tmp_path, GAN, "--steps", "3")
    assert done.returncode == 0 and "the script was ended after 3 steps, as --steps asks" in done.stderr
    assert told(tmp_path)["step_ns"] == found[0] and told(tmp_path)["steps"] == 2


WAYS = """import os, torch
way = os.environ["WAY"]
net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).cuda()
x = torch.ones(8, 64, device="cuda")
loss = lambda: net(x).square().mean()
if way == "hooks":
    held = {p: torch.optim.SGD([p], lr=.1) for p in net.parameters()}
    for p in held:
        p.register_post_accumulate_grad_hook(lambda p: held[p].step())
    for _ in range(6):
        loss().backward(); net.zero_grad()
elif way == "none":
    for _ in range(6):
        loss().backward()
        for p in net.parameters():
            p.data -= .1 * p.grad; p.grad = None
elif way == "evaluated":
    optimizer = torch.optim.SGD(net.parameters(), lr=.1)
    for number in range(6):
        if number in (0, 2):
            with torch.no_grad():
                for _ in range(5):
                    net(x).sum().item()
        loss().backward(); optimizer.step(); optimizer.zero_grad()
"""


TOLD = """\
import torch, ahbm.torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=.1)
for _ in range(6):
    for _ in range(3):
        net(torch.ones(8, 64, device="cuda")).sum().backward(); optimizer.step()
    ahbm.torch.step()
"""


@pytest.mark.parametrize("way", ["hooks", "none", "told", "evaluated"])
def test_iterations_are_found_in_scripts_of_every_kind(way: str, tmp_path: Path) -> None:
    script = TOLD if way == "told" else WAYS
    done = run(tmp_path, script, WAY=way)
    assert done.returncode == 0, done.stderr
    assert "(3 iterations alike)" in done.stderr, done.stderr
    assert ("in 1 evaluation or the like, not counted" in done.stderr) == (way == "evaluated")
    each = told(tmp_path)["step_ns"]
    done = run(tmp_path, script, "--steps", "5", WAY=way)
    assert done.returncode == 0 and "ended after 5 steps" in done.stderr, done.stderr
    assert told(tmp_path)["step_ns"] == each


ENDS = """import os, signal, torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=.1)
done = 0
try:
    while True:
        net(torch.ones(8, 64, device="cuda")).sum().backward(); optimizer.step(); done += 1
        if done == 7:
            eval(os.environ["END"])
finally:
    print("finally", done)
"""


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "Ctrl-C"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "SIGTERM"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("exit(3)", 3, "exit status 3"),
    ],
)
def test_a_script_that_does_not_end_by_itself_is_answered(end: str, code: int, said: str, tmp_path: Path) -> None:
    done = run(tmp_path, ENDS, END=end)
    assert done.returncode == code and done.stdout == "finally 7\n", done.stderr
    assert f"the script was interrupted after 7 steps: {said}" in done.stderr
    assert told(tmp_path)["steps"] == 3 and told(tmp_path)["ended_after"] == 7


RANKS = """import atexit, contextlib, logging, os, sys, torch, torch.distributed as dist
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import trainer
logging.basicConfig(level=logging.INFO)
rank = int(os.environ["LOCAL_RANK"])
atexit.register(print, "exit")
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
net = torch.nn.Linear(512, 512).to(rank)
optimizer = torch.optim.SGD(net.parameters(), lr=.1)
done = 0
try:
    while True:
        net(torch.ones(8, 512, device=rank)).sum().backward()
        with trainer.ending(net.weight.grad):
            pass
        try:
            optimizer.step()
            done += 1
        except Exception:
            print("swallowed")
        if done == 6 and rank == 1 and os.environ.get("FAILS"):
            raise ValueError("no more")
finally:
    print("finally", done)
"""
TRAINER = """import contextlib
import torch.distributed as dist

@contextlib.contextmanager
def ending(x):
    yield
    dist.all_reduce(x)
"""


@pytest.mark.parametrize("fails", ["", "1"])
def test_ranks_end_together_and_are_told_of_by_the_lines_of_the_script(fails: str, tmp_path: Path) -> None:
    script, library = tmp_path / "ranks.py", tmp_path / "site-packages"
    script.write_text(RANKS)
    library.mkdir()
    (library / "trainer.py").write_text(TRAINER)
    options = () if fails else ("--steps", "4")
    done = torchrun(script, 2, launcher=("-m", "ahbm.torch", "--device", "cuda", *options), AHBM_PAGE="0", FAILS=fails)
    assert bool(done.returncode) == bool(fails), done.stderr
    assert "swallowed" not in done.stdout and done.stdout.count("exit") == 2
    assert done.stdout.count("finally 6" if fails else "finally 3") == 2
    assert ("after 6 steps: ValueError on rank 1" if fails else "after 4 steps, as --steps asks") in done.stderr
    assert re.search(r"^ranks.py:15 +all_reduce +1 ", done.stderr, re.MULTILINE), done.stderr
    assert "INFO:ahbm" not in done.stderr


CLOCK = """import datetime, queue, time, timeit, torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(2048, 2048).cuda()
x = torch.ones(512, 2048, device="cuda")
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
torch.cuda.synchronize()
first, wall, begun = time.perf_counter(), time.time(), datetime.datetime.now()
begin.record()
for _ in range(3):
    net(x).sum().item()
end.record()
torch.cuda.synchronize()
took = begin.elapsed_time(end) / 1000
told = [time.perf_counter() - first, time.time() - wall, (datetime.datetime.now() - begun).total_seconds()]
assert all(abs(one - took) < 3e-6 for one in told), (told, took)
assert abs(timeit.timeit(lambda: net(x).sum().item(), number=3) - took) < 3e-6
before = time.monotonic()
time.sleep(0.02)
assert 0.02 < time.monotonic() - before < 0.0201
assert isinstance(begun, datetime.datetime) and time.time() != time.time()
assert list(DataLoader(range(4), num_workers=1, timeout=30))
try:
    queue.Queue().get(timeout=0.01)
except queue.Empty:
    print("all is well")
"""


def test_a_script_can_be_told_simulated_time(tmp_path: Path) -> None:
    done = run(tmp_path, CLOCK, "--clock", "simulated")
    assert done.returncode == 0 and done.stdout == "all is well\n", done.stderr
    assert "told the script simulated time" in done.stderr
    done = run(tmp_path, "import time, torch\ntime.time(); torch.ones(3).cuda() + 1")
    assert done.returncode == 0 and done.stderr.count("--clock simulated") == 1
    assert run(tmp_path, CLOCK, AHBM_CLOCK="moon").returncode


def test_a_script_that_gave_the_device_nothing_is_told_so(tmp_path: Path) -> None:
    done = run(tmp_path, "import torch; torch.ones(3) + 1")
    assert done.returncode == 0 and "no answer: the script gave the device nothing to do" in done.stderr
