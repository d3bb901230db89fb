"""MSCCLang: what is refused, as which exception, at which line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from ahbm.dsl import msccl
from ahbm.dsl.msccl import XML, Buffer, Check, Chunk, MSCCLProgram, Print, ThreadblockPolicy, chunk, create_scratch
from ahbm.dsl.msccl.collectives import AllReduce, AllToAll, Broadcast, Buffers, Collective, SendRecv
from ahbm.dsl.msccl.topologies import fully_connected, line
from ahbm.dsl.written import collected
from ahbm.errors import AhbmError, ProgramError

IN, OUT = Buffer.input, Buffer.output


def refused(say: Callable[[], object], *, quirks: bool = False, **options: object) -> ProgramError:
    """The error of a program of three ranks in a line, with four chunks; its first site is the last line of `say`."""
    options = {"name": "p", "topo": line(3), "collective": AllReduce(3, 4, True), "instances": 1, **options}
    with collected(quirks=quirks), pytest.raises(ProgramError) as caught, MSCCLProgram(**options):  # type: ignore[arg-type]
        say()
    return caught.value


def c(rank: int = 0, index: int = 0, size: int = 1) -> msccl.Ref:
    return chunk(rank, IN, index, size)


class Sized:
    """A topology of as many ranks as it is told."""

    def __init__(self, ranks: object) -> None:
        self.ranks = ranks

    def num_nodes(self) -> object:
        return self.ranks

    def link(self, src: int, dst: int) -> bool:
        return True


class Astray(Collective):
    """A collective that does not know where its slots are."""

    def init_buffers(self) -> Buffers:
        return [{IN: [Chunk(rank, 0)], OUT: [None]} for rank in range(self.num_ranks)]

    def get_buffer_index(self, rank: int, buffer: object, index: int) -> Any:
        return "nonsense"


OTHER = MSCCLProgram("other", line(3), AllReduce(3, 4, True), 1)


@pytest.mark.parametrize(
    ("say", "kind", "code", "words"),
    [
        (lambda: chunk(3, IN, 0), IndexError, "A203", "rank 3 of 3 ranks"),
        (lambda: chunk(-1, IN, 0), IndexError, "A203", "rank -1"),
        (lambda: chunk(0, IN, 4), IndexError, "A203", "list index out of range"),
        (lambda: chunk(0, IN, -1), IndexError, "A203", "slot -1"),
        (lambda: chunk(0, "s", 0), KeyError, "A203", "no buffer 's'"),
        (lambda: chunk(0, [], 0), TypeError, "A202", "no name of a buffer"),
        (lambda: chunk(0, IN, 0.5), TypeError, "A202", "'float' object cannot be interpreted"),
        (lambda: chunk(0, IN, 1 << 70), TypeError, "A202", "integer of 64 bits"),
        (lambda: chunk(0, IN), TypeError, "A202", "missing 1 required positional argument: 'index'"),
        (lambda: chunk(0, IN, 0, 0), ValueError, "A206", "0 chunks"),
        (lambda: chunk(0, IN, 2, 4).copy(1, OUT, 0), IndexError, "A203", "slots [2, 6)"),
        (lambda: c(size=1 << 31).copy(1, "s", 0), IndexError, "A203", "2147483648"),
        (lambda: c().copy(2, IN, 0), AssertionError, "A205", "No link from 0 to 2"),
        (lambda: c(2).reduce(c(0)), AssertionError, "A205", "No link from 0 to 2"),
        (lambda: c().copy(7), IndexError, "A203", "rank 7"),
        (lambda: c().copy(1, OUT), IndexError, "A203", "slot -1"),
        (lambda: c().copy(1, index=2), TypeError, "A202", "name the buffer"),
        (lambda: c().copy(1, OUT, 4), IndexError, "A203", "slots [4, 5)"),
        (lambda: c().copy(1, "s", 1 << 31), AhbmError, "B204", "steps"),
        (lambda: c().copy(1, "s", 1 << 40), IndexError, "A203", "slot"),
        (lambda: c(size=2).copy(0, IN, 1), AssertionError, "A206", "occupies itself"),
        (lambda: c().reduce(c()), AssertionError, "A206", "occupies itself"),
        (lambda: c(size=2).reduce(c(1)), AssertionError, "A206", "1 chunks are reduced into 2"),
        (lambda: c(size=3).split(2), AssertionError, "A206", "Trying to split a chunk of 3 elements into 2 parts"),
        (lambda: c(size=3).split(0), AssertionError, "A206", "into 0 parts"),
        (lambda: c().group(c(1)), AssertionError, "A206", "on ranks 0 and 1"),
        (lambda: c().copy(1, sendtb=-2), ValueError, "A202", "sendtb=-2"),
        (lambda: c().copy(1, ch=1 << 24), ValueError, "A202", "ch=16777216"),
        (lambda: c().copy(1, ch="0"), TypeError, "A202", "ch: 'str' object"),
        (lambda: c().reduce(OTHER.get_ref(0, IN, 0, 1)), ValueError, "A202", "another program"),
        (lambda: (c().reduce(c(1)), c().get_dst_rank()), AttributeError, "A204", "'ReduceChunk' object has no"),
        (Print, AttributeError, "A211", "Print()"),
        (lambda: create_scratch(0, "s"), AttributeError, "A211", "create_scratch()"),
        (lambda: msccl.Threadblock, AttributeError, "A211", "Threadblock"),
    ],
)
def test_a_statement_is_refused(say: Callable[[], object], kind: type[Exception], code: str, words: str) -> None:
    options = {"name": "p", "topo": line(3), "collective": AllReduce(3, 4, False), "instances": 1}
    with pytest.raises(AhbmError) as caught, MSCCLProgram(**options):  # type: ignore[arg-type]
        say()
    error = caught.value
    assert isinstance(error, kind)
    assert (error.code, words in str(error)) == (f"AHBM-{code}", True), str(error)
    if code.startswith("A"):
        assert isinstance(error, ProgramError)
        assert error.exit_code == 16
        assert error.sites[0].origin.startswith("test_msccl_lang_errors.py:")
        assert pickle.loads(pickle.dumps(error)).to_json() == error.to_json()


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: c().reduce(1, IN, 0), "'int' object has no attribute 'rank'"),
        (lambda: c().reduce(1, IN, 0, sendtb=0), "Ref.reduce() got multiple values for argument 'sendtb'"),
        (lambda: c().send(1, IN, 0), "'Ref' object has no attribute 'send'"),
        (lambda: c().copy(1, step=3), "Ref.copy() got an unexpected keyword argument 'step'"),
        (lambda: c().copy(), "Ref.copy() missing 1 required positional argument: 'dst'"),
    ],
)
def test_a_call_of_2021_says_so(say: Callable[[], object], words: str) -> None:
    error = refused(say)
    assert isinstance(error, TypeError)
    assert isinstance(error, AttributeError)
    assert (error.code, words in error.message) == ("AHBM-A202", True)
    assert "written for msccl-tools before 2.3" in str(error.hint)


def test_a_slot_that_was_never_written_fails_where_it_is_used() -> None:
    def say() -> None:
        nothing = chunk(0, OUT, 1)
        assert not nothing
        assert nothing == None  # noqa: E711
        nothing.copy(1)

    error = refused(say, collective=AllReduce(3, 4, False))
    first = say.__code__.co_firstlineno
    assert isinstance(error, AttributeError)
    assert error.code == "AHBM-A204"
    assert "'NoneType' object has no attribute 'copy'" in error.message
    assert [site.origin for site in error.sites] == [f"test_msccl_lang_errors.py:{first + n}" for n in (4, 1)]


def test_with_quirks_a_slot_that_was_never_written_is_none() -> None:
    with collected(quirks=True), MSCCLProgram("p", line(3), AllReduce(3, 4, False), 1):
        assert chunk(0, OUT, 1) is None
        assert c().copy(0, IN, 0) is None


def test_a_copy_to_its_own_place_is_the_chunk() -> None:
    with MSCCLProgram("p", line(3), AllReduce(3, 4, True), 1):
        same = c()
        assert same.copy(0, OUT, 0) == same


def test_reading_a_hole_is_refused() -> None:
    def say() -> None:
        c().copy(0, "s", 2)
        chunk(0, "s", 2).copy(0, "s", 0)
        chunk(0, "s", 0, 3).copy(1, "s", 0)

    error = refused(say)
    assert isinstance(error, AssertionError)
    assert (error.code, "slot 1 of rank 0 is read before" in error.message) == ("AHBM-A204", True)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"protocol": "LL64"}, "A210", "Given protocol: LL64. Must be either Simple, LL, LL128"),
        ({"instances": 0}, "A210", "instances=0"),
        ({"instances": 1.5}, "A210", "instances=1.5"),
        ({"threadblock_policy": "auto"}, "A210", "threadblock_policy='auto'"),
        ({"collective": 3}, "A210", "collective: int"),
        ({"topo": 3}, "A210", "topo: 'int'"),
        ({"collective": Collective(3, 1, True)}, "A210", "buffers of 0 ranks, the topology has 3"),
        ({"collective": AllReduce(2, 1, True)}, "A210", "a collective of 2 ranks on a topology of 3"),
        (
            {"collective": AllReduce(3, 1 << 23, True)},
            "A210",
            "8388608 chunks at each of 3 ranks",
        ),
        ({"collective": AllToAll(3, 1 << 20, True)}, "A210", "3145728 chunks at each of 3 ranks"),
        ({"topo": Sized(-1)}, "A210", "num_nodes() gave -1"),
        ({"topo": Sized("3")}, "A210", "num_nodes() gave '3'"),
        ({"collective": Astray(3, 1, True)}, "A210", "get_buffer_index() gave nonsense"),
    ],
)
def test_parameters_that_do_not_fit(options: dict[str, object], code: str, words: str) -> None:
    error = refused(lambda: None, **options)
    assert (error.code, words in error.message) == (f"AHBM-{code}", True)


@pytest.mark.parametrize(
    "make", [lambda: AllReduce(0, 1, True), lambda: AllReduce(2, 1.0, True), lambda: SendRecv(3, 1, True)]
)
def test_collectives_that_cannot_be(make: Callable[[], object]) -> None:
    with pytest.raises(ProgramError, match="AHBM-A210"):
        make()
    with pytest.raises(ProgramError, match="root 2 of 2"):
        Broadcast(2, 1, True, 2)


@pytest.mark.parametrize("say", [lambda: chunk(0, IN, 0), XML, Check])
def test_outside_a_program(say: Callable[[], object]) -> None:
    with pytest.raises(ProgramError, match="No Program in context") as caught:
        say()
    assert caught.value.code == "AHBM-A201"


def test_programs_do_not_nest_and_an_exception_ends_one() -> None:
    inner = MSCCLProgram("inner", line(3), AllReduce(3, 4, True), 1)
    error = refused(inner.__enter__)
    assert (error.code, error.message) == ("AHBM-A201", "There is already a MSCCL Program in context")
    with inner:
        c()


def test_a_check_that_fails_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def say() -> None:
        c(0).reduce(c(1))
        Check()

    error = refused(say, collective=AllReduce(3, 1, True))
    assert error.code == "AHBM-A209"
    assert error.sites[0].origin == f"test_msccl_lang_errors.py:{say.__code__.co_firstlineno + 2}"
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == (
        "Rank 0 chunk 0 is incorrect should be ReduceChunk index 0 from all ranks, given ReduceChunk(creation_rank=0, "
        "chunks=[Chunk(origin_rank=0, origin_index=0, dst_rank=-1, dst_index=0), "
        "Chunk(origin_rank=1, origin_index=0, dst_rank=-1, dst_index=0)])"
    )
    assert len(printed) == 3
    with collected(quirks=True), MSCCLProgram("p", line(3), AllReduce(3, 1, True), 1):
        assert Check() is False


def test_thread_blocks_that_cannot_be_name_both_statements() -> None:
    def say() -> None:
        c(1).copy(0, OUT, 1, sendtb=1, recvtb=1)
        c(1).copy(2, OUT, 1, sendtb=1, recvtb=1)
        XML()

    error = refused(say, collective=AllReduce(3, 4, False), threadblock_policy=ThreadblockPolicy.manual)
    first = say.__code__.co_firstlineno
    assert error.code == "AHBM-A207"
    assert error.message.startswith(
        "Illegal threadblock assignment. Threadblock 1 of rank 1 has send:0 recv:-1 channel:0"
    )
    assert [site.origin for site in error.sites] == [f"test_msccl_lang_errors.py:{first + n}" for n in (2, 1)]


def test_receives_in_another_order_than_sends_name_both_statements() -> None:
    def say() -> None:
        # The first is received late: what it overwrites has a long way behind it.
        c(1, 0).copy(1, OUT, 3, sendtb=5).copy(1, OUT, 2, sendtb=5).copy(1, OUT, 1, sendtb=5).copy(1, OUT, 0, sendtb=5)
        c(0, 0).copy(1, OUT, 0, sendtb=0, recvtb=0)
        c(0, 1).copy(1, OUT, 3, sendtb=0, recvtb=0)
        XML()

    options = {"collective": AllReduce(3, 4, False), "threadblock_policy": ThreadblockPolicy.manual}
    error = refused(say, **options)
    assert error.code == "AHBM-A208"
    assert "Rank 0 sends op1 then op2 but 1 receives op2 then op1" in error.message
    first = say.__code__.co_firstlineno
    assert [site.origin for site in error.sites] == [f"test_msccl_lang_errors.py:{first + n}" for n in (3, 4)]


def test_no_channel_is_left() -> None:
    def say() -> None:
        # 33 chains over the hop 0 -> 1, each of which goes on to a rank of its own.
        for index in range(33):
            chunk(0, IN, index).copy(1, IN, index).copy(2 + index, IN, index)
        XML()

    error = refused(say, quirks=True, topo=fully_connected(40), collective=AllReduce(40, 40, True))
    assert isinstance(error, ValueError)
    assert (error.code, "no channel of 32" in error.message) == ("AHBM-A207", True)
    assert "ch=" in str(error)


def test_instances_beyond_the_budget_are_refused() -> None:
    def say() -> None:
        for index in range(4):
            c(index=index).copy(1, OUT, index)
        XML()

    with pytest.raises(AhbmError, match="AHBM-B204"), MSCCLProgram("p", line(3), AllReduce(3, 4, False), (1 << 24) - 1):
        say()


def test_an_exception_in_the_programs_own_collective_is_its_own() -> None:
    class Wrong(Collective):
        def init_buffers(self) -> None:
            raise IndexError("list assignment index out of range")

    with pytest.raises(IndexError) as caught:
        MSCCLProgram("p", line(3), Wrong(3, 1, True), 1)
    assert not isinstance(caught.value, AhbmError)
