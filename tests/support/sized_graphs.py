"""Graphs of sizes, as the paper writes them: sends, receives and reductions, one file per NPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KIB = 1 << 10


class Npu:
    """The graph of one NPU."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []

    def add(self, kind: str, name: str, waits: Sequence[int], micros: int = 0, **facts: int) -> int:
        """A node; returns its id."""
        attributes = [{"name": key, "int64Val": str(value)} for key, value in facts.items()]
        node = {"id": len(self.nodes), "name": name, "type": kind, "dataDeps": list(waits), "attr": attributes}
        self.nodes.append(node | ({"durationMicros": micros} if micros else {}))
        return len(self.nodes) - 1

    def send(self, to: int, size: int, waits: Sequence[int] = (), tag: int = 0, name: str = "COMM_SEND") -> int:
        """A send."""
        return self.add("COMM_SEND_NODE", name, waits, comm_dst=to, comm_size=size, comm_tag=tag)

    def recv(self, source: int, size: int, waits: Sequence[int] = (), tag: int = 0, name: str = "COMM_RECV") -> int:
        """A receive."""
        return self.add("COMM_RECV_NODE", name, waits, comm_src=source, comm_size=size, comm_tag=tag)

    def comp(self, waits: Sequence[int], micros: int = 0, name: str = "COMP") -> int:
        """A computation."""
        return self.add("COMP_NODE", name, waits, micros)


def write(prefix: Path, npus: Sequence[Npu], head: Mapping[str, object] | None = None) -> str:
    """Writes a graph; returns the name of rank 0's file. head: metadata besides the version."""
    for rank, npu in enumerate(npus):
        lines = [{"version": "0.0.4"} | dict(head or {}), *npu.nodes]
        prefix.with_name(f"{prefix.name}.{rank}.json").write_text("\n".join(map(json.dumps, lines)))
    return str(prefix.with_name(f"{prefix.name}.0.json"))


def ring(n: int, *, adds: bool, copies: bool, size: int = 64 * KIB, names: bool = False, lanes: int = 1) -> list[Npu]:
    """One line of COMM_SEND, COMM_RECV, COMP: a reduce_scatter if it adds, an all_gather if it copies. lanes: lines
    that run at once, under tags of their own."""
    npus = []
    for rank in range(n):
        npu = Npu()
        for lane in range(lanes):
            last: list[int] = []
            for step in range((n - 1) * (adds + copies)):
                sent, got = (rank - step) % n, (rank - step - 1) % n
                a = npu.send((rank + 1) % n, size, last, lane, f"COMM_SEND (chunk{sent})" if names else "COMM_SEND")
                b = npu.recv((rank - 1) % n, size, [a], lane, f"COMM_RECV (chunk{got})" if names else "COMM_RECV")
                last = [npu.comp([b])] if adds and step < n - 1 else [b]
        npus.append(npu)
    return npus


def both_ways(n: int, size: int = 64 * KIB) -> list[Npu]:
    """Two rings in opposite directions, each on its half."""
    npus = []
    for rank in range(n):
        npu = Npu()
        for lane, way in enumerate((1, -1)):
            last: list[int] = []
            for step in range(2 * (n - 1)):
                a = npu.send((rank + way) % n, size, last, lane)
                b = npu.recv((rank - way) % n, size, [], lane)
                last = [a, npu.comp([b])] if step < n - 1 else [a, b]
        npus.append(npu)
    return npus


def halving_doubling(n: int, whole: int = 1 << 20, first: bool = True) -> list[Npu]:
    """Recursive halving, then doubling; every send beside its receive. first: the farthest partner first."""
    distances = [n >> bit for bit in range(1, n.bit_length())]
    distances = distances if first else distances[::-1]
    npus = []
    for rank in range(n):
        npu, last, size = Npu(), list[int](), whole
        for tag, distance in enumerate(distances):
            size //= 2
            a, b = npu.send(rank ^ distance, size, last, tag), npu.recv(rank ^ distance, size, last, tag)
            last = [a, npu.comp([b], 1)]
        for tag, distance in enumerate(reversed(distances), len(distances)):
            last = [npu.send(rank ^ distance, size, last, tag), npu.recv(rank ^ distance, size, last, tag)]
            size *= 2
        npus.append(npu)
    return npus


def doubling(n: int, whole: int = 64 * KIB, posted: bool = False) -> list[Npu]:
    """Recursive doubling: whole arrays between partners, added. posted: an addition waits for its receive alone, as the
    send has left before."""
    npus = []
    for rank in range(n):
        npu, last = Npu(), list[int]()
        for bit in range(n.bit_length() - 1):
            a = npu.send(rank ^ 1 << bit, whole, last, bit)
            b = npu.recv(rank ^ 1 << bit, whole, last, bit)
            last = [npu.comp([b] if posted else [a, b])]
        npus.append(npu)
    return npus


def direct(n: int, *, adds: bool, copies: bool, size: int = 64 * KIB) -> list[Npu]:
    """Everybody sends to everybody at once: blocks that are added, then blocks that are copied."""
    npus = []
    for rank in range(n):
        npu, last = Npu(), list[int]()
        others = [(rank + d) % n for d in range(1, n)]
        if adds:
            for other in others:
                npu.send(other, size, [], 0)
            got = [npu.recv(other, size, [], 0) for other in others]
            last = [npu.comp(got, name="COMP (reduce)")]
        if copies:
            for other in others:
                npu.send(other, size, last, 1)
            for other in others:
                npu.recv(other, size, last, 1)
        npus.append(npu)
    return npus


def tree(n: int, whole: int = 64 * KIB, parts: int = 1, posted: bool = False) -> list[Npu]:
    """A binary tree, up and down, in pieces that follow each other. posted: a rank waits for the sum from the start,
    and only its message says that the rank's own has gone up."""
    npus = []
    for rank in range(n):
        npu = Npu()
        children = [c for c in (2 * rank + 1, 2 * rank + 2) if c < n]
        for part in range(parts):
            sums = list[int]()
            for child in children:
                sums = [npu.comp([npu.recv(child, whole // parts, sums, part)])]
            if rank:
                up = npu.send((rank - 1) // 2, whole // parts, sums, part)
                sums = [npu.recv((rank - 1) // 2, whole // parts, [] if posted else [up], part)]
            for child in children:
                npu.send(child, whole // parts, sums, part)
        npus.append(npu)
    return npus


def two_levels(groups: int, members: int, size: int = 16 * KIB) -> list[Npu]:
    """A ring reduce_scatter inside every group, a ring all_reduce between members of one place, and a ring all_gather
    inside: two sizes of groups, two sizes of messages."""
    npus = []
    for rank in range(groups * members):
        group, member = divmod(rank, members)
        npu, last = Npu(), list[int]()
        near, far = size * groups, size
        right, left = group * members + (member + 1) % members, group * members + (member - 1) % members
        up, down = (group + 1) % groups * members + member, (group - 1) % groups * members + member
        for _ in range(members - 1):
            a = npu.send(right, near, last, 0)
            last = [npu.comp([npu.recv(left, near, [a], 0)])]
        for step in range(2 * (groups - 1)):
            a = npu.send(up, far, last, 1)
            b = npu.recv(down, far, [a], 1)
            last = [npu.comp([b])] if step < groups - 1 else [b]
        for _ in range(members - 1):
            a = npu.send(right, near, last, 2)
            last = [npu.recv(left, near, [a], 2)]
        npus.append(npu)
    return npus


def bruck(n: int, size: int = 64 * KIB) -> list[Npu]:
    """All that a rank has goes to the rank 1, 2, 4, ... places before it."""
    npus = []
    for rank in range(n):
        npu, last, held, tag = Npu(), list[int](), 1, 0
        while held < n:
            count = min(held, n - held)
            a = npu.send((rank - held) % n, count * size, last, tag)
            last = [a, npu.recv((rank + held) % n, count * size, last, tag)]
            held, tag = held + count, tag + 1
        npus.append(npu)
    return npus


def overlapped(n: int, size: int = 1 << 20, micros: int = 20) -> list[Npu]:
    """A ring all_gather beside products that wait for a chunk each."""
    npus = []
    for rank in range(n):
        npu, last = Npu(), list[int]()
        products = [npu.comp([], micros, "MatMul[own]")]
        for step in range(n - 1):
            a, b = npu.send((rank + 1) % n, size, last, step), npu.recv((rank - 1) % n, size, [], step)
            last = [a, b]
            products.append(npu.comp([b], micros, f"MatMul[c{step}]"))
        npu.comp(products, micros, "MatMul[r]")
        npus.append(npu)
    return npus
