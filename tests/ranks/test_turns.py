"""Turns without threads: who gets the next one."""

from __future__ import annotations

from ahbm._core import Gate
from ahbm.ranks.turns import TurnTable


class Still:
    def pause(self, rank: int) -> None: ...

    def resume(self, rank: int) -> None: ...


class Watched(TurnTable):
    """Four ranks; says whose gate has opened."""

    def __init__(self) -> None:
        super().__init__(4, Still())
        self.gates: dict[int, Gate] = {}

    def wishing(self, *ranks: int) -> None:
        for rank in ranks:
            self.gates[rank] = Gate()
            self.wish(rank, self.gates[rank])

    def given(self, *waiting: int) -> list[int]:
        self.give(lambda rank: rank not in waiting)
        return [rank for rank, gate in self.gates.items() if gate.wait(0.0)]


def test_turns_go_round_in_rank_order() -> None:
    table, order = Watched(), []
    table.wishing(0, 1, 2, 3)
    for _ in range(6):
        (rank,) = table.given()
        order.append(rank)
        assert table.turn == rank and not table.wishes(rank)
        assert table.end(rank) and table.turn is None
        table.wishing(rank)
    assert order == [0, 1, 2, 3, 0, 1]


def test_a_rank_that_waits_is_passed_over_and_comes_next() -> None:
    table = Watched()
    table.wishing(0, 1, 2)
    assert table.given(0) == [1]
    table.end(1)
    assert table.given(0, 2) == [1] and table.turn is None
    assert table.given() == [1, 2]
    table.end(2)
    assert table.given() == [0, 1, 2]


def test_only_the_rank_that_has_the_turn_can_end_it() -> None:
    table = Watched()
    table.wishing(0, 1)
    assert table.given() == [0]
    assert not table.end(1) and table.turn == 0


def test_a_rank_that_withdraws_gets_no_turn() -> None:
    table = Watched()
    table.wishing(0, 1)
    table.withdraw(0)
    assert table.given() == [1]
