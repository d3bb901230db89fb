"""`--jobs`: what a command prints does not depend on the processes that share its work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ahbm.table import processes
from ahbm.table.engine import Here
from support.commands import run

COMMANDS = {
    "bench": ["all_reduce", "-a", "ring_allreduce", "-a", "tree_allreduce", "--sizes", "1K,64K", "-t", "npu_ring_8"],
    "bench of what fails": [
        "all_reduce",
        "-a",
        "ring_allreduce",
        "-a",
        "ring_all_gather",
        "--sizes",
        "1K,2K",
        "--json",
    ],
    "bench of the choice": ["all_gather", "--sizes", "1K,2K", "--json", "--check", "race"],
    "ladder": ["all_gather", "-t", "npu_ring_8", "--sizes", "4K,64K", "--synth", "ring", "--json"],
    "compare": ["all_reduce", "-a", "ring_allreduce", "-a", "tree_allreduce", "--sizes", "1K,64K", "-t", "npu_ring_8"],
    "explore": ["all_reduce", "--seeds", "4", "--size", "256", "-a", "ring_allreduce", "--set", "system.sips.count=4"],
    "explore of what fails": [
        "all_reduce",
        "--seeds",
        "3",
        "--size",
        "256",
        "-a",
        "first_come",
        "--set",
        "system.sips.count=4",
        "--set",
        "sip.cube_mesh.w=1",
        "--set",
        "sip.cube_mesh.h=1",
    ],
}

FIRST_COME = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):
    return (n_elem, world_size)


def kernel(t_ptr, n, world, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    value = tl.load(t_ptr, shape=(n,), dtype="f16")
    for other in range(world):
        if other != sip_rank:
            tl.send(dir=f"sip{other}", src=value)
    for _ in range(world - 1):
        value = value + tl.recv(shape=(n,), dtype="f16")
    tl.store(t_ptr, value)
"""
"""A kernel that adds what comes first: its calls run into each other."""


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Calls that would go to other processes, made here, pickled as they would be; the list tells how many items."""
    import pickle

    counted: list[int] = []

    class Copies(Here):
        def __init__(self, jobs: int, needed: str) -> None:
            counted.append(jobs)

    whole = processes.run

    def copied(items: Any, call: Callable[..., Any], workers: Any, lost: Any) -> Iterator[Any]:
        def called(batch: Sequence[Any]) -> Any:
            function, given = pickle.loads(pickle.dumps((call, batch)))
            return pickle.loads(pickle.dumps(function(given)))

        return whole(items, called, workers, lost)

    monkeypatch.setattr(processes, "Pool", Copies)
    monkeypatch.setattr(processes, "run", copied)
    return counted


def told(command: str, folder: Path, *jobs: str) -> tuple[int, str, str]:
    code, out, err = run("ahbm", [command.split()[0], *COMMANDS[command], *jobs], folder)
    # The command line is in the JSON of bench.
    return code, re.sub(r'\n *"args": \[[^]]*\],', "", out), err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_bytes_stay(command: str, here: Path, inside: list[int]) -> None:
    Path("first_come.py").write_text(FIRST_COME, encoding="utf-8")
    Path("ccl.yaml").write_text("algorithms: {first_come: {module: first_come.py}}\n", encoding="utf-8")
    alone = told(command, here)
    assert inside == []
    assert told(command, here, "--jobs", "2") == alone
    assert inside and set(inside) == {2}
    assert "fails" not in command or alone[0] != 0


def test_a_page_is_the_same(here: Path, inside: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("altair")
    pages: list[Any] = []
    monkeypatch.setattr("ahbm.views.page.Page.html", lambda page: pages.append(page) or "")
    command = [
        "report",
        "all_reduce",
        "-t",
        "npu_ring_8",
        "--sizes",
        "1K,64K",
        "-a",
        "ring_allreduce",
        "-a",
        "tree_allreduce",
    ]
    for jobs in ([], ["--jobs", "2"]):
        code, _, err = run("ahbm", [*command, *jobs], here)
        assert code == 0, err
    one, two = ((page.headline, page.facts, [(s.title, s.text, s.rows) for s in page.sections]) for page in pages)
    assert one == two and inside


@pytest.mark.slow
def test_two_processes_share_a_bench(here: Path) -> None:
    assert told("bench", here) == told("bench", here, "--jobs", "2")
