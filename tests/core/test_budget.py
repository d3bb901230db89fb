"""Small files that ask for much: the answer names the option that allows it, and takes little memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

BILLION = 10**9
MEBIBYTE = 2**20

CHECK = """
import json, re, sys
from ahbm.runs.verdict import check_file
checked = check_file(sys.argv[1])
# Of this program alone: ru_maxrss begins with what the parent had.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
print(json.dumps({"peak": peak, **checked.to_json()}))
"""


def xml(chunks: int, steps: str, collective: str = "custom", before: str = "") -> bytes:
    """Two ranks that do the same on buffers of that many chunks."""
    head = f'<algo name="t" proto="Simple" nchannels="1" nchunksperloop="{chunks}" ngpus="2" coll="{collective}"'
    gpu = f'i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="0">{before}<tb id="0"'
    body = "".join(
        f'<gpu id="{rank}" {gpu} send="{1 - rank}" recv="{1 - rank}" chan="0">{steps}</tb></gpu>' for rank in range(2)
    )
    return f'{head} inplace="1">{body}</algo>'.encode()


def step(kind: str, count: int) -> str:
    return f'<step s="0" type="{kind}" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="{count}"/>'


def plan(chunks: int, count: int = 1, **operation: object) -> bytes:
    """Two ranks that copy chunks."""
    span = {"index": 0, "size": count}
    copy = {"name": "copy", "src_buff": [{"type": "i", **span}], "dst_buff": [{"type": "o", **span}], **operation}
    gpu = {"input_chunks": chunks, "output_chunks": chunks, "scratch_chunks": 0, "channels": []}
    gpus = [{"id": rank, **gpu, "threadblocks": [{"id": 0, "ops": [copy]}]} for rank in range(2)]
    head = {"name": "t", "collective": "test", "protocol": "Simple", "inplace": False}
    return json.dumps({**head, "gpus": gpus}).encode()


FILES = {
    "sends.xml": (xml(BILLION, step("s", BILLION) + step("r", BILLION)), "cells"),
    "chunks.xml": (xml(BILLION, step("s", 1) + step("r", 1), "allreduce"), "cells"),
    "cells.xml": (xml(2 * MEBIBYTE, step("s", 1) + step("r", 1), "allgather"), "cells"),
    "copies.xml": (xml(BILLION, "", before=f'<copy i_off="0" o_off="0" cnt="{BILLION}"/>' * 4), "cells"),
    "ranks.json": (json.dumps({**json.loads(plan(1)), "gpus": [{}] * 3}).encode(), None),
    "copy.json": (plan(2**25, 2**25), "cells"),
    "chunks.json": (plan(MEBIBYTE), "cells"),
    "bomb.0.et": (gzip.compress(b"\x02\x08\x01" * 330_000, 9, mtime=0), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_small_file_that_asks_for_much_is_refused_in_little_memory(tmp_path: Path, name: str) -> None:
    data, limit = FILES[name]
    assert len(data) <= 1500
    path = tmp_path / name
    path.write_bytes(data)
    # The time limit only keeps a hang from stopping the tests.
    found = subprocess.run([sys.executable, "-c", CHECK, str(path)], capture_output=True, timeout=60, check=True)
    answer = json.loads(found.stdout)
    first = answer["findings"][0]
    if limit is None:
        assert answer["verdict"] == "malformed"
    else:
        assert (answer["verdict"], first["code"][:6]) == ("unsupported", "AHBM-B")
        assert first["hint"].startswith(f"--limit {limit}=")
    assert answer["peak"] < 200 * MEBIBYTE


def test_a_check_within_the_limits_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "largest.xml"
    path.write_bytes(xml(2**18, step("s", 1) + step("r", 1), "alltoall"))
    found = subprocess.run([sys.executable, "-c", CHECK, str(path)], capture_output=True, timeout=60, check=True)
    answer = json.loads(found.stdout)
    assert answer["verdict"] == "wrong"
    assert answer["peak"] < 200 * MEBIBYTE
