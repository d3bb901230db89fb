"""Schedules that are named as algorithms: `synth:METHOD` wherever an algorithm is."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.config.ccl import CclConfig
from ahbm.errors import UnsupportedError


def test_a_schedule_by_its_method_is_the_one_of_an_entry() -> None:
    options = {"topology": "npu_ring_8", "bytes_per_rank": 1 << 16}
    named = ahbm.run("all_reduce", "synth:ring", **options)  # type: ignore[arg-type]
    entry = {"algorithms.mine.synth.method": "ring"}
    given = ahbm.run("all_reduce", "mine", overrides=entry, **options)  # type: ignore[arg-type]
    assert named.wrong == 0 and named.timeline_hash == given.timeline_hash
    assert CclConfig.load().entry("synth:ring") == {"synth": {"method": "ring"}}


def test_commands_take_it() -> None:
    asked = ["all_reduce", "-a", "synth:dimensions", "-t", "npu_torus_4x4", "--size", "64K"]
    for command in (["run", *asked], ["explain", *asked, "--what-if", "none"]):
        assert CliRunner().invoke(app, command).exit_code == 0
    done = CliRunner().invoke(app, ["bench", *asked[:-2], "-b", "64K", "-e", "64K", "--json"])
    (row,) = json.loads(done.stdout)["results"]
    assert row["experiment_name"] == "synth:dimensions"


def test_a_method_that_there_is_not_is_named() -> None:
    with pytest.raises(UnsupportedError, match="AHBM-U406"):
        ahbm.run("all_reduce", "synth:dance", "npu_ring_8", bytes_per_rank=1 << 12)
