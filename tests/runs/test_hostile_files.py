"""Files that mean harm: read in time that grows with their size, or refused by name."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ahbm.config.ccl import CclConfig
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError
from ahbm.runs import compare
from ahbm.runs.verdict import Checked, check_file
from support.commands import run
from support.growth import exponent

ALGO = '<algo name="a" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="1" coll="allreduce" inplace="1">'
GPU = '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0"/>'
SQUARE = 1.6
"""Between work that grows with the size of a file and work that grows with its square."""


def many(count: int, form: str) -> str:
    """`form` with the numbers from 0 on in place of its #."""
    return "".join(form.replace("#", str(number)) for number in range(count))


PLANS: dict[str, tuple[str, Callable[[int], str], str]] = {
    "attributes": (".xml", lambda n: "<algo" + many(n, ' a#="x"') + "/>", "AHBM-B212"),
    "namespaces": (".xml", lambda n: "<a>" + many(n, '<b xmlns:c#="d#"/>') + "</a>", "AHBM-B212"),
    "nested elements": (".xml", lambda n: "<a>" * n, "AHBM-B208"),
    "text": (".xml", lambda n: ALGO + "&lt;x" * n + GPU + "</algo>", ""),
    "comments": (".xml", lambda n: ALGO + "<!---->" * n + GPU + "</algo>", ""),
    "instructions": (".xml", lambda n: ALGO + "<?a?>" * n + GPU + "</algo>", ""),
    "sections": (".xml", lambda n: ALGO + "<![CDATA[x]]>y" * n + GPU + "</algo>", ""),
    "a long value": (".xml", lambda n: ALGO.replace("Simple", "x" * n) + GPU + "</algo>", "AHBM-B207"),
    "entities": (".xml", lambda n: "<!DOCTYPE a [" + many(n, '<!ENTITY e# "">') + "]>", "AHBM-"),
    "the same rank": (".xml", lambda n: ALGO + GPU * n + "</algo>", "AHBM-F114"),
    "ranks without numbers": (".xml", lambda n: ALGO + "<gpu/>" * n + "</algo>", "AHBM-F111"),
    "nested arrays": (".json", lambda n: "[" * n, "AHBM-B208"),
    "a string": (".json", lambda n: '{"name": "' + "x" * n + '"}', "AHBM-B207"),
    "keys": (".json", lambda n: '{"a": 1' + many(n, ',"k#":1') + "}", "AHBM-F141"),
    "a number": (".json", lambda n: '{"gpus": ' + "1" * n + "}", "AHBM-F141"),
    "zeros": (".0.et", lambda n: "\0" * n, "AHBM-F13"),
    "a number without end": (".0.et", lambda n: "\x7f" * n, "AHBM-F13"),
}
YAML: dict[str, Callable[[int], str]] = {
    "values": lambda n: "a: [" + "1," * n + "]",
    "keys": lambda n: many(n // 10, "k#: 1\n"),
    "nested": lambda n: "a: " + "[" * n,
    "questions": lambda n: "? " * n,
    "lines": lambda n: "a: x\n" + "  x\n" * n,
    "comments": lambda n: "# x\n" * n,
    "documents": lambda n: "---\na: 1\n" * (n // 10),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans(name: str, tmp_path: Path) -> None:
    suffix, text, code = PLANS[name]
    path, named = tmp_path / f"plan{suffix}", tmp_path / f"plan{suffix.removeprefix('.0')}"

    def check(size: int) -> Checked:
        path.write_text(text(size))
        return check_file(named)

    assert exponent(check, 10_000, 100_000) < SQUARE
    found = check_file(named)
    assert len(found.findings) <= 50
    assert not code or found.findings[0].code.startswith(code), found


@pytest.mark.slow
@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("read", [CclConfig.load, load_machine])
def test_yaml(name: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"

    def attempt(size: int) -> None:
        path.write_text(YAML[name](size))
        try:
            read(path)
        except AhbmError as error:
            assert error.code

    assert exponent(attempt, 10_000, 100_000) < SQUARE


def test_many_ranks_of_one_result_are_no_square_of_them(tmp_path: Path) -> None:
    def large(ranks: int) -> Path:
        path = tmp_path / "large.xml"
        gpus = many(ranks, GPU.replace('id="0"', 'id="#"'))
        path.write_text(ALGO.replace('ngpus="1"', f'ngpus="{ranks}"') + gpus + "</algo>")
        return path

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert check_file(large(3000)).verdict == "wrong"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
    assert check_file(large(20_000)).findings[0].code == "AHBM-B210"


@pytest.fixture
def others(here: Path) -> Iterator[Path]:
    """A folder of things that are no files, under names of files."""
    listening = socket.socket(socket.AF_UNIX)
    for suffix in ("xml", "json", "yaml", "py", "0.et"):
        (here / f"folder.{suffix}").mkdir()
        os.mkfifo(here / f"pipe.{suffix}")
        (here / f"zero.{suffix}").symlink_to("/dev/zero")
    listening.bind("socket.xml")
    for suffix in ("json", "yaml", "py", "0.et"):
        (here / f"socket.{suffix}").symlink_to("socket.xml")
    yield here
    listening.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "pipe", "zero", "socket", "missing"])
def test_what_is_no_file(kind: str, others: Path) -> None:
    for command in (
        f"check {kind}.xml",
        f"check {kind}.json",
        f"check {kind}.et",
        f"run {kind}.xml --size 64",
        f"run {kind}.json --size 64",
        f"run {kind}.et --size 64",
        f"run {kind}.et --groups {kind}.json",
        f"run all_reduce -a {kind}.py --size 64",
        f"run all_reduce -a {kind}.xml --size 64",
        f"run all_reduce -t {kind}.yaml --size 64",
        f"run all_reduce --ccl {kind}.yaml --size 64",
        f"bench all_reduce -e 1K --gate {kind}.json",
        f"compare {kind}.json {kind}.json",
        f"convert {kind}.xml other.json",
        f"topology {kind}.yaml",
        f"list --ccl {kind}.yaml",
        f"explain {kind}.json --size 64",
    ):
        code, _, told = run("ahbm", command.split(), others)
        # A pipe without a writer is an empty file, which leaves everything at its default.
        assert code != 1 and (code or kind == "pipe") and "Traceback" not in told, (command, code, told)


def test_a_report_of_anything(tmp_path: Path) -> None:
    for text in ("[" * 100_000, '"x' * 1000, "1" * 10_000, "[{}]", '{"reports": 3}', "\ufeff", ""):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(AhbmError, match="AHBM-C160"):
            compare.load(tmp_path / "a.json")
