"""Writes the first inputs of every fuzz target to corpus/<target>/: small files that reach every element, operation
and message type. Needs the standard library only."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"

Json = dict[str, Any]


def step(index: int, kind: str, src: str, dst: str, rest: str = 'cnt="1" depid="-1" deps="-1" hasdep="0"') -> str:
    (a, i), (b, j) = src.split(":"), dst.split(":")
    return f'<step s="{index}" type="{kind}" srcbuf="{a}" srcoff="{i}" dstbuf="{b}" dstoff="{j}" {rest}/>'


def algo(coll: str, chunks: int, gpus: list[str], rest: str = 'inplace="1" outofplace="0"') -> bytes:
    head = f'<algo name="t" proto="Simple" nchannels="1" nchunksperloop="{chunks}" ngpus="{len(gpus)}" coll="{coll}"'
    return "\n".join([f'{head} {rest} minBytes="0" maxBytes="0">', *gpus, "</algo>"]).encode()


def ring(n: int) -> bytes:
    gpus = []
    for rank in range(n):
        kinds = ["s", *["rrs"] * (n - 2), "rrcs", *["rcs"] * (n - 2), "r"]
        steps = [step(k, kind, f"i:{(rank - k) % n}", f"i:{(rank - k) % n}") for k, kind in enumerate(kinds)]
        block = f'<tb id="0" send="{(rank + 1) % n}" recv="{(rank - 1) % n}" chan="0">{"".join(steps)}</tb>'
        gpus.append(f'<gpu id="{rank}" i_chunks="{n}" o_chunks="{n}" s_chunks="0">{block}</gpu>')
    return algo("allreduce", n, gpus)


def exchange() -> bytes:
    """Through scratch, with a dependency, a copy, a nop and a whole-loop copy."""
    gpus = []
    for rank in range(2):
        first = step(0, "s", "i:0", "s:0") + step(1, "r", "i:0", "s:0", 'cnt="1" depid="-1" deps="-1" hasdep="1"')
        second = step(0, "nop", "i:0", "i:0", 'depid="0" deps="1"') + step(1, "cpy", "i:0", "o:0")
        second += step(2, "re", "s:0", "o:0")
        blocks = f'<tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">{first}</tb>'
        blocks += f'<tb id="1" send="-1" recv="-1" chan="0">{second}</tb>'
        gpus.append(
            f'<gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="1"><copy i_off="0" o_off="0"/>{blocks}</gpu>'
        )
    return algo("allreduce", 1, gpus, 'inplace="0" outofplace="1" redop="sum" nthreads="256"')


def gather() -> bytes:
    """The older dialect: operations with one location."""
    gpus = []
    for rank in range(2):
        ops = f'<op step="0" type="s" buf="o" off="{rank}" cnt="1"/><op step="1" type="r" buf="o" off="{1 - rank}"/>'
        block = f'<tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">{ops}</tb>'
        gpus.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="2" s_chunks="0">{block}</gpu>')
    return algo("allgather", 2, gpus)


def local(space: str, index: int = 0) -> Json:
    return {"type": space, "index": index, "size": 1}


def remote(buffer: int) -> Json:
    return {"buffer_id": buffer, "index": 0, "size": 1}


def plan(collective: str, ops: list[list[Json]], **rest: Any) -> bytes:
    """Two ranks that do the same: a memory, a port and a switch channel, remote buffers i, o, s of the other."""
    gpus = []
    for rank in range(2):
        kinds = ["memory", "port", "switch"]
        ids = [{"channel_type": kind, "channel_ids": [0]} for kind in kinds]
        refs = [{"access_channel_type": kind, "remote_buffer_ids": [0, 1, 2]} for kind in kinds[:2]]
        blocks = [{"id": i, "ops": block, "channels": ids, "remote_buffer_refs": refs} for i, block in enumerate(ops)]
        group = {"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": 2, "ranks": [0, 1]}]}
        remotes = [{"rank": 1 - rank, "type": space, "access_channel_types": kinds[:2]} for space in "ios"]
        gpus.append(
            {
                "id": rank,
                "input_chunks": 2,
                "output_chunks": 2,
                "scratch_chunks": 2,
                "threadblocks": blocks,
                "channels": [*({"channel_type": kind, "connected_to": [1 - rank]} for kind in kinds[:2]), group],
                "remote_buffers": remotes,
                "semaphores": [{"init_value": 0}, {"init_value": 1}],
            }
        )
    head = {"name": "t", "collective": collective, "protocol": "Simple", "inplace": True, "reuse_resources": False}
    return json.dumps({**head, "gpus": gpus, **rest}).encode()


def op(name: str, kind: str | None = "memory", **rest: Any) -> Json:
    return {"name": name, **({"channel_type": kind, "channel_ids": [0]} if kind else {}), **rest}


def plans() -> dict[str, bytes]:
    i, o, s = local("i"), local("o"), local("s")
    meet = [op("signal"), op("wait")]
    switch = [{"switch_channel_id": 0, "index": 0, "size": 1}]
    put = op("put", src_buff=[i], dst_buff=[remote(2)])
    loop = {"name": "pipeline", "iter_context": {"unit_size": 4096, "num_chunks": 1}}
    add = op("re", None, src_buff=[i, s], dst_buff=[o], reduce_op="sum")
    part = {"tbg_info": {"tb_id": 0, "tbg_size": 1}}
    return {
        "put": plan("allreduce", [[put, *meet, add, *meet]], inplace=False),
        "port": plan(
            "allgather",
            [[{**put, "name": "pws", "channel_type": "port"}, op("flush", "port"), op("wait", "port")]],
            buffer_alignment=4,
        ),
        "packets": plan(
            "allreduce",
            [
                [
                    op("ppkt", src_buff=[i], dst_buff=[remote(2)]),
                    op("repkt", None, src_buff=[i, s], dst_buff=[o], reduce_op="sum"),
                ],
                [
                    op("cpkt", None, src_buff=[i], dst_buff=[local("s", 1)]),
                    op("upkt", None, src_buff=[local("s", 1)], dst_buff=[o]),
                ],
            ],
            protocol="LL",
            use_double_scratch_buffer=True,
        ),
        "switch": plan(
            "allreduce", [[*meet, op("glres", "switch", src_buff=switch, dst_buff=switch, reduce_op="sum"), *meet]]
        ),
        "loop": plan(
            "allreduce",
            [
                [{**loop, "ops": [put, *meet, op("sem_release", None, semaphore_ids=[0])]}],
                [{**loop, "ops": [op("sem_acquire", None, semaphore_ids=[0]), add]}],
            ],
            reuse_resources=True,
        ),
        "reads": plan(
            "test",
            [
                [
                    op("get", src_buff=[remote(0)], dst_buff=[o], **part),
                    op("rre", src_buff=[i, remote(0)], dst_buff=[o], reduce_op="max"),
                    op("rres", src_buff=[i, remote(0)], dst_buff=[o, remote(1)], reduce_op="min"),
                    op("copy", None, src_buff=[i], dst_buff=[o], **part),
                    op("barrier", None, barrier_id=0, num_threadblocks=2),
                ],
                [op("nop", None), op("rsignal"), op("rlxwait"), op("barrier", None, barrier_id=0, num_threadblocks=2)],
            ],
        ),
    }


def varint(n: int) -> bytes:
    out = bytearray()
    n &= 2**64 - 1
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def node(ident: int, kind: int, deps: list[int], attributes: dict[str, int]) -> bytes:
    """A node of the Chakra schema: id, name, type, control and data dependencies, duration, attributes (int64)."""
    body = field(1, ident) + field(2, f"n{ident}".encode()) + field(3, kind)
    body += field(4, b"".join(map(varint, deps[:1]))) + field(5, b"".join(map(varint, deps[1:])))
    body += field(7, 3)
    for name, value in attributes.items():
        body += field(10, field(1, name.encode()) + field(9, value))
    return varint(len(body)) + body


def trace(rank: int) -> bytes:
    """Send, receive and add, twice, between two ranks."""
    metadata = field(1, b"0.0.4")
    out = varint(len(metadata)) + metadata
    for k in range(2):
        peer = {"comm_size": 64, "comm_tag": k}
        out += node(3 * k, 5, list(range(3 * k)), {**peer, "comm_dst": 1 - rank})
        out += node(3 * k + 1, 6, [3 * k], {**peer, "comm_src": 1 - rank})
        out += node(3 * k + 2, 4, [3 * k, 3 * k + 1], {"num_ops": 16, "tensor_size": 64})
    return out


def workload() -> bytes:
    collective = node(0, 7, [], {"comm_type": 0, "comm_size": 1024})
    return varint(0) + collective + node(1, 2, [0], {"tensor_size": 64}) + node(2, 3, [0, 1], {"tensor_size": 64})


def json_traces(rank: int) -> dict[str, bytes]:
    """The forms of a JSON trace: protobuf's mapping, the feeder's, the symbolic generator's."""
    peer = 1 - rank
    sizes = {"comm_size": 64, "comm_tag": 0}
    mapped: list[Json] = [
        {
            "version": "0.0.4",
            "attr": [{"name": "schema", "stringVal": "1"}, {"name": "n", "int32List": {"values": [1]}}],
        },
        {"id": "0", "name": "s", "type": "COMM_SEND_NODE", "attr": [{"name": "comm_size", "uint64Val": "64"}]},
        {"id": "1", "type": "COMM_RECV_NODE", "ctrlDeps": ["0"], "dataDeps": [], "durationMicros": "3"},
    ]
    mapped[1]["attr"] += [{"name": "comm_tag", "int32Val": 0}, {"name": "comm_dst", "int32Val": peer}]
    mapped[2]["attr"] = [{"name": "comm_size", "int64Val": 64}, {"name": "comm_src", "int32Val": peer}]
    mapped[2]["inputs"] = {"values": "[1]", "shapes": "[[2]]", "types": "[]"}
    feeder: list[Json] = [
        {"Id": 0, "Name": "s", "NodeType": 5, "comm_dst": peer, "data_deps": [], **sizes},
        {"Id": 1, "Name": "r", "NodeType": 6, "comm_src": peer, "data_deps": [0], "runtime": 2, **sizes},
        {"Id": 2, "Name": "c", "NodeType": 4, "ctrl_deps": [1], "num_ops": 16, "tensor_size": 64},
    ]
    generated: list[Json] = [
        {"id": 0, "node_type": "COMM_SEND_NODE", "comm_dst": peer, "is_cpu_op": False, **sizes},
        {"id": 1, "node_type": "COMM_RECV_NODE", "comm_src": peer, "data_deps": [0], "shape": [1.5, None], **sizes},
        {"id": 2, "node_type": "COLL_COMM_NODE", "comm_type": "ALL_REDUCE", "comm_size": 64, "ctrl_deps": [1]},
    ]
    return {
        "mapped": "\n".join(map(json.dumps, mapped)).encode(),
        "feeder": json.dumps({"workload_graph": feeder}).encode(),
        "generated": json.dumps({"version": "1", "nodes": generated}).encode(),
    }


def topologies() -> dict[str, bytes]:
    root = CORPUS.parent.parent
    found = {path.stem: path.read_bytes() for path in sorted((root / "python/ahbm/data/topologies").glob("*.yaml"))}
    edges = "edges: [{from: 0, to: 1, latency_ns: 5, bandwidth_gbs: .inf, bidirectional: true}]"
    custom = f"system: {{sips: {{count: 2, topology: custom, {edges}}}}}\n"
    anchors = "a: &a {latency_ns: 1}\nsystem: {sips: {count: 4, topology: torus_2d, w: 2, h: 2, link: *a}}\n"
    return {
        **found,
        "default": (root / "python/ahbm/data/topology.yaml").read_bytes(),
        "custom": custom.encode(),
        "anchors": anchors.encode(),
    }


def values() -> dict[str, bytes]:
    """Overrides of the default topology, and names."""
    overrides = (
        "system.sips.count=4\nsystem.sips.topology=torus_2d\nsystem.sips.w=2\nsystem.sips.h=2",
        "sip.cube_mesh.w=1\nsip.cube_mesh.h=1\nsystem.sips.link.latency_ns=1.5e3",
        "system.sips.topology=custom\nsystem.sips.count=2\nsystem.sips.edges=[{from: 0, to: 1}]",
        "system.sips={count: 3, topology: switch}",
    )
    names = "global_E\nglobal_dim3\nsip3.cube5.pe0\nLL128\nall_reduce\nbf16\nW\npe1"
    return {"names": names.encode(), **{f"overrides_{at}": text.encode() for at, text in enumerate(overrides)}}


def pieces(files: Iterable[bytes]) -> bytes:
    """Each after its length in two bytes."""
    return b"".join(len(data).to_bytes(2, "little") + data for data in files)


def main() -> None:
    xml = {"ring": ring(3), "exchange": exchange(), "gather": gather()}
    traces = {"algorithm": trace(0), "workload": workload()}
    traces |= {f"{name}_gz": gzip.compress(data, mtime=0) for name, data in traces.items()}
    traces |= {f"json_{name}": data for name, data in json_traces(0).items()}
    checked = {f"xml_{name}": b"\x10" + data for name, data in xml.items()}
    checked |= {f"json_{name}": b"\x11" + data for name, data in plans().items()}
    checked |= {f"quirks_{name}": b"\x15" + data for name, data in plans().items()}
    checked["et"] = b"\x12" + pieces(trace(rank) for rank in range(2))
    checked |= {f"et_{form}": b"\x13" + pieces(json_traces(rank)[form] for rank in range(2)) for form in json_traces(0)}
    seeds = {
        "msccl_xml": xml,
        "mscclpp_json": plans(),
        "chakra_et": traces,
        "topology": topologies(),
        "values": values(),
        "check": checked,
        "convert": checked,
    }
    for target, inputs in seeds.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (folder / f"seed_{name}").write_bytes(data)


if __name__ == "__main__":
    main()
