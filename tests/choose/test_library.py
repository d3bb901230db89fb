"""The five knobs of a library's tuner as an action."""

from __future__ import annotations

import pytest

from ahbm.choose.catalogue import Catalogue
from ahbm.choose.episodes import Every, Mix
from ahbm.choose.library import PARTS, LibraryKnobs, LiveKnobs
from ahbm.errors import ConfigError

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("ahbm.choose.environment")


@pytest.fixture(scope="module")
def env() -> object:
    knobs = LibraryKnobs(Catalogue.of("all_reduce", ["nccl_ring_allreduce", "tree_allreduce"]))
    return gymnasium.make(
        "ahbm/SelectKnobs-v1", outcomes=LiveKnobs(knobs, "dgx_h100"), mix=Mix([64, 1 << 28]), calls=40
    )


def test_gymnasium_finds_nothing_to_complain_of(env: object) -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(env.unwrapped, skip_render_check=True)  # type: ignore[attr-defined]


def test_an_action_is_five_parts(env: object) -> None:
    space = env.action_space  # type: ignore[attr-defined]
    assert isinstance(space, gymnasium.spaces.Dict) and set(space) == set(PARTS)
    env.reset(seed=1)  # type: ignore[attr-defined]
    at = dict.fromkeys(PARTS, 0)
    seen = {}
    for part, value in (("algorithm_id", 0), ("channels", 1), ("protocol", 1), ("chunk_size", 1), ("threads", 1)):
        for _ in range(3):
            info = env.step(at | {part: value})[4]  # type: ignore[attr-defined]
            seen[part, info["bytes"]] = info
    big, small = 1 << 28, 64
    assert env.step(at | {"algorithm_id": 1, "channels": 1})[4]["without_effect"] == ("channels",)  # type: ignore[attr-defined]
    # LL was fitted to few bytes: beyond them it is refused, and the slowest that runs takes its place.
    assert seen["protocol", big]["refused"][0] == "AHBM-C192"
    assert "refused" not in seen["protocol", small]
    assert all(info["regret"] >= 0 for info in seen.values())


def test_masks_cover_every_part(env: object) -> None:
    _, info = env.reset(seed=0)  # type: ignore[attr-defined]
    space = env.action_space  # type: ignore[attr-defined]
    space.seed(0)
    assert set(space.sample(mask=info["action_mask"])) == set(PARTS)
    assert len(env.unwrapped.action_masks()) == sum(one.n for one in space.values())  # type: ignore[attr-defined]


def test_values_that_are_none_are_refused() -> None:
    base = Catalogue.of("all_reduce", ["ring_allreduce"])
    for wrong in ({"channels": (2,)}, {"threads": (None, 0)}, {"protocols": (None, 3)}):
        with pytest.raises(ConfigError, match="AHBM-C129"):
            LibraryKnobs(base, **wrong)  # type: ignore[arg-type]


def test_every_call_comes_as_often_as_asked() -> None:
    live = LiveKnobs(LibraryKnobs(Catalogue.of("all_reduce", ["ring_allreduce"])), "npu_ring_8")
    asked = Every(("all_reduce", "all_gather"), (1 << 10, 1 << 20), 3).calls(live, "npu_ring_8")
    assert len(asked) == 12 and len(set(asked)) == 4
