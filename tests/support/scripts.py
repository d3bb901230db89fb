"""Scripts that lower programs, for tests of what is done with them."""

from __future__ import annotations

from pathlib import Path

EXCHANGE = """\
import argparse

from mscclpp.language import *

parser = argparse.ArgumentParser()
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--instances", type=int, default=1)
parser.add_argument("--forget", action="store_true")
asked = parser.parse_args()
everybody = range(asked.ranks)
with CollectiveProgram("exchange", AllGather(asked.ranks, 1, True), asked.ranks, instances=asked.instances):
    channel = {(a, b): MemoryChannel(b, a) for a in everybody for b in everybody if a != b}
    for a in everybody:
        others = [b for b in everybody if b != a]
        for b in others:
            channel[a, b].signal(tb=0, relaxed=True)
        for b in others:
            channel[a, b].wait(tb=0, relaxed=True, data_sync=SyncType.after)
        mine = Rank(a).get_output_buffer()[a : a + 1]
        for b in others[asked.forget :]:
            channel[a, b].put(Rank(b).get_output_buffer()[a : a + 1], mine, tb=0)
        for b in others:
            channel[a, b].signal(tb=0, data_sync=SyncType.before)
        for b in others:
            channel[a, b].wait(tb=0, data_sync=SyncType.after)
    print(JSON())
"""
"""An all-gather; `--forget` leaves out a put of every rank."""


def exchange(folder: Path) -> str:
    """The path of `EXCHANGE` as a file."""
    path = folder / "exchange.py"
    path.write_text(EXCHANGE, encoding="utf-8")
    return str(path)


def script(folder: Path, text: str, name: str = "script.py") -> str:
    """The path of a file with `text`."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)
