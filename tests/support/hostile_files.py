"""Random input for readers of others' files: files that were whole once, with lines, words and bytes changed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from random import Random
from typing import Any

from ahbm._core import read_plan
from ahbm.choose import formats
from ahbm.config.topology import load_machine
from ahbm.job.open import open_
from ahbm.source.plan import made_for

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 2**31, 2**63, -(2**70), 0.5, 1e300, float("inf"), float("nan")),
    *("", "0", "-1", "nccl:all_reduce", "é\u2028", "\ud800", "9" * 400, [], {}, [[]], [0, 1, 1], ["x"], {"0": {}}),
)
TUNERS = (
    "# comment\nallreduce,0,65536,tree,simple,2,1,8\nallreduce,65537,1048576,ring,simple,4,-1,-1,-1,-1\n",
    "broadcast,0,32768,tree,ll,8,1,-1,0,1\nreducescatter,0,18446744073709551615,ring,ll128,-1,4,32\n",
    "UCC_TL_UCP_TUNE=allreduce:0-64K:@0#allgather:0-inf:@ring\nUCC_CL_BASIC_TUNE=inf\n",
    "[allreduce]\nUCC_TL_NCCL_TUNE=allreduce:cuda:inf:[2-8]:@ring\n",
    '{"allreduce": [{"min_bytes": 0, "max_bytes": 65536,\n "algorithm": "tree", "protocol": "ll"}]}\n',
    "algorithms:\n  all_reduce:\n  - {max_bytes: 4096, algorithm: tree_allreduce}\n  - {algorithm: ring_allreduce}\n",
    "NCCL_ALGO=^ring;allreduce:tree,nvls;broadcast:ring\nNCCL_PROTO=allreduce:LL,LL128\nNCCL_MIN_NCHANNELS=8\n",
    "RCCL_MSCCLPP_THRESHOLD=1048576\nNCCL_ALGO=Ring\nNCCL_PROTO=^LL\nMSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=all\n",
)
SCHEDULES = (
    "NPUs Count,3\nLinks Count,3\nChunks Count,3\nChunk Size,1024,B\n"
    "SrcID,DestID,Latency (ns),Bandwidth (GB/s),Chunks\n"
    "0,1,500,50,0,2\n1,2,500,50,1,0\n2,0,500,50,2,1\n",
    json.dumps(
        {
            "1-Epoch_Duration": 1.81072e-06,
            "4-Collective_Finish_Time": 1.81072e-06,
            "5-Algo_Bandwidth": 144.7733,
            "6-Demand_Met": {},
            "8-Chunk paths": {
                f"Demand at {b} for chunk 0 from {a} met by epoch 0": [f"{a}->{b} in epoch 0"]
                for a in range(3)
                for b in range(3)
                if a != b
            },
        }
    ),
    json.dumps(
        {
            "msccl_type": "algorithm",
            "name": "a",
            "instance": {"pipeline": None},
            "collective": {
                "msccl_type": "collective",
                "name": "c",
                "nodes": 3,
                "chunks": [{"msccl_type": "chunk", "pre": [r], "post": [0, 1, 2], "addr": r} for r in range(3)],
            },
            "steps": [
                {"msccl_type": "step", "rounds": 1, "sends": [[(r - s) % 3, r, (r + 1) % 3] for r in range(3)]}
                for s in range(2)
            ],
        }
    ),
)
GRAPHS = (
    "name: host\ncomponents:\n- {name: gpu, choice: xpu, count: 2}\n- {name: sw, choice: switch, count: 1}\n"
    "links:\n- {name: bus, physical: {bandwidth: {gigabits_per_second: 400}}}\n"
    "edges:\n- ep1: {component: 'gpu[0:2]'}\n  ep2: {component: 'sw[0]'}\n  link: bus\n  scheme: many2many\n",
)


def changed_facts(value: Any, chance: Random) -> Any:
    """A document with one of its values changed, dropped or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice([*value])
        if chance.random() < 0.15:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: changed_facts(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        if chance.random() < 0.15:
            return [*value, value[at]]
        return [changed_facts(one, chance) if number == at else one for number, one in enumerate(value)]
    return chance.choice(ODD)


def changed_text(text: str, chance: Random) -> str:
    """A text with characters cut out, doubled, or replaced by odd ones."""
    at, length = chance.randrange(len(text) + 1), chance.choice((0, 1, 1, 2, 5, 40))
    new = chance.choice(
        ("", text[at : at + length] * 2, *map(str, ODD), "\0", "\n", ",", ":", '"', "- ", "@", "..", "e9")
    )
    return text[:at] + new + text[at + length :]


def _text(texts: tuple[str, ...], chance: Random) -> bytes:
    text = chance.choice(texts)
    if text.startswith("{") and chance.random() < 0.5:
        document = json.loads(text)
        for _ in range(chance.randrange(1, 3)):
            document = changed_facts(document, chance)
        text = json.dumps(document)
    for _ in range(chance.randrange(3)):
        text = changed_text(text, chance)
    return text.encode("utf-8", "surrogatepass")


def tuners(chance: Random, folder: Path) -> None:
    """A tuning file of NCCL, NCCLX, UCC, RCCL or MSCCL++."""
    path = folder / "tuner.conf"
    path.write_bytes(_text(TUNERS, chance))
    found = formats.read(path, chance.choice([None, None, None, *formats.FORMATS]))
    for finding in found.findings:
        str(finding)


def schedules(chance: Random, folder: Path) -> None:
    """A schedule of TACOS, TE-CCL or SCCL, read and made a plan."""
    path = folder / chance.choice(("schedule.csv", "schedule.json"))
    path.write_bytes(_text(SCHEDULES, chance))
    plan = read_plan(str(path))
    made_for(plan, str(path))


def dumps(chance: Random, folder: Path) -> None:
    """Dumps of PyTorch's Flight Recorder, as pickles or as JSON."""
    for old in folder.glob("trace_*"):
        old.unlink()
    for rank in range(2):
        entries = [
            {
                "frames": [{"name": "step", "filename": "/home/me/train.py", "line": 10}],
                **{"record_id": at, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": at + 1},
                **{"p2p_seq_id": 0, "op_id": at + 1, "profiling_name": "nccl:all_reduce", "is_p2p": False},
                **{"time_created_ns": 1_700_000_000_000_000_000 + at, "state": chance.choice(["completed", "started"])},
                **{"input_sizes": [[4, 8]], "output_sizes": [[4, 8]], "input_dtypes": ["Float"]},
                **{"output_dtypes": ["Float"], "timeout_ms": 600_000, "retired": True},
            }
            for at in range(2)
        ]
        document: Any = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {},
            "entries": entries,
        }
        if chance.random() < 0.3:
            entries[1]["input_sizes"] = entries[1]["output_sizes"] = entries[0]["input_sizes"]
            entries[chance.randrange(2)]["frames"] = chance.choice([entries[0]["frames"], entries[1]["input_sizes"]])
        for _ in range(chance.randrange(3)):
            document = changed_facts(document, chance)
        if chance.random() < 0.5:
            content = bytearray(pickle.dumps(document, protocol=chance.choice((0, 2, 4))))
            for _ in range(chance.choice((0, 0, 1, 5))):
                content[chance.randrange(len(content))] = chance.randrange(256)
            (folder / f"trace_{rank}").write_bytes(content)
        else:
            text = json.dumps(document)
            text = changed_text(text, chance) if chance.random() < 0.3 else text
            (folder / f"trace_{rank}.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    first = chance.choice(sorted(folder.glob("trace_*")))
    opened = open_(first, topology="npu_ring_8")
    opened.run()


def graphs(chance: Random, folder: Path) -> None:
    """A graph of components of InfraGraph, with a machine for what it does not say."""
    path = folder / "graph.yaml"
    path.write_bytes(_text(GRAPHS, chance))
    load_machine(path, chance.choice([{}, {"base": "npu_ring_8"}, {"base": "dgx_h100"}]))
