"""`ahbm paper`, small: every consumer takes every producer's algorithm."""

from __future__ import annotations

import json
from pathlib import Path

from support.commands import run


def test_the_paper_runs(tmp_path: Path) -> None:
    code, out, err = run("ahbm", ["paper", "--small", "--json"], tmp_path)
    assert (code, err) == (0, "")
    found = json.loads(out)
    for row in found["rounds"]:
        assert row["verdict"] == "correct"
        # One algorithm takes one time in every format, and as the trace of its run.
        assert row["engine"] == row["xml"] == row["json"] == row["et"] == row["profile"]
        # ASTRA-sim cuts delays to whole nanoseconds, and begins nodes by their ids.
        assert 0.95 < row["cycles"] / row["engine"] < 1.2
    own = found["overlap"]
    assert own["chunks_us"] < own["whole_us"]
    for network in ("2-D mesh", "3-D hypercube"):
        best = {row["producer"]: row["gbs"] for row in found["bandwidth"] if row["network"] == network}
        assert best["TACOS"] > best["ring"]
    assert all(0 < row["running"] < row["published"] and row["seconds"] > 0 for row in found["conversion"])
