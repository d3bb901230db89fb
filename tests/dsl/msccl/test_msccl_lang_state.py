"""MSCCLang: what programs see of their own state, collectives of their own, contexts, and topologies."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ahbm.dsl.msccl import XML, Buffer, BufferSlice, Check, Chunk, ChunkRef, MSCCLProgram, ReduceChunk, chunk
from ahbm.dsl.msccl.collectives import AllGather, AllReduce, Buffers, Collective
from ahbm.dsl.msccl.synthesis_collectives import allgather, alltoall
from ahbm.dsl.msccl.topologies import (
    Topology,
    amd8,
    binarize_topology,
    dgx1,
    dgx_a100,
    distributed_fully_connected,
    distributed_hub_and_spoke,
    fully_connected,
    hub_and_spoke,
    line,
    nvlink_only,
    reverse_topology,
    ring,
    star,
)
from ahbm.dsl.written import collected
from ahbm.errors import ProgramError

IN, OUT = Buffer.input, Buffer.output


class Shift(Collective):
    """Rank r ends with the chunks of rank r + 1; output slots are counted from the end."""

    def init_buffers(self) -> Buffers:
        ranks: Buffers = []
        for rank in range(self.num_ranks):
            chunks = [Chunk(rank, i, rank - 1, i) for i in range(self.chunk_factor)]
            ranks.append({IN: chunks, OUT: [None] * self.chunk_factor})
        return ranks

    def check(self, prog: MSCCLProgram) -> bool:
        right = True
        for rank in range(self.num_ranks - 1):
            for i in range(self.chunk_factor):
                found = prog.buffers[rank][OUT][self.chunk_factor - 1 - i]
                if found is None or not isinstance(found, Chunk) or found.origin_rank != rank + 1:
                    print(f"rank {rank} chunk {i}: {found}")
                    right = False
        return right

    def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
        return buffer, self.chunk_factor - 1 - index if buffer is OUT else index


def test_a_collective_of_the_programs_own(capsys: pytest.CaptureFixture[str]) -> None:
    with collected() as found, MSCCLProgram("shift", fully_connected(3), Shift(3, 1, False), 1):
        for rank in (1, 2):
            moving = chunk(rank, IN, 0)
            moving.copy(moving.get_dst_rank(), OUT, moving.get_dst_index())
        assert Check()
        XML()
    assert 'coll="custom"' in found[0].text
    assert found[0].plan.check()[0] == "no_expectation"
    with pytest.raises(ProgramError, match="AHBM-A209"), MSCCLProgram("p", fully_connected(3), Shift(3, 1, False), 1):
        Check()
    assert "rank 0 chunk 0: None" in capsys.readouterr().out


def test_buffers_show_the_present_state() -> None:
    with MSCCLProgram("p", fully_connected(2), AllReduce(2, 2, True), 1) as program:
        slots = program.buffers[0][OUT]
        assert (len(slots), slots[1], slots[-1]) == (2, Chunk(0, 1), Chunk(0, 1))
        assert slots[1].dst_index == 1  # type: ignore[union-attr]
        made = chunk(0, IN, 1).reduce(chunk(1, IN, 1))
        assert slots[1] == ReduceChunk(9, [Chunk(1, 1), Chunk(0, 1)])
        assert slots[1].creation_rank == 0  # type: ignore[union-attr]
        made.copy(1, "s", 2)
        assert "s" in program.buffers[1]
        assert "s" not in program.buffers[0]
        assert list(program.buffers[1]["s"]) == [None, None, slots[1]]
        assert program.buffers[1]["s"][1:] == [None, slots[1]]
        assert list(program.buffers[1]) == [IN, OUT, "s"]
        with pytest.raises(KeyError):
            program.buffers[0]["s"]
        with pytest.raises(IndexError):
            slots[2]
        with pytest.raises(TypeError):
            slots[0] = None


def test_a_buffer_in_place_is_a_part_of_the_other() -> None:
    with MSCCLProgram("p", fully_connected(3), AllGather(3, 2, True), 1) as program:
        first = chunk(2, IN, 1)
        assert (first.buffer, first.index) == (OUT, 5)
        assert program.buffers[2][OUT][5] == Chunk(2, 1)


def test_references() -> None:
    with MSCCLProgram("p", fully_connected(3), AllReduce(3, 6, True), 1) as program:
        whole = chunk(1, OUT, 0, 6)
        assert (whole.rank, whole.buffer, whole.index, whole.size, whole.prog) == (1, IN, 0, 6, program)
        parts = whole.split(3)
        assert [(part.index, part.size) for part in parts] == [(0, 2), (2, 2), (4, 2)]
        assert parts[2].group(parts[0]) == whole
        assert len({whole, chunk(1, IN, 0, 6)}) == 1
        assert repr(parts[1]) == "Ref(Buffer:i, Index:2, Size:2, Rank:1)"
        assert isinstance(whole, ChunkRef)
        assert (whole.get_origin_rank(3), whole.get_origin_index(3), whole.get_dst_rank(3)) == (1, 3, -1)
        appended = [chunk(1, IN, i).copy(2, "s").index for i in range(3)]
        assert appended == [0, 1, 2]


def test_print_chunk_info(capsys: pytest.CaptureFixture[str]) -> None:
    with MSCCLProgram("p", fully_connected(2), AllReduce(2, 2, True), 1):
        chunk(1, IN, 0, 2).print_chunk_info(1)
    assert capsys.readouterr().out == "Chunk(origin_rank=1, origin_index=1, dst_rank=-1, dst_index=1)\n"


@pytest.mark.filterwarnings("ignore::ahbm.errors.ProgramWarning")
def test_threads_have_programs_of_their_own() -> None:
    texts: dict[int, str] = {}
    meet = threading.Barrier(4)

    def write(ranks: int) -> None:
        with MSCCLProgram("p", fully_connected(ranks), AllReduce(ranks, 1, True), 1) as program:
            meet.wait(20)
            for rank in range(1, ranks):
                chunk(0, IN, 0).reduce(chunk(rank, IN, 0))
            meet.wait(20)
            texts[ranks] = program.generate_xml()

    threads = [threading.Thread(target=write, args=(ranks,)) for ranks in (2, 3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {ranks: text.count("<gpu") for ranks, text in texts.items()} == {2: 2, 3: 3, 4: 4, 5: 5}


def test_a_topology_of_the_programs_own_is_asked_once_per_link() -> None:
    asked = []

    class Odd(Topology):
        def link(self, src: int, dst: int) -> bool:
            asked.append((src, dst))
            return True

    with MSCCLProgram("p", Odd("odd", [{}, {}]), AllReduce(2, 2, True), 1):
        for _ in range(3):
            chunk(0, IN, 0).copy(1, IN, 0)
    assert asked == [(0, 1)]


def test_buffer_slices_grow() -> None:
    buffer = BufferSlice(Buffer.scratch, "s")
    buffer[2] = Chunk(0, 0)
    assert (buffer.instance_size(), buffer[0], buffer[2]) == (3, None, Chunk(0, 0))


def test_topologies() -> None:
    linked = {
        topology.name: sum(topology.link(src, dst) > 0 for src in topology.nodes() for dst in topology.nodes())
        for topology in (fully_connected(4), ring(4), line(4), star(4), dgx1(), dgx_a100(), amd8(), ring(2))
    }
    assert list(linked.values()) == [12, 8, 6, 6, 32, 56, 56, 2]
    assert [list(dgx1().sources(5)), list(dgx1().destinations(0))] == [[1, 4, 6, 7], [1, 2, 3, 4]]
    assert sum(dgx1().link(0, dst) for dst in range(8)) == 6
    two = distributed_fully_connected(dgx1(), 2, 3)
    assert (two.num_nodes(), two.link(0, 1), two.link(0, 9), two.link(8, 12)) == (16, 2, 3, 2)
    spokes = distributed_hub_and_spoke(hub_and_spoke(2), 2, 1)
    assert len(spokes.switches) == 4 * 2 + 4
    one_way = Topology("one way", [[0, 0], [5, 0]], [([0], [1], 2, "s")])
    assert (reverse_topology(one_way).link(1, 0), binarize_topology(one_way).links) == (5, [[0, 0], [1, 0]])
    assert list(one_way.bandwidth_constraints()) == [([0], [1], 5, "0→1"), ([0], [1], 2, "s")]
    text = "\tGPU0\tGPU1\tCPU\nGPU0\tX\tNV4\t0-3\nGPU1\tNV4\tX\t0-3\n\nLegend:\n"
    assert nvlink_only(text).links == [[0, 4], [4, 0]]
    with pytest.raises(ValueError, match="not positive"):
        Topology("none", [[0]], [([0], [0], 0, "s")])


def test_collectives_of_the_synthesizer() -> None:
    gathered, exchanged = allgather(3), alltoall(2).chunk_up(2)
    assert gathered.precondition(1, 1)
    assert not gathered.precondition(0, 1)
    assert (exchanged.num_chunks, exchanged.address(3), exchanged.postcondition(1, 5)) == (8, 3, True)
