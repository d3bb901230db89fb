"""What the rows of a store answer, where they lie: `ahbm.sweeps.answers`, without reading more than decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ahbm.errors import ConfigError
from ahbm.sweeps import answers
from ahbm.table.files import Row, columns_of
from ahbm.table.query import PLACE, Query, asked, name_of, names, quoted
from ahbm.table.rows import Rows
from ahbm.table.store import Store

SAMPLE = 100_000
"""Rows that are looked at first: for how many values a key has, for how far numbers are apart."""


def keyed(store: Store, wanted: set[str]) -> dict[str, Row]:
    """The rows of some keys. Raises as `Store.rows`."""
    return asked(store, lambda query: query.keyed(wanted)) if wanted else {}


def pareto(store: Store, goals: Sequence[str]) -> tuple[Rows, list[str]]:
    """The rows, of all columns, that `answers.pareto` picks; and the algorithms of which a result is wrong. Raises as
    `answers.pareto` and `Store.rows`."""
    answers.refuse_none(goals)
    return asked(store, lambda query: (_front(query, goals), _wrong_by(query)))


def sensitivity(store: Store) -> list[answers.Effect]:
    """`answers.sensitivity`. Raises as `Store.rows`."""
    return asked(store, _effects)


def _wrong_by(query: Query) -> list[str]:
    if "wrong" not in query.columns:
        return []
    return [line[0] for line in query.lines(f"select distinct algorithm from {query.each} where wrong > 0 order by 1")]


def _right(query: Query) -> str:
    return "not coalesce(wrong > 0, false)" if "wrong" in query.columns else "true"


def _front(query: Query, goals: Sequence[str]) -> Rows:
    columns = [answers.column(goal.removeprefix("-")) for goal in goals]
    Rows(query.columns, {}).refuse_unknown(columns)
    query.narrow([*answers.JUDGED, *columns])
    signs = ["-" if goal.startswith("-") else "" for goal in goals]
    try:
        return _unbeaten(
            query, goals, [f"{sign}cast({name_of(c)} as double)" for sign, c in zip(signs, columns, strict=True)]
        )
    except query.unconverted() as error:
        text = next((one for one in columns if not query.numeric(one)), columns[0])
        raise ConfigError("AHBM-C187", f"the column {text} does not hold numbers") from error


def _unbeaten(query: Query, goals: Sequence[str], values: Sequence[str]) -> Rows:
    numbered = [f"g{number}" for number in range(len(goals))]
    given = [f"{value} as {name}" for value, name in zip(values, numbered, strict=True)]
    known = " and ".join(f"{name} is not null and not isnan({name})" for name in numbered)
    columns = dict.fromkeys([*answers.JUDGED, *(answers.column(goal.removeprefix("-")) for goal in goals)])
    wanted = names([*(one for one in columns if one not in ("space", "at")), "space", "at", *PLACE])
    query.run(
        f"create temp view known as select * from (select {wanted}, {', '.join(given)} from {query.each} "
        f"where {_right(query)}) where {known}"
    )
    # What one number is worth in another: of some rows, since any worth finds rows that few are not beaten by.
    ends = ", ".join(f"max({name}) - min({name})" for name in numbered)
    (spans,) = query.lines(f"select {ends} from (select {', '.join(numbered)} from known limit {SAMPLE})")
    score = " + ".join(f"{name} / {width or 1.0!r}" for name, width in zip(numbered, spans, strict=True))
    good = ", ".join(f"{name} := {name}" for name in numbered)
    place = '"at"' if query.one_space else f'struct_pack(a := space <> {quoted(query.own)}, b := space, c := "at")'
    asked = [name_of(name) for name in answers.ASKED if name in query.columns]
    picked = [*asked, f"arg_min(struct_pack({good}), {score}) as good", f"min({place}) as first"]
    query.run(f"create temp table good as select {', '.join(picked)} from known group by all")
    alike = _differing(asked, query.lines(f"select {', '.join([*asked, 'first'])} from good"))
    same = " and ".join(f"known.{name} is not distinct from good.{name}" for name in alike)
    better = " or ".join(f"known.{name} < good.good.{name}" for name in numbered)
    equal = " and ".join(f"known.{name} = good.good.{name}" for name in numbered)
    left = query.table(
        f"select known.*, dense_rank() over (order by good.first) as turn from known join good on {same or 'true'} "
        f"where {better} or ({equal}) order by {query.order}"
    )
    rows = columns_of(left)
    chosen = answers.pareto(rows, goals, np.arange(len(rows), dtype=np.float64))
    # The groups stand in the order of their first rows, which may be beaten.
    chosen = chosen[np.argsort(rows.numbers("turn")[chosen], kind="stable")]
    lying = rows.at(chosen)
    return query.at(list(zip(*(lying.column(name) for name in PLACE), strict=True)))


def _differing(asked: Sequence[str], lines: Sequence[tuple[Any, ...]]) -> list[str]:
    """The columns in which lines, whose values begin with theirs, differ."""
    return [name for at, name in enumerate(asked) if len({line[at] for line in lines}) > 1]


def _effects(query: Query) -> list[answers.Effect]:
    keys = answers.keys([name for name in query.columns if name not in query.computed])
    if "latency_ns" not in query.columns or not keys:
        return []
    query.narrow([*answers.ASKED, *keys, "latency_ns", "wrong"])
    known = f"{query.each} where latency_ns > 0 and not isnan(latency_ns) and {_right(query)}"
    labels: dict[str, list[str]] = {}
    values = []
    for number, name in enumerate(keys):
        value = name_of(name)
        if query.numeric(name) and _many(query, name):
            numbers = columns_of(query.table(f"select {value} from {known}")).numbers(name)
            if not len(numbers):
                return []
            labels[name], edges = answers.quarters(numbers)
            above = " + ".join(f"cast({edge!r} <= {value} as integer)" for edge in edges)
            value = f"case when {value} is null then 4 else least(greatest({above} - 1, 0), 3) end"
        values.append(f"{value} as v{number}")
    asked = [name_of(name) for name in answers.ASKED if name in query.columns]
    alike = _differing(asked, query.lines(f"select {', '.join([*asked, 'count(*)'])} from {known} group by all"))
    logs = f"cast(round(ln(latency_ns) * {answers.SCALE:.0f}) as bigint) as logs"
    taken = ", ".join([*alike, *values, logs])
    by = ", ".join(f"({', '.join([*alike, f'v{number}'])})" for number in range(len(keys)))
    of = ", ".join(f"v{number}" for number in range(len(keys)))
    lines = query.lines(
        f"select {', '.join([*alike, ''])} {of}, grouping({of}), cast(sum(logs) as varchar), count(*) "
        f"from (select {taken} from {known}) group by grouping sets ({by})"
    )
    found: dict[str, list[tuple[Any, Any, int, int]]] = {name: [] for name in keys}
    for line in lines:
        group, every = line[: len(alike)], line[len(alike) : -3]
        # A bit is 0 where the line is by this key, the first key's bit the highest.
        number = next(n for n in range(len(keys)) if not line[-3] >> (len(keys) - 1 - n) & 1)
        found[keys[number]].append((group, every[number], int(line[-2]), line[-1]))
    return answers.effects({name: answers.Tally(found[name], labels.get(name)) for name in keys})


def _many(query: Query, name: str) -> bool:
    """Whether a column has more values than are told one by one."""
    for rows in (f"(select {name_of(name)} from {query.each} limit {SAMPLE})", query.each):
        found = query.lines(f"select count(distinct {name_of(name)}) + max(({name_of(name)} is null)::int) from {rows}")
        if (found[0][0] or 0) > answers.CLASSES:
            return True
    return False
