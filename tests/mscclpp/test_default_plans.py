"""The plans that `python -m ahbm.mscclpp --install` writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ahbm import _core
from ahbm.mscclpp.__main__ import main
from ahbm.mscclpp.default_plans import folder, installed
from ahbm.mscclpp.requests import CollectiveRequest

KIB = 1 << 10
WANTED = {
    "allreduce_2nodes_128K_2M": (16, 128 * KIB, 2048 * KIB),
    "allreduce_2nodes_1K_64K": (16, KIB, 64 * KIB),
    "allreduce_4nodes_128K_2M": (32, 128 * KIB, 2048 * KIB),
    "allreduce_4nodes_1K_64K": (32, KIB, 64 * KIB),
}


def test_installed_plans_are_right_and_match_their_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MSCCLPP_EXECUTION_PLAN_DIR", raising=False)
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["ahbm.mscclpp", "--install"])
    assert installed() == []
    main()
    assert sorted(capsys.readouterr().out.split()) == [str(folder() / f"{name}.json") for name in WANTED]
    plans = installed()
    assert [plan.name for plan in plans] == list(WANTED) and installed()[0] is plans[0]
    for plan, (ranks, least, most) in zip(plans, WANTED.values(), strict=True):
        assert (plan.message_size_range, plan.tags) == ((least, most), {"default": 1})
        for nbytes, fits in ((least - 1, False), (least, True), (most, True), (most + 1, False)):
            request = CollectiveRequest(ranks, 8, 3, 64, 64, nbytes, 0, "allreduce", None)
            assert plan.matches(request, nbytes) == fits
        one_host = CollectiveRequest(ranks, ranks, 3, 64, 64, least, 0, "allreduce", None)
        assert not plan.matches(one_host, least)
    before = [path.read_bytes() for path in sorted(folder().iterdir())]
    main()
    assert [path.read_bytes() for path in sorted(folder().iterdir())] == before


@pytest.mark.parametrize("name", WANTED)
def test_an_installed_plan_is_a_correct_all_reduce(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSCCLPP_EXECUTION_PLAN_DIR", str(tmp_path))
    from ahbm.mscclpp.default_plans import install

    install()
    verdict, _, findings, _ = _core.read_plan(folder() / f"{name}.json").check()
    assert (verdict, findings) == ("correct", [])
