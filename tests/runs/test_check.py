"""`ahbm check`: verdicts, exit codes and JSON of small plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ahbm.base.verdicts import EXIT_CODES, exit_code
from ahbm.cli import app
from ahbm.config.reading import Reading
from ahbm.runs.verdict import CheckOptions, check_file

KEYS = ["file", "format", "collective", "ranks", "ops", "slots", "verdict", "min_slots", "findings", "proof"]


def ring(ranks: int, *, reduce: str = "rrc", collective: str = "allreduce", skip_last: bool = False) -> str:
    """A ring all-reduce of one channel in MSCCL-IR."""
    lines = [
        f'<algo name="ring" proto="Simple" nchannels="1" nchunksperloop="{ranks}" ngpus="{ranks}" coll="{collective}" '
        'inplace="1" outofplace="0" minBytes="0" maxBytes="0">'
    ]
    for rank in range(ranks):
        lines.append(f'<gpu id="{rank}" i_chunks="{ranks}" o_chunks="{ranks}" s_chunks="0">')
        lines.append(f'<tb id="0" send="{(rank + 1) % ranks}" recv="{(rank - 1) % ranks}" chan="0">')
        steps = []
        for k in range(ranks - 1):
            steps += [("s", (rank - k) % ranks), (reduce, (rank - k - 1) % ranks)]
        for k in range(ranks - 1 - skip_last):
            steps += [("s", (rank + 1 - k) % ranks), ("r", (rank - k) % ranks)]
        for index, (kind, chunk) in enumerate(steps):
            lines.append(
                f'<step s="{index}" type="{kind}" srcbuf="i" srcoff="{chunk}" dstbuf="i" dstoff="{chunk}" cnt="1" '
                'depid="-1" deps="-1" hasdep="0"/>'
            )
        lines.append("</tb></gpu>")
    return "\n".join([*lines, "</algo>"])


def write(folder: Path, text: str, name: str = "plan.xml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def invoke(*arguments: str) -> tuple[int, list[dict[str, object]]]:
    result = CliRunner().invoke(app, ["check", "--json", *arguments])
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_a_ring_is_correct(tmp_path: Path) -> None:
    code, (answer,) = invoke(str(write(tmp_path, ring(4))))
    assert code == 0
    assert list(answer) == KEYS
    assert answer == answer | {"format": "msccl_xml", "collective": "all_reduce", "ranks": 4, "ops": 48, "slots": 2}
    assert (answer["verdict"], answer["min_slots"]) == ("correct", 1)
    assert isinstance(answer["proof"], dict) and answer["proof"]["elements"] == 16 and answer["proof"]["time_ps"] > 0


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (ring(4, reduce="r"), "wrong"),
        (ring(4, skip_last=True), "wrong"),
        (ring(4, collective="custom"), "no_expectation"),
        (ring(4).replace('type="s"', 'type="teleport"'), "unsupported"),
        (ring(4)[:-20], "malformed"),
    ],
)
def test_verdicts_have_exit_codes(tmp_path: Path, text: str, verdict: str) -> None:
    code, (answer,) = invoke(str(write(tmp_path, text)))
    assert (answer["verdict"], code) == (verdict, EXIT_CODES[verdict])
    assert answer["proof"] is None


def test_a_deadlock_names_lines(tmp_path: Path) -> None:
    text = ring(3).replace('type="s"', 'type="x"').replace('type="rrc"', 'type="s"').replace('type="x"', 'type="rrc"')
    path = write(tmp_path, text)
    code, (answer,) = invoke("--slots", "inf", str(path))
    assert (answer["verdict"], answer["slots"], code) == ("deadlock", "inf", 7)
    finding = check_file(path, CheckOptions(slots=None)).findings[0]
    assert finding.code == "AHBM-D201"
    assert [site.origin for site in finding.sites] == [f"{path}:{line}" for line in (4, 26, 15)]


def test_a_message_that_nobody_receives_names_both_sides(tmp_path: Path) -> None:
    lines = ring(3).splitlines()
    receiver = next(n for n, line in enumerate(lines) if 'send="2" recv="0"' in line)
    lines[receiver] = lines[receiver].replace('chan="0"', 'chan="1"')
    path = write(tmp_path, "\n".join(lines))
    checked = check_file(path)
    assert checked.verdict == "malformed"
    first, *others = (finding for finding in checked.findings if finding.code == "AHBM-F128")
    assert [site.origin for site in first.sites] == [f"{path}:4", f"{path}:{receiver + 1}"]
    assert {finding.message.split(" on ")[0] for finding in others} == {
        "rank 1 sends to rank 2",
        "rank 1 receives from rank 0",
        "rank 2 receives from rank 1",
    }


def test_a_message_of_another_size_names_both_sides(tmp_path: Path) -> None:
    lines = ring(2).splitlines()
    lines[3] = lines[3].replace('srcoff="0"', 'srcoff="0"').replace('cnt="1"', 'cnt="2"')
    path = write(tmp_path, "\n".join(lines))
    checked = check_file(path)
    assert checked.verdict == "malformed"
    assert checked.findings[0].code == "AHBM-V407"
    assert {site.origin for site in checked.findings[0].sites} == {f"{path}:4", f"{path}:12"}


@pytest.mark.parametrize("seed", [0, 7])
def test_a_check_is_the_same_every_time(tmp_path: Path, seed: int) -> None:
    path = write(tmp_path, ring(4, reduce="r"))
    arguments = ("--orders", "8", "--seed", str(seed), str(path))
    assert invoke(*arguments) == invoke(*arguments)


def test_many_files_stream_in_order_and_the_gravest_decides(tmp_path: Path) -> None:
    paths = [write(tmp_path, ring(4, reduce="r" if i == 3 else "rrc"), f"{i}.xml") for i in range(6)]
    code, answers = invoke(*map(str, paths))
    assert [answer["file"] for answer in answers] == list(map(str, paths))
    assert code == EXIT_CODES["wrong"]
    assert exit_code([]) == 0
    alone = [verdict for verdict, code in EXIT_CODES.items() if list(EXIT_CODES.values()).count(code) == 1]
    assert set(EXIT_CODES) - set(alone) == {"undecided", "unsupported"}


def test_limits(tmp_path: Path) -> None:
    path = write(tmp_path, ring(4))
    code, (answer,) = invoke("--limit", "ranks=3", str(path))
    assert (answer["verdict"], code) == ("unsupported", EXIT_CODES["unsupported"])
    assert check_file(path, CheckOptions(reading=Reading(limits=(("ranks", 3),)))).findings[0].code == "AHBM-B206"
    assert CliRunner().invoke(app, ["check", "--limit", "nothing=3", str(path)]).exception is not None
