"""Sizes and protocols of plans: what their files say of them, and what a run makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.core.emulator import Emulator
from ahbm.errors import DeadlockError
from ahbm.runs import plans
from ahbm.runs.verdict import check_file, check_kernel
from ahbm.source.plan import PlanAlgorithm, depth
from support.plans import FOUR, TOPOLOGY, document, ring, step

TWO = {"system.sips.count": 2}
NOTE = "ranged is for 8192 to 65536 B: at other sizes a runtime runs another algorithm"


def exchange(proto: str, chunks: int, cnt: int) -> str:
    """Two ranks gather `chunks` chunks each. Both send their own, `cnt` in a step, before they receive."""

    def rank(me: int) -> str:
        parts = range(0, chunks, cnt)
        sends = [step(0, "s", f"i:{k}", f"o:{me * chunks + k}") for k in parts]
        takes = [step(0, "r", f"i:{k}", f"o:{(1 - me) * chunks + k}") for k in parts]
        moved = "".join([*sends, *takes]).replace('cnt="1"', f'cnt="{cnt}"')
        own = step(0, "cpy", "i:0", f"o:{me * chunks}").replace('cnt="1"', f'cnt="{chunks}"')
        block = f'<tb id="0" send="{1 - me}" recv="{1 - me}" chan="0">{moved}{own}</tb>'
        return f'<gpu id="{me}" i_chunks="{chunks}" o_chunks="{2 * chunks}" s_chunks="0">{block}</gpu>'

    return document(2, 2 * chunks, "allgather", [rank(0), rank(1)], inplace=0, proto=proto)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("chunks", "cnt"), [(4, 4), (6, 3), (9, 9)])
def test_a_run_hangs_above_the_size_that_the_check_names(tmp_path: Path, chunks: int, cnt: int) -> None:
    path = write(tmp_path / "burst.xml", exchange("Simple", chunks, cnt))
    finding = check_file(path).findings[0]
    assert finding.code == "AHBM-V416"
    above = int(finding.message.split()[2])
    unit = 2 * chunks * 2

    def run(nbytes: int) -> int:
        return plans.run(path, TOPOLOGY, bytes_per_rank=nbytes, overrides=TWO, data=False).messages

    assert run(above // unit * unit) > 0
    with pytest.raises(DeadlockError):
        run((above // unit + 1) * unit)


@pytest.mark.parametrize(("proto", "most"), [("Simple", 2), ("LL", 8), ("LL128", 8)])
def test_queues_are_those_of_the_protocol(tmp_path: Path, proto: str, most: int) -> None:
    fits = write(tmp_path / "fits.xml", exchange(proto, most, 1))
    over = write(tmp_path / "over.xml", exchange(proto, most + 1, 1))
    checked = check_file(fits)
    assert (checked.verdict, checked.slots, checked.min_slots) == ("correct", most, most)
    assert check_file(over).verdict == "deadlock"
    assert plans.run(fits, TOPOLOGY, bytes_per_rank=4 * most, overrides=TWO).wrong == 0
    with pytest.raises(DeadlockError):
        plans.run(over, TOPOLOGY, bytes_per_rank=4 * (most + 1), overrides=TWO)
    # The protocol of the run counts, not the file's.
    simple = plans.Options(protocol="Simple")
    if proto != "Simple":
        with pytest.raises(DeadlockError):
            plans.run(fits, TOPOLOGY, simple, bytes_per_rank=4 * most, overrides=TWO)
    # The file that is made of it holds as much.
    ahbm.convert(fits, tmp_path / "again.et")
    assert check_file(tmp_path / "again").slots == most


def test_an_entry_has_the_depth_of_its_protocol_unless_it_says_another(tmp_path: Path) -> None:
    path = write(tmp_path / "ring.xml", ring(4, "LL"))
    entry = {"algorithms.r.plan": str(path), "algorithms.r.world_size": 4, "defaults.algorithm": "r"}

    def found(**more: object) -> int | None:
        own = {f"algorithms.r.{key}": value for key, value in more.items()}
        on = Emulator.load(TOPOLOGY, overrides=FOUR | entry | own)
        algorithm = on.algorithm("r")
        assert isinstance(algorithm, PlanAlgorithm)
        return depth(algorithm, on.settings("r"))

    assert (found(), found(protocol="Simple"), found(n_slots=3)) == (8, 2, 3)
    assert check_kernel("r", overrides=FOUR | entry).slots == 8


def test_a_size_that_a_runtime_does_not_take_the_plan_for_is_noted(tmp_path: Path) -> None:
    text = ring(4).replace('minBytes="0" maxBytes="0"', 'minBytes="8192" maxBytes="65536"')
    path = write(tmp_path / "ranged.xml", text)
    custom = write(tmp_path / "custom.xml", text.replace("allreduce", "custom"))

    def notes(*arguments: str) -> list[str]:
        machine = ["-t", TOPOLOGY, "--set", "system.sips.count=4", "--json"]
        result = CliRunner().invoke(app, ["run", *arguments, *machine], catch_exceptions=False)
        told: list[str] = json.loads(result.stdout)["notes"]
        return told

    for size, expected in [("4K", [NOTE]), ("8K", []), ("64K", []), ("128K", [NOTE])]:
        assert notes(str(path), "--size", size) == expected
        assert notes("all_reduce", "-a", str(path), "--size", size) == expected
    assert notes(str(custom), "--size", "4K") == [NOTE.replace("ranged", "custom")]
    assert NOTE in str(plans.run(path, TOPOLOGY, bytes_per_rank=4096, overrides=FOUR))
    sweep = ["bench", "all_reduce", "-a", str(path), "-b", "4K", "-e", "128K", "-t", TOPOLOGY]
    told = CliRunner().invoke(app, [*sweep, "--set", "system.sips.count=4"], catch_exceptions=False).stdout
    assert told.count(NOTE) == 1
