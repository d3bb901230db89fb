"""Exports of Nsight Systems (`nsys export --type sqlite`) as what a profiler's trace (kineto) says.

Kernels and copies have their launches, and NCCL's ranges what they state. Tables are those of NVIDIA's reference of the
SQLite export. NCCL's ranges have a payload (NVTX's extended one): 32 bytes that name its schema, then the entries of
NVTX_PAYLOAD_SCHEMA_ENTRIES at their offsets; src/include/nvtx_payload_schemas.h of NCCL X
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ahbm.base.load import beginning
from ahbm.errors import FormatError, Site

MAGIC = b"SQLite format 3\x00"
ENDING = ".sqlite"
MOST_ROWS, MOST_RANKS, MOST_FILES = 1 << 24, 4096, 1024
STEPS = 1_000_000
"""Steps of the database between two looks at how many there were."""
MOST_LOOKS = 20_000
KERNEL, COPY, FILL, CALL, RANGE, STRINGS = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "StringIds",
)
ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
HEAD = 32
"""Bytes of a payload before its entries."""
COLLECTIVES = {
    "ncclAllReduce": "allreduce",
    "ncclAllGather": "allgather",
    "ncclReduceScatter": "reduce_scatter",
    "ncclBroadcast": "broadcast",
    "ncclBcast": "broadcast",
    "ncclReduce": "reduce",
    "ncclAllToAll": "alltoall",
    "ncclAlltoAll": "alltoall",
    "ncclSend": "send",
    "ncclRecv": "recv",
}
BYTES, COMM, RANKS, RANK = "Message size [bytes]", "NCCL communicator ID", "No. of ranks", "Rank"
_STEP = re.compile(r"(?:ProfilerStep#|step[ _:]*|iteration[ _:]*|iter[ _:]*)(\d{1,9})", re.IGNORECASE)
_PROCESS = 1 << 24
"""A global number of a process or thread has the process above these, and the thread below."""


def is_export(path: str | Path) -> bool:
    """Whether a path names a database of SQLite, by its ending and its beginning."""
    return str(path).endswith(ENDING) and beginning(path, len(MAGIC)) == MAGIC


class Of(NamedTuple):
    """A rank of an export: its process and its device."""

    process: int
    device: int


@dataclass
class Rank:
    """What an export says of a rank."""

    file: str
    events: list[str] = field(default_factory=list)
    """JSON texts."""
    issued: list[tuple[dict[str, Any], dict[str, int]]] = field(default_factory=list)
    """Events of NCCL's ranges, and what their payloads state."""
    comms: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By communicator: its ranks, and which one this is."""


def profiles(path: str | Path) -> list[tuple[str, bytes]]:
    """Per rank of an export, and of those beside it whose names differ in the number of the rank, its name and a trace.

    Raises FormatError: AHBM-F183 for what is no such export, F185 for too many ranks.
    """
    ranks: list[Rank] = []
    for file in siblings(Path(path)):
        ranks += _ranks(file)
        if len(ranks) > MOST_RANKS:
            raise FormatError("AHBM-F185", f"more than {MOST_RANKS} ranks", sites=(Site("export", str(file)),))
    numbers, world = _numbered(ranks)
    members: dict[int, dict[int, int]] = {}
    for number, rank in zip(numbers, ranks, strict=True):
        for comm, (_, own) in rank.comms.items():
            members.setdefault(comm, {})[own] = number
    found = []
    for number, rank in sorted(zip(numbers, ranks, strict=True), key=lambda each: each[0]):
        issued = [_stated(event, payload, rank, members) for event, payload in rank.issued]
        info = json.dumps({"rank": number, "world_size": world})
        events = ",\n".join([*rank.events, *map(json.dumps, issued)])
        found.append((rank.file, f'{{"distributedInfo": {info}, "traceEvents": [\n{events}\n]}}'.encode()))
    return found


def siblings(path: Path) -> list[Path]:
    """The export, or those of all ranks: of names that differ in their last number alone."""
    found = re.fullmatch(r"(.*?)(\d+)(\D*)", path.name)
    if found is None:
        return [path]
    alike = re.compile(rf"{re.escape(found[1])}(\d{{1,6}}){re.escape(found[3])}")
    numbered = {int(match[1]): file for file in path.parent.iterdir() if (match := alike.fullmatch(file.name))}
    # Ranks begin with 0; other numbers are dates or processes.
    if 0 not in numbered or len(numbered) > MOST_FILES:
        return [path]
    return [numbered[number] for number in sorted(numbered) if is_export(numbered[number])]


def _numbered(ranks: Sequence[Rank]) -> tuple[list[int], int]:
    """The number of each rank, as the largest communicator has it, and how many there are; else in their order."""
    sizes = {comm: size for rank in ranks for comm, (size, _) in rank.comms.items()}
    widest = max(sizes, key=lambda comm: (sizes[comm], -comm), default=None)
    if widest is not None:
        own = [rank.comms[widest][1] for rank in ranks if widest in rank.comms]
        if len(own) == len(ranks) and len(set(own)) == len(own):
            return own, max(sizes[widest], max(own) + 1)
    return list(range(len(ranks))), max([len(ranks), *sizes.values()])


def _stated(
    event: dict[str, Any], payload: Mapping[str, int], rank: Rank, members: Mapping[int, Mapping[int, int]]
) -> dict[str, Any]:
    """The event of a communication with what is known of it, as PyTorch's profiler names it."""
    kind = event["name"].removeprefix("nccl:")
    facts: dict[str, Any] = {"Collective name": kind, "dtype": "Byte"}
    if BYTES in payload:
        # What NCCL counts of a reduce-scatter is what comes out.
        facts["Out msg nelems" if kind in ("reduce_scatter", "recv") else "In msg nelems"] = payload[BYTES]
    comm = payload.get(COMM)
    if comm is not None:
        facts["Process Group Name"] = f"{comm:x}"
        size, _ = rank.comms.get(comm, (0, 0))
        known = members.get(comm, {})
        if size and len(known) == size:
            facts["Process Group Ranks"] = [known[place] for place in sorted(known)]
        if size:
            facts["Group size"] = size
    for key, name in (("Root", "Root rank"), ("Peer rank", "Dst Rank" if kind == "send" else "Src Rank")):
        if key in payload:
            facts[name] = payload[key]
    return {**event, "args": facts}


class _Export:
    """A database that is read and nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.looks = 0
        self.base = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
        self.base.text_factory = lambda content: content.decode("utf-8", "replace")
        self.base.execute("PRAGMA query_only=ON")
        self.base.execute("PRAGMA trusted_schema=OFF")
        self.base.set_progress_handler(self._look, STEPS)
        rows = self.base.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchmany(4096)
        self.tables = {name for name, sql in rows if str(sql).upper().startswith("CREATE TABLE")}

    def _look(self) -> int:
        self.looks += 1
        return int(self.looks > MOST_LOOKS)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Columns of a table; those that it lacks are None. Raises FormatError (AHBM-F183) for too many rows."""
        if table not in self.tables:
            return
        there = {name for _, name, *_ in self.base.execute(f'PRAGMA table_info("{table}")')}
        shown = ", ".join(f'"{name}"' if name in there else "NULL" for name in columns)
        for at, row in enumerate(self.base.execute(f'SELECT {shown} FROM "{table}"')):
            if at >= MOST_ROWS:
                raise self.wrong(f"{table} has more than {MOST_ROWS} rows")
            yield row

    def wrong(self, what: str) -> FormatError:
        return FormatError("AHBM-F183", what, sites=(Site("export", str(self.path)),))


def _ranks(path: Path) -> list[Rank]:
    """The ranks of an export."""
    try:
        export = _Export(path)
        with closing(export.base):
            return _read(export)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        message = f"{path} is no export of Nsight Systems that can be read: {error}"
        raise FormatError("AHBM-F183", message, sites=(Site("export", str(path)),)) from error


def _read(export: _Export) -> list[Rank]:
    if not {KERNEL, STRINGS} <= export.tables:
        hint = "nsys profile --trace=cuda,nvtx, then nsys export --type sqlite"
        missing = ", ".join(sorted({KERNEL, STRINGS} - export.tables))
        raise FormatError(
            "AHBM-F183", f"the database has no table {missing}", sites=(Site("export", str(export.path)),), hint=hint
        )
    strings = {whole(key): str(value)[:4096] for key, value in export.rows(STRINGS, ("id", "value"))}
    ranks: dict[Of, Rank] = {}
    names = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
    for table, category, extra in (
        (KERNEL, "kernel", ("demangledName", "shortName")),
        (COPY, "gpu_memcpy", ("bytes", "copyKind")),
        (FILL, "gpu_memset", ("bytes", "value")),
    ):
        for start, end, device, stream, correlation, process, one, two in export.rows(table, (*names, *extra)):
            of = Of(whole(process) // _PROCESS, whole(device))
            rank = ranks.setdefault(of, Rank(f"{export.path}"))
            named = strings.get(whole(one)) or strings.get(whole(two)) or "kernel"
            name = named if category == "kernel" else f"{category[4].upper()}{category[5:]}"
            args = {"device": of.device, "stream": whole(stream), "correlation": whole(correlation)}
            rank.events.append(_event(category, name, of.process, whole(stream), start, end, args))
            if len(ranks) > MOST_RANKS:
                raise export.wrong(f"kernels of more than {MOST_RANKS} processes and devices")
    # A call belongs to its process; where that has several devices, to all of them, which tell theirs by correlation.
    of_process: dict[int, list[Rank]] = {}
    for of, rank in ranks.items():
        of_process.setdefault(of.process, []).append(rank)
    for start, end, thread, correlation, name in export.rows(
        CALL, ("start", "end", "globalTid", "correlationId", "nameId")
    ):
        args = {"correlation": whole(correlation)}
        process = whole(thread) // _PROCESS
        text = _event("cuda_runtime", strings.get(whole(name), ""), process, whole(thread), start, end, args)
        for rank in of_process.get(process, ()):
            rank.events.append(text)
    _ranges(export, strings, of_process)
    return [ranks[of] for of in sorted(ranks, key=lambda of: (of.device, of.process))]


def _ranges(export: _Export, strings: Mapping[int, str], of_process: Mapping[int, Sequence[Rank]]) -> None:
    """NCCL's ranges and those of steps."""
    entries: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for domain, schema, name, offset in export.rows(ENTRIES, ("domainId", "schemaId", "name", "offset")):
        entries.setdefault((whole(domain), whole(schema)), []).append((str(name), whole(offset)))
    columns = ("start", "end", "globalTid", "text", "textId", "binaryData")
    for start, end, thread, text, text_id, payload in export.rows(RANGE, columns):
        name = str(text) if text is not None else strings.get(whole(text_id), "")
        process = whole(thread) // _PROCESS
        ranks = of_process.get(process, ())
        if not ranks or end is None:
            continue
        if name.startswith("nccl") and isinstance(payload, bytes):
            stated = _payload(payload, entries)
            device = stated.get("CUDA device")
            if COMM in stated and RANKS in stated and RANK in stated:
                # Of a process with several devices, the one that the payload names, in the order of devices.
                own = ranks if len(ranks) == 1 or device is None else ranks[device : device + 1]
                for rank in own:
                    rank.comms[stated[COMM]] = (stated[RANKS], stated[RANK])
        else:
            stated = {}
        kind = COLLECTIVES.get(name)
        if kind is not None:
            text = _event("user_annotation", f"nccl:{kind}", process, whole(thread), start, end, {})
            for rank in ranks:
                rank.issued.append((json.loads(text), stated))
        elif (step := _STEP.fullmatch(name)) is not None:
            named = f"ProfilerStep#{int(step[1])}"
            for rank in ranks:
                rank.events.append(_event("user_annotation", named, process, whole(thread), start, end, {}))


def _payload(payload: bytes, entries: Mapping[tuple[int, int], Sequence[tuple[str, int]]]) -> dict[str, int]:
    """Numbers of a payload by their names."""
    if len(payload) < HEAD:
        return {}
    domain, schema = (int.from_bytes(payload[at : at + 4], "little") for at in (0, 8))
    found = {}
    for name, offset in entries.get((domain, schema), ()):
        size = 8 if name in (COMM, BYTES, "Parent NCCL communicator ID") else 4
        value = payload[HEAD + offset : HEAD + offset + size]
        if offset >= 0 and len(value) == size:
            found[name] = int.from_bytes(value, "little")
    return found


def _event(
    category: str, name: str, process: int, thread: int, start: object, end: object, args: Mapping[str, int]
) -> str:
    """An event of the profiler's, its times in microseconds with all digits."""
    began = whole(start)
    times = f'"ts": {_us(began)}, "dur": {_us(max(0, whole(end) - began))}'
    head = f'"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, "pid": {process}, "tid": {thread}'
    return f'{{{head}, {times}, "args": {json.dumps(args)}}}'


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def whole(value: object) -> int:
    """A whole number of a cell that is none below zero; 0 for what is none."""
    return value if isinstance(value, int) and value >= 0 else 0
