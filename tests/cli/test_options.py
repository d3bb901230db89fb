"""The options of all commands, by introspection: one meaning per letter, one letter per meaning, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ahbm.cli import app
from ahbm.errors import AhbmError, ConfigError
from support.commands import commands, run

LETTERS = {
    "-a": {"--algorithm"},
    "-b": {"--bytes", "--size", "--minbytes"},
    "-d": {"--dtype"},
    "-e": {"--maxbytes"},
    "-f": {"--stepfactor"},
    "-h": {"--help"},
    "-i": {"--stepbytes"},
    "-j": {"--jobs"},
    "-k": {"--chunks"},
    "-o": {"--output"},
    "-r": {"--root"},
    "-t": {"--topology"},
    "-v": {"--verbose"},
}
"""Letter -> what it is short for, in every command. A sweep has no one size: its -b is the first."""


def options() -> Iterator[tuple[str, set[str]]]:
    """Command and spellings of every option."""
    root: Any = typer.main.get_command(app)
    for command in (root, *commands().values()):
        context = typer.Context(command, help_option_names=["-h", "--help"])
        for parameter in command.get_params(context):
            if parameter.param_type_name == "option":
                yield str(command.name), {*parameter.opts, *parameter.secondary_opts}


def test_a_letter_means_the_same_in_every_command() -> None:
    found: dict[str, set[str]] = {}
    for _, names in options():
        for letter in (name for name in names if len(name) == 2):
            found.setdefault(letter, set()).update(name for name in names if len(name) > 2)
    assert {letter: names for letter, names in found.items() if names != LETTERS.get(letter)} == {}


def test_an_option_has_its_letter_in_every_command() -> None:
    letters = {name: letter for letter, names in LETTERS.items() for name in names}
    for command, names in options():
        for name in names & letters.keys():
            assert letters[name] in names, f"ahbm {command} {name}"
        assert not names & {"--bytes", "--size"} or names == {"-b", "--bytes", "--size"}, command


@pytest.mark.parametrize("command", ["bench", "run", "explain", "report", "synth", "ladder"])
def test_the_operator_that_nccl_tests_calls_o_is_named(command: str, tmp_path: Path) -> None:
    code, out, err = run("ahbm", [command, "all_reduce", "-o", "max"], tmp_path)
    assert code in (2, 3) and "--op" in err and not out and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "given",
    [
        ["run", "all_reduce", "-d", "f16", "--dtype", "f32"],
        ["explain", "all_reduce", "-a", "ring_allreduce", "-atree_allreduce"],
        ["bench", "all_reduce", "-b", "1K", "--minbytes=2K"],
        ["synth", "all_reduce", "--method", "ring", "--method", "tree"],
    ],
)
def test_an_option_that_takes_one_value_is_not_given_twice(given: list[str], tmp_path: Path) -> None:
    code, _, err = run("ahbm", given, tmp_path)
    assert code == 3 and "AHBM-C146" in err and "given twice" in err


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["tune", "all_reduce", "--sizes", "1K", "-b", "1K", "-o", "out"], "--sizes and -b are"),
        (
            ["tune", "all_reduce", "--sizes", "1K", "--minbytes=1K", "-f", "2", "-o", "out"],
            "--sizes and --minbytes, -f are",
        ),
        (["tune", "--evaluate", "x.csv", "--output", "out"], "takes no --output"),
        (["tune", "--evaluate", "x.csv", "-oout"], "takes no -o"),
        (["bench", "all_reduce", "--sizes", "1K", "--maxbytes", "1K"], "--sizes and --maxbytes are"),
        (["bench", "all_reduce", "--sizes", "1K", "-e2K", "-i", "3"], "--sizes and -e, -i are"),
        (["bench", "all_reduce", "-b", "1K", "-b", "2K"], "-b is given twice"),
        (["run", "all_reduce", "--bytes", "1K", "--bytes=2K"], "--bytes is given twice"),
        (["compare", "a.json", "b.json", "-t", "npu_ring_8", "--no-data"], "without -t, --no-data"),
        (["compare", "a.json", "b.json", "--maxbytes", "1K", "--store", "s"], "without --maxbytes, --store"),
        (["report", "a.json", "b.json", "--no-explain", "-a", "ring_allreduce"], "without --no-explain, -a"),
        (["sweep", "compact", "rows", "--output", "x"], "does not take --output"),
        (["sweep", "compact", "rows", "--csv"], "does not take --csv"),
        (["sweep", "show", "rows", "--csv", "-o", "x"], "--csv and -o are both"),
        (["sweep", "show", "rows", "--json", "--output=x"], "--json and --output are both"),
        (["sweep", "show", "rows", "--best", "--pareto", "time"], "--pareto and --best are both"),
        (["check", "-a", "ring_allreduce", "--quirks"], "without --quirks"),
    ],
)
def test_a_refusal_names_options_as_they_were_typed(given: list[str], named: str, here: Path) -> None:
    if given[0] == "report":
        pytest.importorskip("altair")
    done = CliRunner().invoke(app, given)
    assert isinstance(done.exception, ConfigError) and done.exception.code == "AHBM-C146"
    assert named in done.exception.message


@pytest.mark.parametrize(
    ("given", "code", "hint"),
    [
        (["run", "ring_allreduce"], "AHBM-C144", "all_reduce -a ring_allreduce"),
        (["explain", "tree_allreduce"], "AHBM-C144", "all_reduce -a tree_allreduce"),
        (["bench", "my_allreduce"], "AHBM-C105", "all_reduce -a my_allreduce"),
        (["ladder", "nccl_ring_reduce_scatter"], "AHBM-C105", "reduce_scatter -a nccl_ring_reduce_scatter"),
        (["bench", "AllReduce"], "AHBM-C105", "did you mean all_reduce"),
        (["bench", "redcue_scatter"], "AHBM-C105", "did you mean reduce_scatter"),
        (["run", "all_reduce", "-a", "all_reduce"], "AHBM-C110", "a collective is no algorithm"),
        (["run", "all_reduce", "-a", "ring"], "AHBM-C110", "ring_allreduce or"),
        (["run", "all_reduce", "-t", "h200"], "AHBM-T101", "did you mean dgx_h200"),
        (["check", "ring_allreduce"], "AHBM-C170", "ahbm check -a ring_allreduce"),
        (["check", "all_reduce"], "AHBM-C170", "ahbm check -a NAME"),
        (["compare", "ring_allreduce", "tree_allreduce"], "AHBM-C160", "ahbm compare all_reduce -a A -a B"),
    ],
)
def test_a_name_of_another_kind_is_told_where_it_belongs(given: list[str], code: str, hint: str) -> None:
    done = CliRunner().invoke(app, given)
    assert isinstance(done.exception, AhbmError) and done.exception.code == code
    assert hint in (done.exception.hint or "")


def test_every_command_prints_json() -> None:
    # A server prints its address.
    commands = {command for command, _ in options()} - {"", "None", "view"}
    assert {command for command, names in options() if "--json" in names} == commands


def test_files_that_are_written_are_told_as_json(tmp_path: Path) -> None:
    code, out, _ = run("ahbm", ["new", "mine", "--json"], tmp_path)
    assert code == 0 and all((tmp_path / file).exists() for file in json.loads(out)["files"])
    pytest.importorskip("altair")
    code, out, _ = run("ahbm", ["report", "all_reduce", "--sizes", "1K", "--no-explain", "--json"], tmp_path)
    found = json.loads(out)
    assert code == 0 and found["files"] == ["report.html"] and found["results"][0]["size"] == 1024
