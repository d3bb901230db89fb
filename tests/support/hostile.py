"""Random input for what is parsed in Python, and random kernels. A try ends in a result or in an error of AHBM's."""

from __future__ import annotations

import contextlib
import gzip
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import ahbm
from ahbm.base import packaged
from ahbm.base.elements import parse_dtype
from ahbm.base.sizes import parse_size
from ahbm.calibrate.tables import read as read_table
from ahbm.check.checks import parse as parse_checks
from ahbm.cli.options import Files, Place, parse_ranks
from ahbm.config.ccl import CclConfig
from ahbm.config.reading import parse_limits
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError
from ahbm.job import nsight
from ahbm.job.reading import read as read_job
from support import hostile_files

SECONDS = 10
"""A try that takes longer hangs."""
WORDS = (
    "", " ", "0", "-1", "1", "2", "3.5", "1e9", "-0.0", "nan", ".inf", "0x10", "1_000", "18446744073709551616", "true",
    "null", "~", "auto", "all", "inf", "[]", "{}", "[1, [2, [3]]]", "{a: {b: 1}}", "&a", "*a", "<<: *a", "!!int x",
    "!!python/object:os.system", "? :", ": :", "- -", "\t", "\x07", "\u0663", "\u00b2", "é", "%s", "..", "a.b.c",
    "../x",
    "K", "64K", "1M", "4KB", "--", "=", "a=b", "race", "race,,uninit", "result,bogus", "f16", "f8", "global_E", "sip1",
    "ring_allreduce", "module", "plan", "synth", "defaults", "algorithms", "collectives", "n_slots", "slot_size",
    "'", '"', "|", ">", "#", "---", "...", "\r\n", "\u2028", "[" * 40, "{a: " * 40,
    "[" * 100_000, "9" * 30, "9" * 5000, "x" * 3000,
)  # fmt: skip
KEYS = (
    "system.sips.count", "system.sips.topology", "system.sips.w", "system.sips.h", "system.sips", "sip.cube_mesh.w",
    "sip.cube_mesh", "system.sips.link.latency_ns", "system.sips.link.bandwidth_gbs", "defaults.n_slots", "n_slots",
    "defaults.algorithm", "defaults.world_size", "defaults.slot_size", "algorithms.x.module", "algorithms.x",
    "collectives.all_reduce", "system", "cube", "network.model", "jitter", "faults", "", ".", "a..b", "x" * 500,
)  # fmt: skip
DOCUMENTS = (
    "defaults: {algorithm: ring_allreduce, n_slots: 4}\n",
    "algorithms:\n  mine:\n    module: ./mine.py\n    n_slots: 8\n    slot_size: auto\n",
    "algorithms:\n  p: {plan: p.xml, n_slots: 2, instances: 2, limits: {ranks: 8}}\ndefaults:\n  algorithm: [p]\n",
    "collectives:\n  all_gather:\n    - {max_bytes: 1024, algorithm: ring_all_gather}\n    - {algorithm: s}\n",
    "x: &x {n_slots: 3}\nalgorithms:\n  a: {module: a, <<: *x}\n",
)


def ccl(chance: Random, folder: Path) -> None:
    """A ccl.yaml that was right once."""
    text = chance.choice([*DOCUMENTS, packaged.CCL.read_text(encoding="utf-8")])
    for _ in range(chance.randrange(1, 8)):
        text = _changed(text, chance)
    path = folder / "ccl.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    config = CclConfig.load(path)
    for name in config.algorithms[:4]:
        config.settings(name)
    config.candidates("all_gather", chance.choice([0, 1024, 2**63]), 2)


def _changed(text: str, chance: Random) -> str:
    lines = text.splitlines(keepends=True) or ["\n"]
    at = chance.randrange(len(lines))
    kind = chance.randrange(6)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(chance.randrange(len(lines)), lines[at])
    elif kind == 2:
        lines[at] = " " * chance.randrange(9) + lines[at].lstrip()
    elif kind == 3:
        words = lines[at].split(" ")
        words[chance.randrange(len(words))] = chance.choice(WORDS)
        lines[at] = " ".join(words)
    elif kind == 4:
        cut = chance.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:cut] + chance.choice(WORDS) + lines[at][cut:]
    else:
        lines[at] = f"{chance.choice(KEYS)}: {chance.choice(WORDS)}\n"
    return "".join(lines)


def values(chance: Random, folder: Path) -> None:
    """Values of the command line: sizes, names, limits, checks, overrides."""
    word = chance.choice(
        [*WORDS, "".join(chance.choices("0123456789KMGB.,-=:[]{}xinf \u0660", k=chance.randrange(12)))]
    )
    parsers: tuple[Callable[[], object], ...] = (
        lambda: parse_size(word),
        lambda: parse_dtype(word),
        lambda: parse_checks(word),
        lambda: parse_ranks(f"{word},2"),
        lambda: parse_limits([word, f"ranks={word}"]),
        lambda: Files(slots=word).depth,
        lambda: Files(limits=[f"{word}=1"]).reading,
    )
    settings = [f"{chance.choice(KEYS)}={chance.choice(WORDS)}" for _ in range(chance.randrange(1, 4))]
    for ask in parsers:
        with contextlib.suppress(AhbmError):
            ask()
    Emulator.load(None, None, Place(settings=settings).overrides).algorithm("ring_allreduce")


# Kernels.

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A call by name, positional and named arguments."""
DTYPES = ("f16", "f16", "bf16", "f32", "f64", "i8", "i32", "u8", "u64", "f8", "")
SHAPES = ((1,), (4,), (8,), (2, 4), (4, 2), (), (0,), (-1,), (3, 1), (2**20,), (2**40,), (1.5,), ("x",))
WAYS = ("global_E", "global_W", "sip0", "sip1", "sip9", "E", "W", "cube1", "pe1", "sip1.cube0.pe0", "up", "", None, 7)
NUMBERS = (0, 1, -1, 2, 0.5, 1e30, float("inf"), float("nan"), 2**63, -(2**70), True, None, "1")

KERNEL = '''"""Makes the calls of a list; a reference to a result is a tuple `("$", number)`."""
import operator

inf, nan = float("inf"), float("nan")
CALLS = {calls}


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16", op="sum"):
    return ()


def kernel(t_ptr, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    found = []

    def real(x):
        if isinstance(x, tuple) and len(x) == 2 and x[0] == "$":
            return found[x[1] % len(found)] if found else None
        if isinstance(x, tuple) and len(x) == 2 and x[0] == "@":
            return t_ptr + x[1]
        return x

    for name, args, named in CALLS:
        call = getattr(operator, name[1:]) if name.startswith("+") else getattr(tl, name)
        found.append(call(*map(real, args), **{{key: real(x) for key, x in named.items()}}))
'''


def kernels(chance: Random, folder: Path) -> None:
    """A kernel of random calls, most of them nearly right, captured, run and checked."""
    calls: list[Call] = []
    handles: list[int] = []
    dtype, shape = chance.choice(DTYPES[:5]), chance.choice(SHAPES[:4])
    for _ in range(chance.randrange(1, 14)):
        made, regular = _calls(chance, dtype, shape, handles, len(calls))
        calls += made
        if regular:
            handles.append(len(calls) - 1)
    path = folder / "random_kernel.py"
    path.write_text(KERNEL.format(calls=repr(calls)), encoding="utf-8")
    overrides = {"system.sips.count": chance.choice([2, 3]), "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
    ahbm.run(
        "all_reduce", path, bytes_per_rank=64, dtype=dtype, overrides=overrides, check=chance.choice(["all", False])
    )


def _calls(
    chance: Random, dtype: str, shape: tuple[int, ...], handles: list[int], made: int
) -> tuple[list[Call], bool]:
    """The next calls, and whether the last one returns a value of the usual shape and dtype."""

    def odd(usual: Any, others: tuple[Any, ...]) -> Any:
        return chance.choice(others) if chance.random() < 0.03 else usual

    def value() -> Any:
        usual = ("$", chance.choice(handles)) if handles else None
        return odd(usual, (None, 1.5, ("$", 0), ("$", max(made - 1, 0))))

    def either() -> Any:
        return value() if chance.random() < 0.7 else chance.choice(NUMBERS[:4])

    def call(name: str, *args: Any, **named: Any) -> Call:
        return name, args, named

    kind, form = odd(dtype, DTYPES), odd(shape, SHAPES)
    at = ("@", odd(0, (8, -2, 1, 64, 2**62)))
    typed = {"shape": form, "dtype": kind}
    east, west = odd("global_E", WAYS), odd("global_W", WAYS)
    if not handles and chance.random() < 0.9:
        return [call("load", at, **typed)], True
    unary = chance.choice(["exp", "log", "sqrt", "+neg"])
    binary = chance.choice(["maximum", "minimum", "+add", "+sub", "+mul", "+truediv", "+lt", "+eq"])
    makers: tuple[tuple[bool, list[Call]], ...] = (
        (True, [call("load", at, **typed)]),
        (False, [call("store", at, value())]),
        (False, [call("store", at, value())]),
        (True, [call("zeros", form, kind)]),
        (True, [call("full", form, chance.choice(NUMBERS), kind)]),
        (False, [call("arange", odd(0, NUMBERS), odd(8, NUMBERS), kind)]),
        (False, [call("cast", value(), chance.choice(DTYPES[:-2]))]),
        (False, [call(chance.choice(["trans", "+abs"]), value())]),
        (True, [call(unary, value())]),
        (True, [call(binary, value(), either())]),
        (True, [call(chance.choice(["fma", "where"]), value(), value(), value())]),
        (True, [call("clamp", value(), chance.choice(NUMBERS), chance.choice(NUMBERS))]),
        (False, [call(chance.choice(["sum", "max", "min", "softmax"]), value(), axis=odd(0, (1, -1, 7, None)))]),
        (True, [call("combine", value(), value(), odd("sum", ("max", "prod", "avg", "bxor", "x")))]),
        (False, [call("dot", value(), value())]),
        (False, [call("composite", op=odd("gemm", ("conv",)), a=value(), b=value(), out_ptr=at)]),
        (False, [call("send", dir=east, src=call("ref", at, **typed) if chance.random() < 0.01 else value())]),
        (True, [call("send", dir=east, src=value()), call("recv", dir=west, **typed)]),
        (True, [call("send", dir=east, src=value()), call("recv", dir=west, **typed)]),
        (
            False,
            [
                call("send", dir=west, src=value()),
                call("recv", dir=east, mode=odd("copy_to_dst", ("x",)), dst=at, **typed),
            ],
        ),
        (True, [call("recv_async", west, form, kind), call("send", dir=east, src=value()), call("wait", ("$", made))]),
        (False, [call(chance.choice(["program_id", "num_programs"]), odd(0, (1, 2, -1, None)))]),
        (False, [call("itemsize", kind), call("cdiv", odd(7, NUMBERS), odd(2, NUMBERS))]),
    )
    regular, calls = chance.choice(makers)
    return calls, regular


Target = Callable[[Random, Path], None]
MACHINES = (
    "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV18\tNV18\nGPU1\tNV18\tX\tNV18\nGPU2\tNV18\tNV18\tX\n",
    "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV2\tSYS\nGPU1\tNV2\tX\tPIX\nGPU2\tSYS\tPIX\tX\n",
    '<graphs version="1">\n<graph id="0" pattern="4" speedintra="12" speedinter="6">\n<channel>\n<gpu dev="0"/>\n'
    '<gpu dev="1"/>\n</channel>\n</graph>\n</graphs>\n',
    '<system version="1">\n<cpu numaid="0">\n<pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe">\n'
    '<pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">\n<gpu dev="0" sm="90">\n'
    '<nvlink target="0000:03:00.0" count="4" tclass="0x030200"/>\n</gpu>\n</pci>\n<pci busid="0000:03:00.0">\n'
    '<gpu dev="1" sm="90">\n<nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>\n</gpu>\n</pci>\n</pci>\n'
    '<nic><net name="mlx5_0" speed="400000"/></nic>\n</cpu>\n</system>\n',
    '<system version="1">\n<cpu>\n<pci busid="1"><gpu rank="0" dev="0" sm="100"><nvlink target="a" count="9"\n'
    'tclass="0x068000"/></gpu></pci>\n<pci busid="2"><gpu rank="1" dev="1"><xgmi target="1" count="1"/></gpu></pci>\n'
    '</cpu>\n</system>\n',
    "== ROCm System Management Interface ==\n== Hops between two GPUs ==\n  GPU0 GPU1\nGPU0 0 1\nGPU1 1 0\n"
    "== Link Type between two GPUs ==\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n",
    '<platform version="4.1">\n<host id="a"/>\n<host id="b"/>\n<router id="r"/>\n<link id="l" bandwidth="1GBps"/>\n'
    '<route src="a" dst="r">\n<link_ctn id="l"/>\n</route>\n<route src="b" dst="r"><link_ctn id="l"/></route>\n'
    '</platform>',
    '<platform version="4.1">\n<cluster id="c" radical="0-3" bw="1GBps"\n lat="1us" bb_lat="1us"/>\n</platform>',
    '<platform version="4.1">\n<host id="a"/>\n<host id="b"/>\n<link id="l" bandwidth="1GBps" latency="1us"/>\n'
    '<route src="a" dst="b">\n<link_ctn id="l"/>\n</route>\n</platform>',
    "topology: [Ring, FullyConnected]\nnpus_count: [4, 2]\nbandwidth: [50.0, 25.0]\nlatency: [500.0, 1]\n",
    '{"name": "m_1MB", "gpus_per_node": 8,\n "nics_per_node": 8, "alpha": 0.3,\n "node_betas_list": [8],\n '
    '"remote_alpha": 2.6, "remote_beta": 105}\n',
    '{"TopologyParams":\n {"name": "NDv2",\n "chassis": 2}}\n',
    "NPUs Count,3\nLinks Count,3\nChunks Count,3\nChunk Size,1,B\nSrcID,DestID,Latency (ns),Bandwidth (GB/s),Chunks\n"
    "0,1,500,50,0\n1,2,500,50,1\n2,0,500,50,2\n",
)  # fmt: skip
LOGS = (
    "./all_reduce_perf\n#  Rank  0 Group 0 Pid 1 on a device 0 [0x0] H100\n"
    "#  Rank  1 Group 0 Pid 1 on a device 1 [0x1] H100\n"
    "# size count type redop root time algbw busbw #wrong\n1024 256 float sum -1 20.1 1 1 0\n"
    "2048 512 float sum -1 21.1 1 1 0\n"
    "1024 256 float prod -1 20.1 1 1 0\n2048 512 float prod -1 21.1 1 1 0\n",
    "# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n4    1.50\n8    1.60\n16    1.70\n",
    "# OSU MPI All-to-All Personalized Exchange Latency Test v7.4\n# Size   Avg Latency(us)   Iterations   Validation\n"
    "4    1.50  1000  Pass\n8    1.60  1000  Fail\n16    1.70  1000  Pass\n",
    "# Benchmarking Allreduce \n# #processes = 8 \n#bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
    "0 1000 0.02 0.03 0.03\n8 1000 1.02 1.03 1.03\n16 1000 2.02 2.03 2.03\n# Benchmarking Bcast\n# #processes = 2\n",
    "# ranks: 8\n# op: all_reduce\nbytes,time_us\n8,1\n16,2\n32,3\n",
)  # fmt: skip


def machines(chance: Random, folder: Path) -> None:
    """A file of another tool that described a machine once."""
    text = chance.choice(MACHINES)
    for _ in range(chance.randrange(4)):
        text = _changed(text, chance)
    path = folder / "machine.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    load_machine(path, chance.choice([{}, {}, {"system.sips.count": 16}, {"base": "dgx_h100"}]))


def logs(chance: Random, folder: Path) -> None:
    """A log of a benchmark that was whole once."""
    text = chance.choice(LOGS)
    for _ in range(chance.randrange(4)):
        text = _changed(text, chance)
    path = folder / "test.log"
    content = text.encode(chance.choice(["utf-8", "utf-8", "utf-16"]), "surrogatepass")
    path.write_bytes(gzip.compress(content) if chance.random() < 0.1 else content)
    read_table(path, ranks=chance.choice([None, 2, 8]))


def exports(chance: Random, folder: Path) -> None:
    """An export of Nsight Systems with any numbers, texts and bytes in its cells, and bytes of the file changed."""
    path = folder / "two.sqlite"
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    cells = [
        0,
        1,
        2,
        3,
        7,
        100 << 24,
        (100 << 24) + 1,
        1000,
        2**62,
        -1,
        1.5,
        None,
        "gemm",
        "ncclAllReduce",
        b"\x01" * 64,
    ]
    for table, columns in (
        ("StringIds", "id, value"),
        (nsight.KERNEL, "start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName"),
        (nsight.CALL, "start, end, globalTid, correlationId, nameId"),
        (nsight.RANGE, "start, end, globalTid, text, textId, binaryData"),
        (nsight.ENTRIES, "domainId, schemaId, name, offset"),
    ):
        base.execute(f"CREATE TABLE {table} ({columns})")
        count = columns.count(",") + 1
        for _ in range(chance.randrange(4)):
            row = [chance.choice(cells) for _ in range(count)]
            base.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * count)})", row)
    base.execute(f"INSERT INTO {nsight.KERNEL} VALUES (0, 1000, 0, 7, 1, ?, 1, 1)", (100 << 24,))
    base.commit()
    base.close()
    if chance.random() < 0.3:
        content = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 20)):
            content[chance.randrange(100, len(content))] = chance.randrange(256)
        path.write_bytes(content)
    read_job(path)


TARGETS: dict[str, Target] = {
    "ccl": ccl,
    "values": values,
    "kernels": kernels,
    "machines": machines,
    "logs": logs,
    "exports": exports,
    "tuners": hostile_files.tuners,
    "schedules": hostile_files.schedules,
    "dumps": hostile_files.dumps,
    "graphs": hostile_files.graphs,
}


def attempt(target: str, name: str, folder: Path) -> str:
    """One try, chosen by its name: `accepted`, or the code of the error. Raises what is no error of AHBM's."""
    with limited(f"{target} {name}"):
        try:
            TARGETS[target](Random(name), folder)
        except AhbmError as error:
            str(error)
            return error.code
    return "accepted"


@contextlib.contextmanager
def limited(what: str) -> Iterator[None]:
    """Ends what takes too long."""

    def late(*_: object) -> None:
        raise TimeoutError(f"{what} takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
