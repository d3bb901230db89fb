"""Tuning files: what is written means, by the rules of its library, what was chosen; and is read back to it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from ahbm.base.rules import Query, Rule, Rules, Span
from ahbm.choose.evaluation import evaluate
from ahbm.choose.formats import FORMATS, nccl_sweep, read
from ahbm.choose.names import ALGORITHMS, PROTOCOLS
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError, BudgetError, FormatError, UnsupportedError
from support import tuners
from support.tuners import Called

CALLS = 10_000
RANKS = (2, 3, 8, 16, 24)
WRITTEN = tuple(tuners.READERS)


def rules_of(name: str, draw: random.Random) -> Rules:
    """Rules that cover all sizes of some collectives at some numbers of ranks."""
    library = FORMATS[name].library
    found = []
    for collective in draw.sample(sorted(library.collectives), min(2, len(library.collectives))):
        known = (library.algorithms or {}).get(collective) or dict.fromkeys(["a", "b", "c", "some_plan"], "")
        for ranks in draw.sample(RANKS, 3):
            borders = sorted({draw.randrange(1, 1 << draw.randrange(6, 40)) * ranks for _ in range(draw.randrange(5))})
            for least, most in zip([0, *borders], [*borders, None], strict=True):
                rule = Rule(collective, draw.choice(list(known)), Span(least, None if most is None else most - 1))
                rule = replace(rule, ranks=Span(ranks, ranks), nodes=Span(1, 1))
                if name.startswith("nccl"):
                    rule = replace(rule, protocol=draw.choice(PROTOCOLS), channels=draw.randrange(1, 33))
                if name == "mscclpp":
                    rule = replace(rule, channels=draw.randrange(1, 33), threads=512)
                found.append(rule)
    return Rules(tuple(found))


def calls_of(rules: Rules, draw: random.Random, count: int) -> list[Called]:
    """Calls near borders and anywhere, of collectives and ranks with rules and without."""
    found = []
    for _ in range(count):
        rule = draw.choice(rules.rules)
        near = draw.choice([rule.nbytes.least, rule.nbytes.most or 1 << 41]) + draw.randrange(-2, 3)
        size = max(near if draw.random() < 0.5 else draw.randrange(1, 1 << draw.randrange(1, 42)), 1)
        ranks = rule.ranks.least if draw.random() < 0.9 else draw.choice(RANKS)
        collective = rule.collective if draw.random() < 0.9 else draw.choice(["all_reduce", "all_gather", "broadcast"])
        found.append(Called(collective, size, ranks))
    return found


def asked(rules: Rules, call: Called) -> tuners.Chosen:
    rule = rules.choose(Query(call.collective, call.nbytes, call.ranks, call.nodes))
    return None if rule is None else (rule.algorithm, rule.protocol, rule.channels)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_means_by_the_library_s_rules_what_was_chosen(name: str, tmp_path: Path) -> None:
    draw, file = random.Random(f"tuning {name}"), tmp_path / FORMATS[name].file
    for _ in range(20):
        rules = rules_of(name, draw)
        text = FORMATS[name].write(rules, ["a note", "long " * 200])
        file.write_text(text)
        back = read(file)
        assert back.format == name
        for call in calls_of(rules, draw, CALLS // 20):
            chosen = asked(rules, call)
            if name in ("ucc", "ccl"):
                chosen = chosen and (chosen[0], None, None)
            assert tuners.READERS[name](text, call) == chosen, call
            assert asked(back.rules, call) == chosen, call


def test_who_takes_the_nearest_size_of_mscclpp_chooses_the_same() -> None:
    draw = random.Random(7)
    rules = rules_of("mscclpp", draw)
    text = FORMATS["mscclpp"].write(rules, [])
    for call in calls_of(rules, draw, 1000):
        if (chosen := asked(rules, call)) is not None:
            assert tuners.mscclpp_nearest(text, call) == chosen, call


@pytest.mark.parametrize("name", WRITTEN)
def test_the_comparison_notices_a_rule_that_is_changed(name: str, tmp_path: Path) -> None:
    """Planted: the same check with another algorithm in the widest rule."""
    draw, file = random.Random(f"planted {name}"), tmp_path / "file"
    rules = rules_of(name, draw)
    at = max(range(len(rules)), key=lambda at: rules.rules[at].nbytes.most or 1 << 50)
    planted = list(rules.rules)
    known = (FORMATS[name].library.algorithms or {}).get(planted[at].collective) or {"a": "", "b": ""}
    others = [one for one in known if one != planted[at].algorithm]
    knob = {"algorithm": others[0]} if others else {"channels": (planted[at].channels or 0) + 1}
    planted[at] = replace(planted[at], **knob)
    file.write_text(FORMATS[name].write(Rules(tuple(planted)), []))
    calls, back = calls_of(rules, draw, 500), read(file, name).rules
    assert any(asked(back, call) != asked(rules, call) for call in calls)


@pytest.mark.parametrize(
    ("text", "fields"),
    [("[1,8]", (1, 8)), ("(1,8)", (2, 7)), ("(,4]", (0, 4)), ("[2,)", (2, None)), ("*", (0, None)), ("5", (5, 5))],
)
def test_intervals_of_ncclx(text: str, fields: tuple[int, int | None], tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(f"allreduce,{text},ring,simple,-1,*,*\n")
    found = read(file)
    assert found.format == "ncclx-csv"
    assert found.rules.rules[0].nbytes == Span(*fields)
    call = Called("all_reduce", 8 * 5, 8)
    assert tuners.ncclx_csv(file.read_text(), call) == asked(found.rules, call)


def test_ncclx_takes_a_chunk_size_in_the_short_and_in_the_long_form(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("allgather,*,ring,ll128,4,2,8,4096\nallreduce,*,ring,ll128,4,2,8,1,0,8192\n")
    first, second = read(file).rules
    assert (first.chunk_bytes, second.chunk_bytes, second.pipe_ops, second.registered) == (4096, 8192, 1, False)
    file.write_text("allgather,*,ring,ll128,4,2,8,1,0\n")
    with pytest.raises(FormatError, match="9 fields"):
        read(file, "ncclx-csv")


def test_of_ucc_the_higher_score_holds_and_at_a_shared_border_the_upper_range(tmp_path: Path) -> None:
    file = tmp_path / "ucc.conf"
    value = "allreduce:0-4K:inf:@knomial#allreduce:4K-inf:inf:@sra_knomial#allreduce:1K-2K:5:@dbt"
    file.write_text(f"# comment\nexport UCC_TL_UCP_TUNE='{value}'\n")
    rules = read(file).rules
    sizes = {1500: "knomial", 4095: "knomial", 4096: "sra_knomial", 1 << 40: "sra_knomial"}
    assert {size: rules.choose(Query("all_reduce", size, 8)).algorithm for size in sizes} == sizes  # type: ignore[union-attr]
    assert rules.choose(Query("all_gather", 64, 8)) is None


def test_a_profile_of_mscclpp_that_says_more_is_asked_first(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    entry = '{"message_size": 1024, "algorithm": "%s"}'
    general = '{"collectives": {"allreduce": [%s]}}' % (entry % "anywhere")
    of_eight = '{"scale": 8, "collectives": {"allreduce": [%s]}}' % (entry % "of_eight")
    file.write_text(f'{{"version": 1, "profiles": [{general}, {of_eight}]}}')
    rules = read(file).rules
    for ranks, name in ((8, "of_eight"), (4, "anywhere")):
        rule = rules.choose(Query("all_reduce", 1, ranks))
        assert rule is not None
        assert rule.algorithm == name


def test_a_sweep_of_nccl_s_tuner_is_its_winners(tmp_path: Path) -> None:
    head = ",".join(nccl_sweep.COLUMNS)
    rows = ["1024,ring,simple,9.0", "1024,tree,simple,7.0", "4096,ring,ll,8.0", "4096,tree,ll,8.5"]
    lines = [
        f"allreduce,{size},{algorithm},{protocol},4,1,8,-1,-1,{cost},1.0,{cost}"
        for size, algorithm, protocol, cost in (row.split(",") for row in rows)
    ]
    file = tmp_path / "sweep.csv"
    file.write_text("\n".join([head, *lines]))
    found = read(file)
    assert found.format == "nccl-sweep"
    chosen = {size: found.rules.choose(Query("all_reduce", size, 8)) for size in (8, 1024, 2055, 2056, 1 << 30)}
    assert {size: rule and rule.algorithm for size, rule in chosen.items()} == {
        8: "tree",
        1024: "tree",
        2055: "tree",
        2056: "ring",
        1 << 30: "ring",
    }


HOSTILE: list[tuple[str, str]] = [
    ("nccl", "allreduce,0,64K,ring,simple,1,1,8"),
    ("nccl", "allreduce,0,64"),
    ("nccl", "allreduce,0,-2,ring,simple,1,1,8"),
    ("nccl", f"allreduce,0,{'9' * 30},ring,simple,1,1,8"),
    ("nccl", "allreduce,0,64,ring,simple,x,1,8"),
    ("nccl-sweep", "collective,size_bytes\n1,2"),
    ("nccl-sweep", ",".join(["size_bytes"] * 12)),
    ("ncclx-csv", "allreduce,[2,1],ring,simple,-1,*,*"),
    ("ncclx-csv", "allreduce,[[[[,ring,simple,-1,*,*"),
    ("ncclx-csv", "allreduce,*,ring,fast,-1,*,*"),
    ("ncclx-csv", "allreduce,*,ring,ll,-1,*,*,-5"),
    ("ncclx-json", '{"rules": [3]}'),
    ("ncclx-json", '{"rules": [{"filter": {"collective": ["x"]}, "config": {}}]}'),
    ("ncclx-json", '{"rules": {}}'),
    ("ncclx-json", "[" * 100_000),
    ("ncclx-json", f'{{"rules": [{{"filter": {{"collective": "reduce", "nNodes": {"9" * 400}}}, "config": {{}}}}]}}'),
    ("ncclx-json", "9" * 5000),
    ("mscclpp", '{"profiles": [1]}'),
    ("mscclpp", '{"profiles": [{"scale": -1}]}'),
    ("mscclpp", '{"profiles": [{"collectives": {"allreduce": [{"message_size": 1e400, "algorithm": "a"}]}}]}'),
    ("mscclpp", '{"profiles": [{"sku": "A100"}, {"sku": "H100"}]}'),
    ("mscclpp", '{"profiles": [{"collectives": {"dance": []}}]}'),
    ("ucc", "UCC_TL_UCP_TUNE=allreduce:0-4K"),
    ("ucc", "UCC_TL_UCP_TUNE=allreduce:4K:@ring"),
    ("ucc", "UCC_TL_UCP_TUNE=allreduce:[8:@knomial"),
    ("ucc", "UCC_TL_UCP_TUNE=allreduce:host:@knomial#allreduce:cuda:@dbt"),
    ("ucc", "UCC_TL_NCCL_TUNE=inf"),
    ("ccl", "collectives: {all_reduce: [{max_bytes: -1, algorithm: a}]}"),
    ("ccl", "collectives: {all_reduce: [{max_bytes: 5}]}"),
    ("ccl", "collectives: {dance: ring}"),
    ("ccl", "algorithms: {}"),
    ("ccl", "collectives: [" * 2000),
]


@pytest.mark.parametrize(("name", "text"), HOSTILE)
def test_what_is_no_rule_is_an_error_with_file_and_line(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    file.write_text(text)
    with pytest.raises(AhbmError) as caught:
        read(file, name)
    assert caught.value.code in ("AHBM-F190", "AHBM-C102")
    assert "file.txt" in str(caught.value)


@pytest.mark.parametrize("seed", range(200))
def test_a_file_with_a_bit_of_it_changed_is_read_or_refused(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    name = WRITTEN[seed % len(WRITTEN)]
    text = list(FORMATS[name].write(rules_of(name, draw), []))
    for _ in range(draw.randrange(1, 6)):
        text[draw.randrange(len(text))] = draw.choice('0,-[](){}":#@\n\x00éx9 \t')
    file = tmp_path / "file"
    file.write_text("".join(text))
    for format in (name, None):
        try:
            found = read(file, format)
        except AhbmError:
            continue
        found.rules.choose(Query("all_reduce", 1 << 20, 8))


def test_long_files_and_wrong_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "many.csv"
    file.write_text("allreduce,0,64,ring,simple,1,1,8\n" * 5000)
    with pytest.raises(BudgetError, match="AHBM-B214"):
        read(file)
    with (tmp_path / "huge.csv").open("wb") as huge:
        huge.truncate(1 << 25)
    with pytest.raises(FormatError, match="AHBM-F101"):
        read(tmp_path / "huge.csv")
    (tmp_path / "notes.txt").write_text("nothing of this is a rule\n")
    with pytest.raises(FormatError, match="AHBM-F189"):
        read(tmp_path / "notes.txt")
    with pytest.raises(FormatError, match="AHBM-F189"):
        read(file, "ncl")


def test_a_rule_that_a_format_cannot_express_is_refused() -> None:
    inside = Rule("all_reduce", "ring", Span(0, 9), Span(8, 8), Span(1, 1), protocol="ll", channels=1)
    for name, rule in (
        ("ncclx-csv", inside),
        ("nccl", replace(inside, protocol=None)),
        ("nccl", replace(inside, collective="all_to_all")),
        ("ucc", replace(inside, registered=True)),
        ("mscclpp", replace(inside, nbytes=Span(5, None))),
        ("mscclpp", inside),
        ("ccl", replace(inside, nbytes=Span(5, None))),
        ("nccl-sweep", inside),
    ):
        with pytest.raises(UnsupportedError, match="AHBM-U292"):
            FORMATS[name].write(Rules((rule,)), [])


def test_a_rule_that_no_call_reaches_is_named_with_the_line_that_takes_its_calls(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("allreduce,*,ring,ll128,4,*,*\nallreduce,[0,64],ring,ll,4,1,8\n")
    (finding,) = read(file).findings
    assert finding.code == "AHBM-F198"
    assert [site.origin.rpartition(":")[2] for site in finding.sites] == ["2", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "UCC_TL_UCP_TUNE=allreduce:5:@knomial#allreduce:0-4K:4:@sra_knomial",
        "collectives: {all_reduce: [{max_bytes: 64, algorithm: a}, {max_bytes: 32, algorithm: b}]}",
        '{"profiles": [{"scale": 8, "collectives": {"allreduce": [{"message_size": 64, "algorithm": "a"}]}}, '
        '{"scale": 8, "collectives": {"allreduce": [{"message_size": 32, "algorithm": "b"}]}}]}',
    ],
)
def test_every_format_names_rules_that_no_call_reaches(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text(text)
    assert [finding.code for finding in read(file).findings] == ["AHBM-F198"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("allreduce,100,10,tree,simple,2,-1,-1", "100 to 10 bytes"),
        ("allreduce,(64,65),ring,ll,4,*,*", "65 to 64 bytes"),
        ("UCC_TL_UCP_TUNE=allreduce:4K-1K:@knomial:[2-8]", "4096 to 1024 bytes"),
        ("UCC_TL_UCP_TUNE=allreduce:@knomial:[8-2]", "8 to 2 ranks"),
    ],
)
def test_a_rule_with_an_empty_range_is_one_that_no_call_reaches(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(f"{text}\n")
    (finding,) = (finding for finding in read(file).findings if finding.code != "AHBM-F196")
    assert (finding.code, finding.sites[0].origin) == ("AHBM-F198", f"{file}:1")
    assert told in finding.message


TRAPS: dict[str, tuple[str, int]] = {
    "AHBM-F191": ("allreduce,0,18446744073709551615,ring,simple,-1,1,8", 1),
    "AHBM-F192": ("allreduce,0,64,ring,simple,4,1,8\nallreduce,128,18446744073709551615,tree,simple,4,1,8", 2),
    "AHBM-F193": ("allreduce,0,18446744073709551615,rings,simple,4,1,8", 1),
    "AHBM-F194": (f"# {'x' * 300}\nallreduce,0,18446744073709551615,ring,simple,4,1,8", 1),
    "AHBM-F195": ("allreduce,0,4294967295,ring,simple,4,1,8", 1),
    "AHBM-F196": ("allreduce,0,18446744073709551615,ring,simple,4,1,8", 1),
    "AHBM-F197": ("\nallreduce,0,18446744073709551615,ring,ll,4,1,8", 2),
    "AHBM-F200": ("allreduce,0,18446744073709551615,nvls_tree,ll128,4,2,16", 1),
}
SAFE = "".join(
    f"{name},0,18446744073709551615,ring,simple,4,-1,-1\n"
    for name in ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
)


@pytest.mark.parametrize("code", TRAPS)
def test_each_trap_of_nccl_s_file_is_found_where_it_is(code: str, tmp_path: Path) -> None:
    text, line = TRAPS[code]
    file = tmp_path / "nccl.csv"
    file.write_text(f"{text}\n")
    found = {finding.code: finding for finding in read(file).findings}
    # That NCCL's model decides the other collectives is true of all of them.
    assert set(found) == {code, "AHBM-F196"}
    assert found[code].sites[0].origin == f"{file}:{line}"
    assert found[code].hint


@pytest.mark.parametrize(
    ("line", "never"),
    [
        ("allreduce,0,64,nvls_tree,simple,4,2,16", False),
        ("allreduce,0,64,nvls_tree,simple,4,-1,-1", False),
        ("allreduce,0,64,nvls_tree,simple,4,1,16", True),
        ("allreduce,0,64,collnet_direct,simple,4,1,16", True),
        ("allreduce,0,64,nvls,ll,4,1,8", True),
        ("allgather,0,64,pat,simple,4,8,8", False),
        ("allgather,0,64,pat,simple,4,2,16", True),
        ("allgather,0,64,pat,simple,4,-1,16", False),
        ("allgather,[0,64],pat,simple,4,*,1", False),
        ("allgather,[0,64],pat,simple,4,*,[2,8]", True),
        ("allreduce,[0,64],nvls_tree,simple,4,1,*", True),
    ],
)
def test_what_nccl_cannot_run_is_passed_over(line: str, never: bool, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(f"{line}\n{line}\n")
    found = {finding.code: finding for finding in reversed(read(file).findings)}
    assert ("AHBM-F200" in found) == never
    # It takes no calls from the lines behind it.
    assert ("AHBM-F198" in found) != never
    if never:
        assert found["AHBM-F200"].sites[0].origin == f"{file}:1" and "passed over" in found["AHBM-F200"].message


GATHERED = "ring collnet_direct nvls pat"
HAS = {
    "allreduce": "tree ring collnet_direct collnet_chain nvls nvls_tree",
    "allgather": GATHERED,
    "reducescatter": GATHERED,
    "broadcast": "ring",
    "reduce": "ring",
}
"""NVIDIA/nccl, src/graph/tuning.cc at 5067397c: the pairs that `ncclTopoTuneModel` gives a bandwidth."""
NEVER = [(name, algorithm) for name in HAS for algorithm in ALGORITHMS if algorithm not in HAS[name].split()]


@pytest.mark.parametrize("name", HAS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_that_nccl_has_not_for_a_collective_is_passed_over(
    name: str, algorithm: str, tmp_path: Path
) -> None:
    assert len(NEVER) == 19
    sweep = f"{name},1024,{algorithm},simple,4,8,8,-1,-1,9.0,1.0,9.0"
    for text in (
        f"{name},0,64,{algorithm},simple,4,8,8",
        f"{name},[0,64],{algorithm},simple,4,8,1",
        f"{','.join(nccl_sweep.COLUMNS)}\n{sweep}",
    ):
        file = tmp_path / "x.csv"
        file.write_text(text)
        found = [finding for finding in read(file).findings if finding.code == "AHBM-F200"]
        assert len(found) == ((name, algorithm) in NEVER)
        assert all(f"for {name}, not {algorithm}: the line is passed over" in finding.message for finding in found)


@pytest.mark.parametrize(("name", "algorithm"), [("reduce", "tree"), ("allgather", "tree"), ("allreduce", "pat")])
def test_nobody_says_that_nccl_runs_what_it_has_not(name: str, algorithm: str, tmp_path: Path) -> None:
    """And a line behind it holds, as in NCCL."""
    file = tmp_path / "x.csv"
    file.write_text("".join(f"{name},0,18446744073709551615,{one},simple,8,-1,-1\n" for one in (algorithm, "ring")))
    found = evaluate(file, [load_machine("npu_ring_8")], [1 << 13])
    assert list(found.stands) == ["ring"] and not found.without
    assert "NCCL runs it" not in "\n".join(found.lines())
    assert [one.code for one in found.read.findings] == ["AHBM-F200", "AHBM-F196"]


def test_a_file_for_every_call_has_none_of_the_traps(tmp_path: Path) -> None:
    file = tmp_path / "nccl.csv"
    file.write_text(SAFE)
    assert read(file).findings == ()


def test_a_line_that_is_cut_is_read_as_the_plugin_reads_it(tmp_path: Path) -> None:
    """The rest of a comment is a line of its own, which holds."""
    file = tmp_path / "nccl.csv"
    file.write_text(f"# {'x' * 253}allreduce,0,64,tree,ll,2,-1,-1\nallreduce,0,64,ring,simple,4,-1,-1\n")
    rule = read(file).rules.choose(Query("all_reduce", 64, 8))
    assert rule is not None
    assert (rule.algorithm, rule.channels) == ("tree", 2)


def test_every_algorithm_of_nccl_has_a_place_in_its_table() -> None:
    library = FORMATS["nccl"].library
    assert {name for known in (library.algorithms or {}).values() for name in known} <= set(ALGORITHMS)


def test_each_format_is_known_by_its_content(tmp_path: Path) -> None:
    for name in WRITTEN:
        file = tmp_path / "any"
        file.write_text(FORMATS[name].write(rules_of(name, random.Random(name)), []))
        assert read(file).format == name
