"""`ccl.yaml`, `topology.yaml` and `algorithms/` at the top of the repository: a project of a user's own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ahbm._core
from ahbm.config.scaffold import PROJECT, new_project
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError
from support.commands import run

ROOT = Path(__file__).parent.parent
BUILT_FROM = (
    "python",
    "rust",
    "Cargo.toml",
    "Cargo.lock",
    "pyproject.toml",
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
)
AWAY = "copy python/ahbm/data/project/ over it; `ahbm init FOLDER` makes a project to keep"
COMPILER = """#!{python}
import json, os, subprocess, sys
told = json.loads(subprocess.check_output(["cargo", "metadata", "--format-version=1", "--no-deps"]))
package = next(package for package in told["packages"] if package["name"] == "ahbm-python")
print(json.dumps({{
    "reason": "compiler-artifact",
    "package_id": package["id"],
    "manifest_path": package["manifest_path"],
    "target": next(target for target in package["targets"] if "cdylib" in target["kind"]),
    "profile": {{"opt_level": "3", "debug_assertions": False, "overflow_checks": False, "test": False}},
    "features": [],
    "filenames": [{native!r}],
    "executable": None,
    "fresh": True,
}}))
"""
"""What maturin hears from cargo when there is nothing left to compile."""


def test_init_writes_what_stands_at_the_top_of_the_repository(tmp_path: Path) -> None:
    written = new_project(tmp_path / "mine")
    assert [path.relative_to(tmp_path / "mine").as_posix() for path in written] == list(PROJECT)
    for name in PROJECT:
        assert (tmp_path / "mine" / name).read_bytes() == (ROOT / name).read_bytes(), f"{name} differs: {AWAY}"


@pytest.mark.parametrize("there", PROJECT)
def test_init_writes_over_nothing(there: str, tmp_path: Path) -> None:
    path = tmp_path / there
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="AHBM-C131"):
        new_project(tmp_path)
    assert path.read_bytes() == b"mine"
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]


def test_init_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / ("n" * 300)):
        with pytest.raises(ConfigError, match="AHBM-C141"):
            new_project(folder)


def test_a_project_runs_and_passes_its_test(tmp_path: Path) -> None:
    code, out, _ = run("ahbm", ["init", "--json"], tmp_path)
    assert code == 0 and json.loads(out)["files"] == list(PROJECT)
    code, out, err = run(
        "ahbm", ["bench", "all_reduce", "-a", "my_allreduce", "-a", "ring_allreduce", "-b", "1K", "-e", "1K"], tmp_path
    )
    assert code == 0, err
    for name in ("my_allreduce", "ring_allreduce"):
        assert f"# algorithm {name}  ranks 4  topology ring_1d  machine topology.yaml" in out
    assert "# Out of bounds values : 0 OK" in out


def test_a_project_passes_its_test_and_takes_more_algorithms(tmp_path: Path) -> None:
    new_project(tmp_path)
    code, out, err = run("pytest", ["-q", "tests"], tmp_path)
    assert code == 0 and "6 passed" in out, out + err
    code, _, err = run("ahbm", ["new", "another"], tmp_path)
    assert code == 0, err
    assert run("ahbm", ["run", "all_reduce", "-a", "another", "--size", "1K"], tmp_path)[0] == 0


def test_the_machine_is_the_default_but_for_its_size() -> None:
    """Networks by name (`-t torus_2d`) build on it: what differs from the default is what a test overrides."""
    small = load_machine(ROOT / "topology.yaml")
    assert (small.sips, small.cubes, small.pes) == (4, 4, 8)
    size = {"system.sips.count": 4, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2}
    assert small.hash == load_machine("default", size).hash


@pytest.mark.parametrize("name", ["ccl.yaml", "topology.yaml"])
def test_every_key_has_a_comment(name: str) -> None:
    """On its line; of the headings that have nothing but keys below them, those do."""
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if re.match(r" +\w+:|\w+: *\S", line):
            assert re.search(r"# \w", line), line


def test_the_demo_runs_the_project() -> None:
    demo = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].partition("\n\n")[0]
    assert "ahbm bench all_reduce -a my_allreduce -a ring_allreduce" in demo and " -t " not in demo


@pytest.mark.slow
def test_the_wheel_is_the_same_without_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maturin packs wheels in a copy, with the project and without; cargo is not asked to compile anything."""
    maturin = shutil.which("maturin", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if maturin is None or shutil.which("cargo") is None:
        pytest.skip("no maturin, or no cargo")
    copy, compiler = tmp_path / "ahbm", tmp_path / "compiler"
    aside = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "target")
    for name in (*BUILT_FROM, *PROJECT):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=aside)
        else:
            shutil.copy(ROOT / name, copy / name)
    # maturin moves what the compiler names: it gets a file of its own.
    native = shutil.copy(str(ahbm._core.__file__), tmp_path)
    compiler.write_text(COMPILER.format(python=sys.executable, native=native), encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CARGO", str(compiler))
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")

    def wheel(folder: str) -> Path:
        command = [maturin, "build", "--release", "--locked", "--offline", "--compatibility", "linux"]
        done = subprocess.run(
            [*command, "--interpreter", sys.executable, "--out", tmp_path / folder],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (made,) = (tmp_path / folder).iterdir()
        return made

    before = wheel("before")
    for name in PROJECT:
        (copy / name).unlink()
    (copy / "algorithms").rmdir()
    after = wheel("after")
    assert hashlib.sha256(before.read_bytes()).digest() == hashlib.sha256(after.read_bytes()).digest()
    packed = zipfile.ZipFile(after).namelist()
    assert "ahbm/data/project/topology.yaml" in packed and "ahbm/config/scaffold.py" in packed
    assert not [name for name in packed if not name.startswith(("ahbm/", f"ahbm-{ahbm.__version__}.dist-info/"))]
