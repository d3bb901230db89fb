"""`ahbm --help`, the examples of every command, and what a shell completes."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ahbm.cli
import ahbm.job.paper
from ahbm.base import documentation
from ahbm.cli import app
from ahbm.cli.app import MODULES, PANELS
from support import astra_files, profiles
from support.commands import application, commands, run
from support.scripts import exchange

ROOT = Path(__file__).resolve().parents[2]


def examples() -> Iterator[Any]:
    for name, command in commands().items():
        lines = [line for line in command.epilog.splitlines() if line.startswith("ahbm ")]
        yield pytest.param(name, lines, id=name)


def test_every_command_stands_in_one_panel_uncut(tmp_path: Path) -> None:
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(listed) == sorted(commands())
    rooms = {path.stem for path in Path(ahbm.cli.__file__).parent.glob("*.py") if "\n@app.command(" in path.read_text()}
    assert rooms == {MODULES.get(name, name) for name in listed}
    _, told, _ = run("ahbm", ["--help"], tmp_path)
    words = " ".join(told.split())
    for name, command in commands().items():
        about = command.help.partition("\n\n")[0]
        assert f"{name} {' '.join(about.split())}" in words
    assert [told.index(f"\n{panel}:\n") for panel in PANELS] == sorted(told.index(f"\n{panel}:\n") for panel in PANELS)
    assert "\x1b" not in told


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lines"), list(examples()))
def test_the_examples_of_a_command_run(
    name: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(lines) >= 2
    page = f"docs/{commands()[name].epilog.splitlines()[-1]}.md"
    assert (ROOT / page).exists()
    _, told, _ = run("ahbm", [name, "--help"], tmp_path)
    assert "\n".join(f"  {line}" for line in lines) in told and told.endswith(f"\nMore: {page}\n")
    if name == "report":
        pytest.importorskip("altair")
    if name == "view":
        pytest.importorskip("starlette")
        monkeypatch.setattr("ahbm.views.server.serve", lambda bench, listener, token: listener.close())
        (tmp_path / "algorithms").mkdir()
        (tmp_path / "algorithms/my_allreduce.py").write_text((ROOT / "algorithms/my_allreduce.py").read_text("utf-8"))
        words = "job new --layers 2 --hidden 256 --sequence 128 --tp 2 --micro-batches 2 -o step"
        assert run("ahbm", shlex.split(words), tmp_path)[0] == 0
    monkeypatch.chdir(tmp_path)
    if any("plan.xml" in line and "-o plan.xml" not in line for line in lines):
        ahbm.synthesize("all_gather", topology="npu_ring_8", size=1 << 16).save("plan.xml")
    if name in ("compare", "report"):
        small = run("ahbm", ["bench", "all_reduce", "--sizes", "1K", "--json"], tmp_path)[1]
        for day in ("yesterday", "today"):
            (tmp_path / f"{day}.json").write_text(small, encoding="utf-8")
    if name == "sweep":
        (tmp_path / "space.yaml").write_text("sizes: 1K\ndata: false\n", encoding="utf-8")
    if name in ("calibrate", "compare"):
        rows = "\n".join(f"{1 << at},{10 + (1 << at) / 1e5}" for at in range(10, 30, 4))
        for table in ("all_reduce.csv", "mine.csv"):
            (tmp_path / table).write_text(f"# op: all_reduce\n# ranks: 8\nbytes,time_us\n{rows}\n", "utf-8")
    if name == "calibrate":
        profiles.traced(tmp_path, profiles.machine(profiles.TRUE))
    if name == "compare":
        made = profiles.traced(tmp_path, profiles.machine(profiles.TRUE))
        made.rename(made.with_name("recorded.json.gz"))
        profiles.recorded(tmp_path)
    if name == "features":
        given = 'import sys\nsys.argv[1:] = ["--ranks", sys.argv[1]]\n'
        (tmp_path / "program.py").write_text(given + Path(exchange(tmp_path)).read_text("utf-8"), "utf-8")
    if name == "astra":
        astra_files.write(tmp_path)
    if name == "paper":  # `tests/job/test_paper.py` has the rest
        lines = [*dict.fromkeys(line if "--small" in line else f"{line} --small" for line in lines)]
        monkeypatch.setattr("ahbm.job.paper.paper", functools.cache(ahbm.job.paper.paper))
    if name == "tune":  # each of the sizes between is tuned as these are
        lines = [line if "--sizes" in line else f"{line} --sizes 4K,64K,1M" for line in lines]
    for line in lines:
        code, out, err = run("ahbm", shlex.split(line)[1:], tmp_path)
        assert code == 0, f"$ {line}\n{out}{err}"


def test_help_leads_to_the_site_of_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for home, address in (
        ("https://owner.example/ahbm/0.1.0/", "https://owner.example/ahbm/0.1.0/{}.html"),
        ("https://host.example/owner/ahbm/tree/0a/docs", "https://host.example/owner/ahbm/tree/0a/docs/{}.md"),
    ):
        urls = {"Project-URL": [f"Documentation, {home}", "Source, https://host.example"]}
        monkeypatch.setattr("importlib.metadata.metadata", lambda _, urls=urls: SimpleNamespace(get_all=urls.get))
        documentation._home.cache_clear()
        try:
            assert run("ahbm", ["run", "--help"], tmp_path)[1].endswith(f"More: {address.format('quick-start')}\n")
            told = run("ahbm", ["explain", "V401"], tmp_path)[1]
            assert f"{address.format('errors')}#v-data, {address.format('check')}" in told
        finally:
            documentation._home.cache_clear()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("ahbm bench all_re", {"all_reduce"}),
        ("ahbm run all_reduce -a ring_allr", {"ring_allreduce"}),
        ("ahbm probe -t npu_sw", {"npu_switch_8"}),
        ("ahbm topology torus_", {"torus_2d", "torus_3d"}),
        ("ahbm numerics -d bf", {"bf16", "bfloat16"}),
        ("ahbm synth all_reduce --op m", {"min", "max"}),
        ("ahbm check --collective all_t", {"all_to_all"}),
        ("ahbm conv", {"convert"}),
    ],
)
def test_a_shell_completes_names(
    line: str, wanted: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = line.split(" ")
    monkeypatch.chdir(tmp_path)
    for name, value in {"_AHBM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": len(words) - 1}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(SystemExit):
        app([], prog_name="ahbm")
    assert set(capfd.readouterr().out.split()) == wanted


def test_a_broken_configuration_completes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ccl.yaml").write_text("]", encoding="utf-8")
    test_a_shell_completes_names("ahbm run all_reduce -a ri", set(), tmp_path, monkeypatch, capfd)
    test_a_shell_completes_names("ahbm run all_g", {"all_gather"}, tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_shown(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the shell is the one that has started the tests, if any.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    application.cache_clear()
    code, out, _ = run("ahbm", ["--show-completion", shell], tmp_path)
    application.cache_clear()
    assert code == 0 and "_AHBM_COMPLETE" in out
