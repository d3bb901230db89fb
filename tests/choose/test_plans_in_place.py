"""Plans for calls in place and for those out of place are for different calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from ahbm.choose.evaluation import evaluate
from ahbm.choose.formats import read
from ahbm.config.topology import load_machine


def step(at: int, kind: str, buffers: str, chunk: int) -> str:
    source, target = buffers
    return (
        f'<step s="{at}" type="{kind}" srcbuf="{source}" srcoff="{chunk}" dstbuf="{target}" dstoff="{chunk}" cnt="1" '
        'depid="-1" deps="-1" hasdep="0"/>'
    )


def write(
    folder: Path, name: str, places: tuple[int, int] | None, coll: str = "allreduce", most: int = 1 << 20
) -> None:
    """An all-reduce of two ranks that adds in its output, or in place in its input."""
    own = "i" if places is None or places[0] else "o"
    gpus = []
    for rank, peer in ((0, 1), (1, 0)):
        steps = [("cpy", "io", rank)] if own == "o" else []
        steps += [("s", f"i{own}", peer), ("rrc", own * 2, rank), ("s", own * 2, rank), ("r", own * 2, peer)]
        body = "".join(step(at, *each) for at, each in enumerate(steps))
        gpus.append(
            f'<gpu id="{rank}" i_chunks="2" o_chunks="2" s_chunks="0"><tb id="0" send="{peer}" recv="{peer}" chan="0">'
            f"{body}</tb></gpu>"
        )
    said = "" if places is None else f'inplace="{places[0]}" outofplace="{places[1]}" '
    (folder / f"{name}.xml").write_text(
        f'<algo name="{name}" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="{coll}" {said}'
        f'minBytes="0" maxBytes="{most}">{"".join(gpus)}</algo>'
    )


def test_what_is_timed_is_the_plan_for_calls_in_place(tmp_path: Path) -> None:
    write(tmp_path, "a_apart", (0, 1))
    write(tmp_path, "b_within", (1, 0))
    machine = load_machine("npu_ring_8", {"system.sips.count": 2})
    found = evaluate(tmp_path, [machine], [1 << 12, 1 << 18], algorithms=["ring_allreduce"])
    assert list(found.stands) == ["b_within"] and not found.read.findings
    assert any("a_apart.xml is for calls out of place alone" in line for line in found.lines())
    (tmp_path / "b_within.xml").unlink()
    alone = evaluate(tmp_path, [machine], [1 << 12], algorithms=["ring_allreduce"])
    assert list(alone.stands) == ["a_apart"] and "a_apart.xml is for calls out of place alone" in alone.read.notes[0]


@pytest.mark.parametrize(
    ("first", "second", "hidden"),
    [
        ((1, 0), (0, 1), False),
        ((0, 1), (1, 0), False),
        ((1, 0), (1, 1), False),
        ((1, 1), (1, 0), True),
        ((1, 1), (0, 1), True),
        ((1, 0), (1, 0), True),
        ((0, 1), (0, 1), True),
        ((1, 1), (1, 1), True),
    ],
)
def test_a_plan_hides_another_of_the_same_calls_only(
    first: tuple[int, int], second: tuple[int, int], hidden: bool, tmp_path: Path
) -> None:
    write(tmp_path, "a", first)
    write(tmp_path, "b", second, most=1 << 19)
    found = read(tmp_path)
    assert [(one.code, one.sites[0].label) for one in found.findings] == [
        ("AHBM-F198", str(tmp_path / "b.xml"))
    ] * hidden
    assert len(found.notes) == [first, second].count((0, 1))


def test_two_plans_hide_a_third_that_is_for_the_calls_of_both(tmp_path: Path) -> None:
    for name, places in (("a", (1, 0)), ("b", (0, 1)), ("c", (1, 1))):
        write(tmp_path, name, places)
    (finding,) = read(tmp_path).findings
    assert finding.sites[0].label == str(tmp_path / "c.xml")


def test_a_plan_for_no_calls_is_passed_over_and_named(tmp_path: Path) -> None:
    write(tmp_path, "a", (0, 0))
    write(tmp_path, "b", (1, 0))
    found = read(tmp_path)
    assert [Path(rule.algorithm).name for rule in found.rules] == ["b.xml"]
    assert found.notes == ("a.xml is for calls neither in place nor out of place: passed over",)
