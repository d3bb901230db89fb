"""A topology.yaml that stands on another machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ahbm.base.yaml_source import parse, scalar
from ahbm.config.based import base_of, text_of
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError
from support.commands import run

LINK = "system.sips.link.bandwidth_gbs"


def test_a_file_is_its_base_with_its_own_keys(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: dgx_h100\nsystem:\n  sips:\n    count: 4\n    link: {bandwidth_gbs: .inf}\n")
    machine = load_machine(mine)
    assert machine.hash == load_machine("dgx_h100", {"system.sips.count": 4, LINK: ".inf"}).hash
    assert load_machine(mine, {"system.sips.count": 2}).sips == 2
    (tmp_path / "next.yaml").write_text("base: ./mine.yaml\nlaunch: {overhead_ns: 7}\n")
    again = load_machine(tmp_path / "next.yaml")
    assert again.sips == 4 and again.hash != machine.hash


def test_a_network_is_a_base(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: hypercube\nsystem: {sips: {count: 16}}\n")
    assert load_machine(tmp_path / "mine.yaml").hash == load_machine("hypercube", {"system.sips.count": 16}).hash


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("base: dgx_h10\n", "AHBM-T101", "dgx_h100"),
        ("base: 7\n", "AHBM-T002", "mine.yaml:1"),
        ("base: ./mine.yaml\n", "AHBM-T102", "stand on each other"),
        ("base: dgx_h100\nsystem: {sips: {cout: 4}}\n", "AHBM-T003", "cout"),
        ("base: dgx_h100\nsystem: [\n", "AHBM-C102", "mine.yaml"),
        ("base: ./none.yaml\n", "AHBM-T102", "none.yaml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, code: str, what: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(AhbmError) as refused:
        load_machine(tmp_path / "mine.yaml")
    assert refused.value.code == code and what in str(refused.value)


def test_a_machine_is_written_to_be_changed(tmp_path: Path) -> None:
    code, out, err = run("ahbm", ["topology", "dgx_h100", "--set", f"{LINK}=600", "-o", "mine.yaml"], tmp_path)
    assert code == 0 and "machine: mine.yaml" in out, err
    assert load_machine(tmp_path / "mine.yaml").hash == load_machine("dgx_h100", {LINK: 600}).hash
    code, _, err = run("ahbm", ["topology", "-t", "mine.yaml", "--ranks", "4", "-o", "four.yaml"], tmp_path)
    assert code == 0, err
    assert (
        load_machine(tmp_path / "four.yaml").hash == load_machine(tmp_path / "mine.yaml", {"system.sips.count": 4}).hash
    )
    code, _, err = run("ahbm", ["topology", "dgx_h100", "-o", "mine.txt"], tmp_path)
    assert code != 0 and "AHBM-C141" in err


_VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab, []{}:#'\"\\.-1", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(value=_VALUES)
@example(value=1e-09)
@example(value=[1e22, -2.5e-7])
def test_values_come_back(value: object) -> None:
    text = text_of("switch", {"a.b": value, "a.c": 1})
    meant = scalar(value) if isinstance(value, str) else value
    assert parse(text, "x").values["a"]["b"] == meant
    found = base_of(text, Path("x.yaml"))
    assert found is not None and found[0] == "switch" and found[1]["a.c"] == "1"
