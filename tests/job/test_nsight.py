"""Exports of Nsight Systems are jobs, as profilers' traces are."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.base.foreign import known
from ahbm.calibrate.beside import is_table
from ahbm.errors import AhbmError, FormatError
from ahbm.job.nsight import is_export, profiles, siblings
from ahbm.job.replay import JobReport
from support.commands import run

TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT,
    correlationId INT, globalPid INT, demangledName INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT, domainId INT,
    binaryData BLOB);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INT, schemaId INT, idx INT, type INT, name TEXT, offset INT);
"""
STRINGS = [
    "gemm",
    "ncclDevKernel_AllReduce_Sum_f16_RING_LL(...)",
    "cudaLaunchKernel_v7000",
    "ncclAllReduce",
    "ncclCommInitRank",
]
GEMM, REDUCE, LAUNCH, ALL_REDUCE, INIT = range(1, 6)
ENTRIES = [
    (7, "NCCL communicator ID", 0), (7, "Message size [bytes]", 8), (7, "Reduction operation", 16),
    (8, "NCCL communicator ID", 0), (8, "No. of ranks", 8), (8, "Rank", 12), (8, "CUDA device", 16),
]  # fmt: skip
PROCESS = 1 << 24


def payload(schema: int, body: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body


def export(path: Path, ranks: tuple[int, ...] = (0, 1), *, world: int = 2, stated: bool = True) -> Path:
    """Per rank a product, its all_reduce, and a product that waits; ranks are processes of the node."""
    base = sqlite3.connect(path)
    base.executescript(TABLES)
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(STRINGS, 1)))
    for at, (schema, name, offset) in enumerate(ENTRIES):
        base.execute("INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, ?, ?, 0, ?, ?)", (schema, at, name, offset))
    for rank in ranks:
        pid = (100 + rank) * PROCESS
        tid = pid + 100 + rank

        def launch(name: int, ts: int, ns: int, stream: int, number: int, rank: int = rank, pid: int = pid) -> None:
            call = (ts, ts + 4000, pid + 100 + rank, number, LAUNCH)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
            kernel: tuple[Any, ...] = (ts + 20000, ts + 20000 + ns, rank, 1, stream, number, pid, name, name)
            base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 9)})", kernel)

        def mark(start: int, end: int, name: int, blob: bytes | None, tid: int = tid) -> None:
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, ?, ?, 1, ?)", (start, end, tid, name, blob))

        mark(0, 10, INIT, payload(8, struct.pack("<QiiiI", 0xABC, world, rank, rank, 0)))
        launch(GEMM, 100_000, 50_250, 7, 1)
        mark(150_000, 170_000, ALL_REDUCE, payload(7, struct.pack("<QQI4x", 0xABC, 2 << 20, 0)) if stated else None)
        launch(REDUCE, 160_000, 900_000, 24, 2)
        launch(GEMM, 1_100_000, 50_250, 7, 3)
    base.commit()
    base.close()
    return path


def test_an_export_is_a_job_with_the_sizes_of_nccls_ranges(tmp_path: Path) -> None:
    """Products of 100.5 us and the call: what its kernel took is not taken, as it contains waiting."""
    report = ahbm.open(export(tmp_path / "two.sqlite"), topology="npu_ring_8").run()
    assert isinstance(report, JobReport)
    (call,) = report.calls
    assert (call.collective, call.bytes, call.ranks) == ("all_reduce", 2 << 20, 2)
    assert 100_500 < report.latency_ns < 200_000


def test_exports_of_ranks_are_found_by_their_numbers(tmp_path: Path) -> None:
    """One export a rank gives what one of all gives."""
    both = ahbm.open(export(tmp_path / "two.sqlite"), topology="npu_ring_8").run()
    for rank in range(2):
        export(tmp_path / f"report_{rank}.sqlite", (rank,))
    assert [path.name for path in siblings(tmp_path / "report_1.sqlite")] == ["report_0.sqlite", "report_1.sqlite"]
    apart = ahbm.open(tmp_path / "report_0.sqlite", topology="npu_ring_8").run()
    assert apart.latency_ns == both.latency_ns


def test_commands_take_exports(tmp_path: Path) -> None:
    export(tmp_path / "two.sqlite")
    assert "correct (job, 1 calls, 2 ranks" in run("ahbm", ["check", "two.sqlite"], tmp_path)[1]
    code, _, err = run("ahbm", ["convert", "two.sqlite", "step.et"], tmp_path)
    assert code == 0, err
    times = [
        json.loads(run("ahbm", ["run", name, "-t", "npu_ring_8", "--json"], tmp_path)[1])["latency_ns"]
        for name in ("two.sqlite", "step.0.et")
    ]
    assert times[0] == times[1]
    assert run("ahbm", ["convert", "two.sqlite", "plan.xml"], tmp_path)[0] != 0


def test_what_is_lacking_is_named(tmp_path: Path) -> None:
    with pytest.raises(AhbmError, match="AHBM-F184") as caught:
        ahbm.open(export(tmp_path / "none.sqlite", stated=False), topology="npu_ring_8").run()
    assert "size" in str(caught.value)
    with pytest.raises(FormatError, match="AHBM-F185"):
        ahbm.open(export(tmp_path / "one.sqlite", (0,), world=4), topology="npu_ring_8").run()
    alone = ahbm.open(tmp_path / "one.sqlite", topology="npu_ring_8", symmetric=True).run()
    assert isinstance(alone, JobReport) and alone.calls[0].ranks == 4


def test_databases_of_others_are_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE notes (text TEXT)")
    other.commit()
    with pytest.raises(FormatError, match="AHBM-F183"):
        profiles(tmp_path / "other.sqlite")
    # A view is code.
    other.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    other.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n"
    )
    other.commit()
    other.close()
    with pytest.raises(FormatError, match="no table CUPTI_ACTIVITY_KIND_KERNEL"):
        profiles(tmp_path / "other.sqlite")
    (tmp_path / "text.sqlite").write_text("no database")
    assert not is_export(tmp_path / "text.sqlite")


def test_a_database_that_is_cut_off_is_a_typed_error(tmp_path: Path) -> None:
    whole = export(tmp_path / "two.sqlite").read_bytes()
    for size in range(100, len(whole), 1537):
        (tmp_path / "cut.sqlite").write_bytes(whole[:size])
        try:
            profiles(tmp_path / "cut.sqlite")
        except AhbmError as error:
            assert error.code == "AHBM-F183"


def test_a_pipe_is_no_export(tmp_path: Path) -> None:
    """Nobody writes to it: opened, it would wait without end."""
    pipe = tmp_path / "pipe.sqlite"
    os.mkfifo(pipe)
    assert not is_export(pipe) and not is_table(pipe) and known(pipe) is None
