"""Modules that are written from the text of the contract alone: four names at module level, nothing of this project."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.errors import AhbmError

KINDS = """
from __future__ import annotations

SIP_TOPO_RING, SIP_TOPO_TORUS, SIP_TOPO_MESH = 0, 1, 2
TOPO_NAME_TO_KIND = {"ring_1d": SIP_TOPO_RING, "torus_2d": SIP_TOPO_TORUS, "mesh_2d_no_wrap": SIP_TOPO_MESH}
"""
ARGS = """
def kernel_args(world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4) -> tuple:
    return (n_elem, cube_w, cube_h, world_size)
"""
HEAD = "def work(t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):\n"
END = "\nkernel = work\n"
LOAD = '    acc = current = tl.load(t_ptr, shape=(n_elem,), dtype="f16")\n'
ROUND = """    for _ in range({times}):
        tl.send(dir="{to}", src=current)
        current = tl.recv(dir="{source}", shape=(n_elem,), dtype="f16")
        acc = acc + current
"""
STORE = "    tl.store(t_ptr, acc)\n"


def around(times: str, to: str = "global_E", source: str = "global_W") -> str:
    return ROUND.format(times=times, to=to, source=source)


COLUMNS = "    current = acc\n" + around("sip_topo_h - 1", "global_S", "global_N")
ROWS_THEN_COLUMNS = LOAD + around("sip_topo_w - 1") + COLUMNS
WHOLE = HEAD + LOAD + around("n_sips - 1") + STORE
CHAIN = (
    LOAD
    + """    if sip_rank:
        acc = acc + tl.recv(dir="global_W", shape=(n_elem,), dtype="f16")
    if sip_rank < n_sips - 1:
        tl.send(dir="global_E", src=acc)
        acc = tl.recv(dir="global_E", shape=(n_elem,), dtype="f16")
    if sip_rank:
        tl.send(dir="global_W", src=acc)
"""
)
FIRST = (
    LOAD
    + """    if sip_rank:
        acc = tl.recv(dir="global_W", shape=(n_elem,), dtype="f16")
    if sip_rank < n_sips - 1:
        tl.send(dir="global_E", src=acc)
"""
)
BY_KIND = (
    LOAD
    + """    if sip_topo_kind == SIP_TOPO_RING:
        for _ in range(n_sips - 1):
            tl.send(dir="global_E", src=current)
            current = tl.recv(dir="global_W", shape=(n_elem,), dtype="f16")
            acc = acc + current
    elif sip_topo_kind == SIP_TOPO_TORUS:
        for size, to, source in ((sip_topo_w, "global_E", "global_W"), (sip_topo_h, "global_S", "global_N")):
            current = acc
            for _ in range(size - 1):
                tl.send(dir=to, src=current)
                current = tl.recv(dir=source, shape=(n_elem,), dtype="f16")
                acc = acc + current
    else:
        raise ValueError(f"no network of kind {sip_topo_kind}")
"""
)
ORDER = """
from typing import NamedTuple

class Args(NamedTuple):
    n_elem: int
    n_sips: int

def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):
    return Args(n_elem=n_elem, n_sips=world_size)

def work(t_ptr, n_elem, n_sips, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
"""
MODULES: dict[str, tuple[str, str]] = {
    "by_kind": (KINDS + ARGS + HEAD + BY_KIND + STORE + END, "npu_ring_8"),
    "by_kind_torus": (KINDS + ARGS + HEAD + BY_KIND + STORE + END, "npu_torus_4x4"),
    "ring_alone": (ARGS + WHOLE + END, "npu_ring_8"),
    "ring_west": (ARGS + HEAD + LOAD + around("n_sips - 1", "global_W", "global_E") + STORE + END, "npu_ring_8"),
    "torus": (KINDS + ARGS + HEAD + ROWS_THEN_COLUMNS + STORE + END, "npu_torus_4x4"),
    "chain": (ARGS + HEAD + CHAIN + STORE + END, "npu_ring_8"),
    "broadcast": ('COLLECTIVE = "broadcast"\n' + ARGS + HEAD + FIRST + STORE + END, "npu_ring_8"),
    "named_tuple": (ORDER + LOAD + around("n_sips - 1") + STORE + END, "npu_ring_8"),
    "keyword_sizes": (
        ARGS.replace("4, cube_h: int = 4", "1, cube_h: int = 1") + WHOLE + END,
        "npu_ring_8",
    ),
    "lambda_kernel": (
        ARGS + WHOLE + "\nglobals()['kernel'] = work\n",
        "npu_ring_8",
    ),
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, (text, _) in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("count", [8, 4096])
def test_a_module_of_the_contract_computes(name: str, count: int, modules: Path) -> None:
    collective = "broadcast" if name == "broadcast" else "all_reduce"
    report = ahbm.run(collective, str(modules / f"{name}.py"), MODULES[name][1], bytes_per_rank=2 * count)
    assert report.wrong == 0


def test_the_name_of_a_module_is_one_that_import_takes(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = modules / "myalgs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "circle.py").write_text(MODULES["ring_alone"][0])
    (modules / "ccl.yaml").write_text("defaults: {algorithm: mine}\nalgorithms: {mine: {module: myalgs.circle}}\n")
    monkeypatch.syspath_prepend(str(modules))
    assert importlib.import_module("myalgs.circle").kernel.__name__ == "work"

    def worker() -> None:
        dist.init_process_group(backend="ahbm")
        x = np.full(64, dist.get_rank() + 1.0, np.float16)
        dist.all_reduce(x)
        assert (x == 36).all()

    ahbm.spawn(worker, topology="npu_ring_8")


def test_a_world_of_pes_is_that_of_before(modules: Path) -> None:
    """A world_size above the SIPs of the machine, and at most its PEs, makes every PE a rank."""
    small = {"system.sips.count": 2, "defaults.world_size": 32}
    try:
        report = ahbm.run("all_reduce", topology="default", bytes_per_rank=4096, overrides=small)
    except AhbmError as error:
        pytest.fail(str(error))
    assert (report.ranks, report.wrong) == (32, 0)


def test_a_module_s_entry_may_make_every_pe_a_rank(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`world_size` beside `module:`: as many ranks, each a PE, and the module needs no branch for it."""
    (modules / "ccl.yaml").write_text(
        "defaults: {algorithm: mine}\nalgorithms: {mine: {module: ring_alone, world_size: 32}}\n"
    )
    monkeypatch.syspath_prepend(str(modules))
    report = ahbm.run("all_reduce", topology="default", bytes_per_rank=64, overrides={"system.sips.count": 2})
    assert (report.ranks, report.algorithm, report.wrong) == (32, "mine", 0)


def test_an_unknown_network_is_the_modules_own_error(modules: Path) -> None:
    with pytest.raises(ValueError, match=r"AHBM-|no network of kind"):
        ahbm.run("all_reduce", str(modules / "by_kind.py"), "npu_mesh_4x4", bytes_per_rank=64)
