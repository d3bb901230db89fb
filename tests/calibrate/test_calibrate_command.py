"""`ahbm calibrate` and `ahbm bench` on its machines, as a user has them; and tables with anything in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahbm.calibrate import templates, written
from ahbm.calibrate.tables import Row, Table, read
from ahbm.errors import FormatError
from support.commands import run

HEAD = "# accelerator: H100\n# nodes: 1\n# ranks: 8\n# op: all_reduce\nbytes,time_us\n"


def law(nbytes: int) -> float:
    return float(12 + min(nbytes / 2e4, 25 + nbytes / 2.5e5))


def table(folder: Path, every: int = 2) -> Path:
    rows = "\n".join(f"{1 << at},{law(1 << at):.4f}" for at in range(8, 30, every))
    (folder / "half.csv").write_text(HEAD + rows + "\n", encoding="utf-8")
    return folder / "half.csv"


@pytest.mark.slow
def test_a_machine_predicts_the_sizes_that_it_is_asked_for(tmp_path: Path) -> None:
    table(tmp_path)
    code, out, err = run("ahbm", ["calibrate", "half.csv", "-o", "machine.yaml", "--json"], tmp_path)
    assert code == 0, err
    told = json.loads(out)
    assert told["free_parameters"] <= 9 and told["tables"][0]["decades"]
    sizes = [1 << at for at in range(9, 29, 2)]
    asked = ",".join(map(str, [*sizes, 3 << 20, 1 << 33]))
    code, out, err = run("ahbm", ["bench", "-t", "machine.yaml", "--sizes", asked, "--json"], tmp_path)
    assert code == 0, err
    rows = {row["size"]: row for row in json.loads(out)["results"]}
    assert list(rows) == sorted([*sizes, 3 << 20, 1 << 33])
    for size in sizes:
        band, us = rows[size]["error_band"], rows[size]["in_place"]["time"]
        assert band["low_us"] <= us <= band["high_us"]
        assert abs(us / law(size) - 1) < 0.05, size
    assert "error_band" not in rows[1 << 33]
    assert any("outside the calibrated range" in note for note in rows[1 << 33]["report"]["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("collective", ["all_to_all", "gather", "scatter"])
def test_a_table_of_bench_gives_its_machine_back(collective: str, tmp_path: Path) -> None:
    tree = templates.of([Table("t", "0", collective, 8, 1, "H100", (Row(8, 1.0, 1),))]).machine(8)
    tree["launch"] = {"overhead_ns": 6000.0}
    tree["protocols"] = {"ll": {"step_ns": 600.0, "max_gbs": 20.0}, "simple": {"step_ns": 3200.0, "max_gbs": 370.0}}
    written.save(tree, tmp_path / "machine.yaml")
    sizes = ",".join(str(1 << at) for at in range(10, 31, 2))
    asked = ["bench", collective, "-t", "machine.yaml", "--sizes", sizes, "--no-data", "--json"]
    code, out, err = run("ahbm", asked, tmp_path)
    assert code == 0, err
    (tmp_path / "table.json").write_text(out, encoding="utf-8")
    code, out, err = run("ahbm", ["calibrate", "table.json", "-t", "machine.yaml", "--json"], tmp_path)
    assert code == 0, err
    found = {each["key"]: each["value"] for each in json.loads(out)["parameters"]}
    for name, protocol in tree["protocols"].items():
        for key, value in protocol.items():
            assert found[f"protocols.{name}.{key}"] == pytest.approx(value, rel=0.01), (name, key)


@pytest.mark.slow
def test_notes_of_a_table_are_told(tmp_path: Path) -> None:
    path = table(tmp_path, 5)
    path.write_text(path.read_text().replace("# nodes: 1\n", ""))
    told = "half.csv does not say on how many nodes its 8 ranks were: one is supposed (--nodes)"
    code, out, err = run("ahbm", ["calibrate", "half.csv", "--json"], tmp_path)
    assert code == 0 and told in json.loads(out)["notes"], err
    code, out, err = run("ahbm", ["calibrate", "half.csv", "--nodes", "1"], tmp_path)
    assert code == 0 and told not in out, err


@pytest.mark.slow
def test_text_for_people_and_mistakes(tmp_path: Path) -> None:
    table(tmp_path, 5)
    code, out, _ = run("ahbm", ["calibrate", "half.csv", "-t", "p5"], tmp_path)
    assert code == 0 and "lines between the neighbours" in out
    for line, wanted in (
        (["calibrate", "missing.csv"], "AHBM-F210"),
        (["calibrate", "half.csv", "--ranks", "16"], "AHBM-F212"),
        (["calibrate", "half.csv", "-t", "missing.yaml"], "AHBM-C195"),
        (["calibrate", "half.csv", "--free", "launch.overhead_ns"], "AHBM-C195"),
        (["calibrate", "half.csv", "-o", "no/such/folder.yaml"], "AHBM-C195"),
        (["bench", "--sizes", "1K"], "AHBM-C105"),
    ):
        code, _, err = run("ahbm", line, tmp_path)
        assert code and wanted in err, line


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, 400),
    put=st.text(st.characters(codec="utf-8"), max_size=12),
    body=st.sampled_from(
        [
            HEAD + "1024,13.5\n2048,14.5\n",
            "#  Rank  0 Group  0 Pid  1 on a device  0 [0x1] H100\n 8 2 float sum -1 9.1 0 0 0 9.2 0 0 0\n",
            '{"args": ["all_reduce_perf"], "ranks": [{}, {}], "results": [{"size": 8, "in_place": {"time": 1}}]}',
        ]
    ),
)
def test_whatever_stands_in_a_table(tmp_path: Path, at: int, put: str, body: str) -> None:
    path = tmp_path / "table"
    path.write_text(body[:at] + put + body[at + len(put) // 2 :], encoding="utf-8")
    try:
        found = read(path, collective=None)
    except FormatError as error:
        assert error.code in ("AHBM-F210", "AHBM-F211", "AHBM-F212")
    else:
        assert all(row.bytes > 0 and row.us > 0 for row in found.rows)
