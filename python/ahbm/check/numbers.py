"""The results of a program compared with right ones at about the price of a run, for the first call of a shape.

The numbers are those of `ahbm.check.reference`. Where arrays are long they are one block of numbers that is repeated:
neither their making nor their sum costs anything, and no array is as long as those of the call. Every second number of
the block needs the whole width of its type, the others are integers: one run finds a cast as well as a contribution
that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Recipe
from ahbm.base.host import memory_bytes
from ahbm.base.request import Request
from ahbm.check.case import ROUNDS, Case, Traced, explain_wrong
from ahbm.check.reference import Reference, inputs, takes_turns
from ahbm.core.compiled import EARLY_OPS
from ahbm.errors import BudgetError, DataError

BLOCKS = (1021, 1019, 8191, 8179, 65_521, 65_519)
"""Numbers in a block: primes, so that chunks of other places are not the same numbers."""
TURNS = 2
"""Numbers of full width that each party has in a block and in a chunk, at least, where one run is to tell all."""
KEPT = 8
"""Kinds of blocks that are kept for the next first call."""
PIECES = 64
"""Pieces as which each party's operand is read, about: each is some blocks, side by side in memory."""
WINDOWS = 8
"""Most pieces in which long results are made, one after the other in the same memory."""
BYTES_OF_OP = 1 << 12
"""New memory that takes as long as to follow an operation once more, which each piece does; squared with the number of
pieces, it is what they save."""


def compared(case: Case, tracing: Callable[[str, int], Traced], seed: int = 0) -> DataError | None:
    """The error (AHBM-V301) where the program gives a wrong result for integers, or for numbers of the whole width of
    their type.

    tracing: as of `ahbm.check.case.narrowed`. Raises BudgetError (AHBM-B301) for data that this computer cannot hold,
    and what the run raises.
    """
    request = case.request
    block = _block(request)
    blocks = _blocks(_of_block(request, block), seed) if block else []
    if block and _right(case, blocks):
        return None
    for mode, number in _modes(request):
        found = _wrong(case, inputs(request, mode, seed + number), tracing(mode, seed + number))
        if found is not None:
            return found
    return _wrong(case, [np.resize(one, request.size) for one in blocks], None) if block else None


def _modes(request: Request) -> Iterator[tuple[str, int]]:
    """The numbers of each run over short arrays, and how far their seed is from the first; all parties take turns, as
    far as `ROUNDS` allows."""
    yield "integers", 0
    if takes_turns(request):
        piece = max(request.size // request.parties, 1)
        yield from (("wide", number) for number in range(min(-(-request.parties // piece), ROUNDS)))


def _check_memory(request: Request) -> None:
    asked = 2 * request.parties * request.size * request.element.storage.itemsize
    if asked > (most := memory_bytes()):
        raise BudgetError(
            "AHBM-B301",
            f"the numbers of {request.parties} x {request.size} elements take at least {asked} bytes, "
            f"this process may have {most}",
        )


def _wrong(case: Case, given: list[NDArray[Any]], traced: Traced | None) -> DataError | None:
    """The error where the results of these arrays are wrong."""
    _, results = case.execute(given)
    reference = Reference(case.request, given, exact=True)
    if any(len(reference.wrong(party, results[party])) for party in range(case.request.parties)):
        return explain_wrong(case, given, results, reference, traced)
    return None


def _block(request: Request) -> int:
    """The length of a block for a request; 0 where its arrays, or the pieces of them, are too short for one."""
    least = 2 * TURNS * request.parties
    if request.size // request.parties < least:
        return 0
    if request.size <= 2 * BLOCKS[0]:
        return request.size
    fit = (size for size in BLOCKS if least <= size and 2 * size <= request.size)
    return next((size for size in fit if request.count % size), 0)


def _of_block(request: Request, block: int) -> Request:
    """A request of the same numbers whose arrays are one block."""
    kind = "all_reduce" if request.reduces else "broadcast"
    return Request(kind, range(request.parties), block, request.dtype, request.op)


@lru_cache(maxsize=KEPT)
def _blocks(of_block: Request, seed: int) -> list[NDArray[Any]]:
    """Every party's block, to be read only."""
    blocks = inputs(of_block, "integers", seed)
    if takes_turns(of_block):
        for numbers, wide in zip(blocks, inputs(of_block, "wide", seed), strict=True):
            numbers[1::2] = wide[: len(numbers) // 2]  # of those that follow each other, each is another party's
    return blocks


class _Window(NamedTuple):
    """The elements [start, stop) of every party's array, as the program has left them."""

    start: int
    stop: int
    results: Sequence[NDArray[Any]]


def _right(case: Case, blocks: list[NDArray[Any]]) -> bool:
    """Whether every result of repeated blocks has the very bits of the right one."""
    request, block = case.request, len(blocks[0])
    sources = blocks
    if request.reduces:
        sources = [request.element.encode(Reference(_of_block(request, block), blocks, exact=True).expected(0))]
    wanted: dict[int, NDArray[Any]] = {}
    """What results are compared with, by its source and where in a block that begins."""
    for window in _windows(case, blocks):
        for party in range(request.parties):
            for start, stop, whose, at in _pieces(request, party):
                low, high = max(start, window.start), min(stop, window.stop)
                if low >= high:
                    continue
                got = window.results[party][low - window.start : high - window.start]
                phase = (at + low - start) % block
                want = wanted.get(whose * block + phase)
                if want is None or len(want) < len(got):
                    if len(wanted) > request.parties:
                        wanted.clear()
                    want = wanted[whose * block + phase] = np.resize(np.roll(sources[whose], -phase), len(got))
                if not np.array_equal(_bits(got), _bits(want[: len(got)])):
                    return False
    return True


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """The bits of an array, as few and wide numbers as that gives."""
    return array.view(np.uint64 if array.nbytes % 8 == 0 else f"u{array.dtype.itemsize}")


def _pieces(request: Request, party: int) -> list[tuple[int, int, int, int]]:
    """Pieces of a party's results: first element and end, the source, and the element there that the first one is."""
    if not request.reduces:
        return [(start, stop, whose, at) for start, stop, ((whose, at),) in request.expected(party)]
    if request.shares is not None:
        return [(start, stop, 0, start) for start, stop, _ in request.expected(party)]
    part = request.part(party)  # of many parties, all pieces of an all_reduce are one
    return [(part.start, part.stop, 0, part.start)]


def _windows(case: Case, blocks: list[NDArray[Any]]) -> Iterator[_Window]:
    """Runs the program on repeated blocks; its results, window by window."""
    request, block, compiled = case.request, len(blocks[0]), case.compiled().moving
    timeline = compiled.timeline(record=True)
    nbytes = request.parties * request.size * request.element.storage.itemsize
    many = min(max(isqrt(nbytes // (BYTES_OF_OP * max(compiled.ops, 1))), 1), WINDOWS)
    length = -(-request.size // many // block) * block
    side = -(-request.size // PIECES // block) * block
    program, tiles = compiled.program, request.tiles
    ranks = range(request.world_size)
    if program is not None and timeline is not None and compiled.ops <= EARLY_OPS:
        hosts = [np.empty(tiles * (side + length), request.element.storage) for _ in ranks]
        for party, one in enumerate(blocks):
            at = (party % tiles) * side
            hosts[party // tiles][at : at + side] = np.resize(one, side)
        whole = _placed(request, compiled.operands, side, 0)
        operands = [np.ascontiguousarray(rows[:, :4]) for rows in whole]
        cut = _placed(request, compiled.results, length, tiles * side)
        for number, start in enumerate(range(0, request.size, length)):
            stop = min(start + length, request.size)
            results = [np.ascontiguousarray(rows[rows[:, 4] == number, :4]) for rows in cut]
            recipe = Recipe.of(program, timeline, operands, results)
            if recipe is None or not recipe.run(hosts):
                break
            first = [(party // tiles, tiles * side + (party % tiles) * length) for party in range(request.parties)]
            yield _Window(start, stop, [hosts[rank][at : at + length] for rank, at in first])
        else:
            return
    _check_memory(request)
    yield _Window(0, request.size, case.execute([np.resize(one, request.size) for one in blocks])[1])


def _placed(request: Request, ranks: Sequence[NDArray[np.int64]], length: int, first: int) -> list[NDArray[np.int64]]:
    """Pieces of every rank's array as pieces of another, in which every `length` elements of a party stand in the same
    place, and the parties' places one after the other from element `first` on; each with how many such lengths of its
    party come before it."""
    item = request.element.storage.itemsize
    size, length = request.size * item, length * item
    rows = np.concatenate(ranks)
    begins, ends = rows[:, 1], rows[:, 1] + rows[:, 3]
    # A piece is cut where a length of a party begins.
    edges = (np.arange(request.tiles)[:, None] * size + np.arange(0, size, length)).ravel()
    low = np.searchsorted(edges, begins, "right") - 1
    counts = np.searchsorted(edges, ends, "left") - low
    last = np.cumsum(counts)
    which = np.repeat(np.arange(len(rows)), counts)
    edge = np.repeat(low - last + counts, counts) + np.arange(len(which))
    begin = np.maximum(begins[which], edges[edge])
    end = np.minimum(ends[which], np.append(edges, size * request.tiles)[edge + 1])
    party, within = np.divmod(begin, size)
    before, at = np.divmod(within, length)
    at += first * item + party * length
    found = np.stack([rows[which, 0], at, rows[which, 2] + begin - begins[which], end - begin, before], axis=1)
    sizes = [len(one) for one in ranks]
    return np.split(found, np.append(0, last)[np.cumsum(sizes)[:-1]])
