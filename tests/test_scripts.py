"""Every script of the repository is imported, and run on something small; examples run whole (`test_examples.py`)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path for folder in ("benches", "scripts") for path in (ROOT / folder).rglob("*.py"))


@dataclass(frozen=True)
class Small:
    """How a script is run on something small."""

    arguments: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Its constants that make it large, and what they are here."""
    needs: tuple[str, ...] = ()
    """Packages without which it is skipped."""
    slow: bool = False
    own_process: bool = False
    """Its processes import what it defines from the main module."""
    only_imported: str = ""
    """Why it is not run; empty where it is."""


MESHES = {"2-D mesh 2 x 2": {"system.sips.topology": "mesh_2d_no_wrap", "system.sips.w": 2, "system.sips.h": 2}}
MESH, TORUS = ("mesh_2d_no_wrap", (2, 2)), ("torus_2d", (2, 2))
NAMED = {name: (name, *MESH, None) for name in ("mesh 4x4", "mesh 8x8", "torus 8x8", "mesh 4x4x4")}
OF_TABLES = "it reads measured tables, which are no part of the repository"
OF_PROCESSES = "its ranks are processes, and take minutes"
TORCH = ("torch",)

SMALL = {
    "benches/astra.py": Small(("--jobs",), {"STEPS": [(2, 1, 1, 1)], "READY": 4}, slow=True),
    "benches/bounds.py": Small(("--ranks", "16")),
    "benches/capture.py": Small(("--steps", "100", "--repeat", "1")),
    "benches/checks.py": Small(constants={"CASES": [("ring_allreduce", 2, "1K")]}),
    "benches/choose.py": Small(
        constants={
            "KERNELS": ("ring", "tree"),
            "METHODS": ("greedy",),
            "NETWORKS": ("ring_8", "torus_4x4"),
            "LATENCIES_NS": (100, 500),
            "BANDWIDTHS_GBS": (25, 50),
            "SIZES": (1 << 10, 1 << 12, 1 << 14, 1 << 16),
            "HELD_BACK": {(100, 25)},
        },
        slow=True,
    ),
    "benches/dsl.py": Small(("8",)),
    "benches/figure_allgather.py": Small(
        ("-o", "out"), {"NETWORKS": MESHES, "NPUS": 4, "POWERS": range(10, 12)}, ("altair", "vl_convert")
    ),
    "benches/first_calls.py": Small(constants={"CASES": [(2, "1K")], "RUNS": 1}),
    "benches/fold.py": Small(
        constants={"JOBS": [(1, 2)], "ONE_GROUP": [(2, 1)], "MACHINES": ["npu_switch_8"]}, slow=True
    ),
    "benches/gloo_programs.py": Small(needs=TORCH, only_imported="`torch_backend/test_refused.py` runs 30 programs"),
    "benches/imports.py": Small(("--ranks", "4", "--plan-ranks", "4", "--trace-ranks", "4", "--repeat", "1")),
    "benches/kernels_of_ops.py": Small(needs=TORCH, slow=True),
    "benches/mfu.py": Small(constants={"STEPS": [("2 ranks", "llama3-8b", 0, {"layers": 2, "tp": 2}, (1,))]}),
    "benches/model_overhead.py": Small(constants={"WIDTHS": (64,)}, needs=TORCH, slow=True),
    "benches/pages.py": Small(only_imported="`views/test_pages_in_a_browser.py` and `test_live.py` time the same"),
    "benches/peers/simgrid_ring.py": Small(("8",), needs=("simgrid",)),
    "benches/peers/simpy_ring.py": Small(("8",), needs=("simpy",)),
    "benches/phases.py": Small(("ring, 64",)),
    "benches/planted.py": Small(("--cases", "2")),
    "benches/roofline.py": Small(constants={"MODELS": {"wide MLP, bf16": 1}}, needs=TORCH, slow=True),
    "benches/run.py": Small(("--quick",), {"LARGE": ((4, 2, 1.0),)}, slow=True),
    "benches/select_env.py": Small(
        ("100",),
        {"MACHINES": ("npu_ring_8",), "SIZES": [1 << power for power in range(10, 19)]},
        ("gymnasium",),
        slow=True,
    ),
    "benches/selecting.py": Small(constants={"CALLS": 10, "ROUNDS": 1}),
    "benches/sweep.py": Small(("--cases", "20", "--rows", "1", "--kills", "1"), slow=True, own_process=True),
    "benches/synthesis.py": Small(
        constants={"CASES": [("mesh 2x2", *MESH, 1.0)], "NAMED": NAMED, "AUTO": (TORUS,), "REPEATS": 1}
    ),
    "benches/torch_gloo.py": Small(needs=TORCH, only_imported=OF_PROCESSES),
    "benches/torch_names.py": Small(needs=TORCH, only_imported="`torch_backend/test_no_leak.py` runs a part of it"),
    "benches/torch_overhead.py": Small(needs=TORCH, only_imported="it keeps every processor busy"),
    "benches/tuner_lines.py": Small(("p5",), {"SIZES": [1 << 12, 1 << 20]}),
    "benches/views.py": Small(
        constants={"LARGE": ("-a", "ring_allreduce", "-t", "default"), "SLICED": 2, "RUNS": 1},
        needs=("altair",),
        slow=True,
    ),
    "benches/waits.py": Small(("1",)),
    "scripts/accuracy.py": Small(only_imported=OF_TABLES),
    "scripts/api.py": Small(("--check",)),
    "scripts/changed_crates.py": Small(("HEAD",)),
    "scripts/stubs.py": Small(needs=("mypy",), only_imported="the gate runs it"),
    "scripts/device_accuracy.py": Small(only_imported="it reads measured steps, which are no part of the repository"),
    "scripts/errors.py": Small(("--check",)),
    "scripts/memory.py": Small(only_imported=OF_TABLES),
    "scripts/mutants.py": Small(("--list",)),
    "scripts/needs.py": Small(("build", "test")),
    "scripts/pictures.py": Small(("--check",)),
    "scripts/reached.py": Small(only_imported="`test_reached.py` compares some of its rows"),
    "scripts/schemas.py": Small(only_imported="it writes into the package; `test_schema.py` compares what it would"),
    "scripts/site.py": Small(only_imported="mkdocs calls it; `test_docs_site.py` does too"),
    "scripts/urls.py": Small(only_imported="it writes into the clone; `test_packaging.py` runs it elsewhere"),
    "scripts/viewer.py": Small(("--check",)),
    "scripts/zoo.py": Small(only_imported=OF_TABLES),
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def loaded(path: Path, needs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module that is not the main one."""
    for package in needs:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_every_script_is_in_the_table() -> None:
    assert sorted(SMALL) == [name_of(path) for path in SCRIPTS]


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_a_script_is_imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(path, SMALL[name_of(path)].needs, monkeypatch)


RUN = [
    pytest.param(name, small, id=name, marks=[pytest.mark.slow] if small.slow else [])
    for name, small in SMALL.items()
    if not small.only_imported
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "small"), RUN)
def test_a_script_runs_small(
    name: str, small: Small, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    module = loaded(ROOT / name, small.needs, monkeypatch)
    # Figures are those of the packaged files, also in a folder with a project, as the top of the repository is one.
    (here / "topology.yaml").write_text("somebody's own", encoding="utf-8")
    (here / "ccl.yaml").write_text("algorithms: {strange: {module: ./nowhere.py}}\n", encoding="utf-8")
    if small.own_process:
        assert not small.constants
        subprocess.run([sys.executable, ROOT / name, *small.arguments], check=True)
        assert capfd.readouterr().out
        return
    for constant, value in small.constants.items():
        assert hasattr(module, constant), constant
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(sys, "argv", [name, *small.arguments])
    monkeypatch.setenv("TMPDIR", str(here))
    monkeypatch.delenv("AHBM_CORPUS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    takes_arguments = module.main.__code__.co_argcount or module.main.__code__.co_flags & 0x04
    code = module.main(*small.arguments) if takes_arguments else module.main()
    assert not code
    if name == "benches/figure_allgather.py":
        assert (here / "out" / "allgather.csv").exists() and (here / "out" / "allgather.svg").exists()
    elif not name.startswith("scripts/"):
        assert capfd.readouterr().out
