"""Whatever the public functions of `ahbm.torch` are given: they work, or an error of AHBM names what is wrong."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch.distributed as dist

import ahbm.torch
from ahbm.ranks.setup import Setup
from support.harmful import HOSTILE, escaped


@contextlib.contextmanager
def left() -> Any:
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def init_alone(**given: Any) -> None:
    with left():
        ahbm.torch.init_alone(**given)


CALLS = {
    "spawn": (ahbm.torch.spawn, {"worker": lambda rank: None}),
    "record": (ahbm.torch.record, {"prefix": "job"}),
    "init_alone": (init_alone, {"rank": 0, "world_size": 2}),
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_but_errors_of_ahbm_comes_back(name: str, here: Path) -> None:
    call, good = CALLS[name]
    parameters = [p.name for p in inspect.signature(getattr(ahbm.torch, name)).parameters.values() if p.name != "asked"]
    if name == "init_alone":
        parameters += [field.name for field in fields(Setup)]
    wrong = []
    for parameter in parameters:
        for value in HOSTILE:
            wrong += escaped(f"{name}({parameter})", partial(call, **{**good, parameter: value}), value)
    assert not wrong
