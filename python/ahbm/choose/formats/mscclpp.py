"""The tuned configuration of MSCCL++'s benchmarks: a JSON file of profiles with a configuration per message size.

A profile is for a GPU (`sku`) and a number of ranks (`scale`), each optional; of the profiles that fit, the one with
more of them is asked first. In it the entry of the largest message size that is not above the call's holds, below the
smallest the smallest. Source: `python/mscclpp_benchmark/tuning_config.py` of microsoft/mscclpp.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ahbm.base.rules import ANY, Rule, Rules, Span
from ahbm.choose.formats.format import (
    Format,
    Read,
    collective_of,
    exactly,
    is_object,
    malformed,
    parse_json,
    unwritable,
)
from ahbm.choose.names import MSCCLPP
from ahbm.choose.rules import bounded, unreached

VERSION = 1


def read(text: str, origin: str) -> Read:
    """The rules of a file; a rule's line is the position of its profile. Raises also AHBM-F190 for profiles of several
    GPUs: which is meant is not in the file."""
    document = parse_json(text, origin)
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(profiles, list) or not all(isinstance(profile, dict) for profile in profiles):
        raise malformed(origin, 1, "no list `profiles` of objects")
    skus = dict.fromkeys(repr(profile["sku"]) for profile in profiles if profile.get("sku") is not None)
    if len(skus) > 1:
        names = ", ".join(skus)[:80]
        raise malformed(origin, 1, f"profiles for several GPUs: {names}", "keep the profiles of one of them")
    ordered = sorted(
        enumerate(profiles, 1),
        key=lambda item: (item[1].get("sku") is None) + (item[1].get("scale") is None),
    )
    rules = bounded(_rules(ordered, origin), origin)
    return Read(FORMAT.name, MSCCLPP, rules, tuple(unreached(rules, origin)))


def _rules(profiles: Sequence[tuple[int, Mapping[str, Any]]], origin: str) -> Iterator[Rule]:
    for at, profile in profiles:
        scale = profile.get("scale")
        ranks = ANY if scale is None else Span(*[_whole(scale, "scale", origin, at)] * 2)
        collectives = profile.get("collectives", {})
        if not isinstance(collectives, dict):
            raise malformed(origin, at, f"profile {at}: `collectives` is no object")
        for name, entries in collectives.items():
            entries = entries.get("configs", []) if isinstance(entries, dict) else entries
            ours = collective_of(MSCCLPP, name)
            if ours is None or not isinstance(entries, list):
                message = f"profile {at}: {name[:40]!r} is no collective with a list of configurations"
                raise malformed(origin, at, message, f"one of {', '.join(MSCCLPP.collectives.values())}")
            yield from _entries(entries, ours, ranks, origin, at)


def _entries(entries: Sequence[Any], collective: str, ranks: Span, origin: str, at: int) -> Iterator[Rule]:
    found: list[tuple[int, str, int | None, int | None]] = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("algorithm"), str):
            raise malformed(origin, at, f"profile {at}: a configuration without message_size and algorithm")
        size = _whole(entry.get("message_size"), "message_size", origin, at)
        blocks, threads = (
            None if entry.get(key) is None else _whole(entry[key], key, origin, at) for key in ("nblocks", "nthreads")
        )
        found.append((size, entry["algorithm"], blocks, threads))
    found.sort(key=lambda entry: entry[0])
    # Of entries of one size the first is found at that size, the last above it.
    starts = [entry[0] if at else 0 for at, entry in enumerate(found)]
    for (size, *_), (following, *_) in pairwise(found):
        if size == following:
            raise malformed(origin, at, f"profile {at}: two configurations of {size} bytes")
    for (_, algorithm, blocks, threads), least, most in zip(found, starts, [*starts[1:], None], strict=True):
        span = Span(least, None if most is None else most - 1)
        yield Rule(collective, algorithm, span, ranks, channels=blocks, threads=threads, line=at)


def _whole(value: object, name: str, origin: str, at: int) -> int:
    if type(value) is not int or not 0 < value < 1 << 63:
        raise malformed(origin, at, f"profile {at}: {name} is {str(value)[:40]!r}, which is no whole number above 0")
    return value


def write(rules: Rules, notes: Sequence[str] = ()) -> str:
    """A profile for each number of ranks. A range has an entry at its first and its last size: who takes the nearest
    size instead of the one below chooses the same."""
    profiles: dict[int, dict[str, list[dict[str, object]]]] = {}
    for rule in rules:
        ranks = exactly(rule.ranks)
        plain = (rule.ranks_per_node, rule.per_rank, rule.pipe_ops, rule.registered) == (ANY, False, None, None)
        if (
            rule.collective not in MSCCLPP.collectives
            or ranks is None
            or not plain
            or exactly(rule.nodes) not in (-1, 1)
        ):
            raise unwritable("MSCCL++'s tuned configuration", rule, "such calls")
        entries = profiles.setdefault(ranks, {}).setdefault(MSCCLPP.collectives[rule.collective], [])
        first = max(rule.nbytes.least, 1)
        if int(str(entries[-1]["message_size"])) + 1 != first if entries else rule.nbytes.least > 0:
            raise unwritable("MSCCL++'s tuned configuration", rule, "sizes that are left out")
        for size in dict.fromkeys([first, first if rule.nbytes.most is None else rule.nbytes.most]):
            entry: dict[str, object] = {"message_size": size, "algorithm": rule.algorithm}
            entry |= {"nblocks": rule.channels} if rule.channels is not None else {}
            entry |= {"nthreads": rule.threads} if rule.threads is not None else {}
            entries.append(entry)
    ends = {(rule.collective, rule.ranks): rule for rule in rules}
    for rule in ends.values():
        if rule.nbytes.most is not None:
            raise unwritable("MSCCL++'s tuned configuration", rule, "largest size")
    found = [({} if ranks < 0 else {"scale": ranks}) | {"collectives": named} for ranks, named in profiles.items()]
    return json.dumps({"version": VERSION, "profiles": found}, indent=2) + "\n"


FORMAT = Format("mscclpp", MSCCLPP, "mscclpp_tuned.json", lambda text: is_object(text, "profiles"), read, write)
