"""Source lines below the findings that name them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ahbm.cli.excerpts import MOST, Excerpts
from support.commands import run

KERNEL = """
def kernel_args(world_size, n_elem, *, cube_w, cube_h):
    return (n_elem,)


def kernel(t_ptr, n_elem, sip_rank, kind, w, h, *, tl):
    tl.{}
"""
WRONG = 'recv(dir="Q", shape=(n_elem,), dtype="f16")'


def kernel(folder: Path, body: str = WRONG) -> None:
    (folder / "algorithms").mkdir()
    (folder / "algorithms/mine.py").write_text(KERNEL.format(body), encoding="utf-8")


def test_a_kernel_s_line_is_shown_below_the_error(tmp_path: Path) -> None:
    kernel(tmp_path)
    code, _, err = run("ahbm", ["run", "all_reduce", "-a", "mine"], tmp_path)
    lines = err.splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith("[mine.py:7]"))
    assert code == 5 and lines[at + 1] == f"    7 |     tl.{WRONG}"
    assert lines[at + 2] == "      |     " + "^" * len(f"tl.{WRONG}")
    code, out, err = run("ahbm", ["run", "all_reduce", "-a", "mine", "--json"], tmp_path)
    site = json.loads(err)["findings"][0]["sites"][0]
    assert "^" not in out + err and (site["file"], site["line"], site["origin"]) == ("mine.py", 7, "mine.py:7")


@pytest.mark.parametrize(
    ("line", "told", "marked"),
    [
        ('acc = acc + tl.recv(dir="W", shape=(n,))', 'waits in recv(dir="W") f16[8]', ['tl.recv(dir="W", shape=(n,))']),
        ('tl.send(dir="W", src=tl.load(p))', "load of", ["tl.load(p)"]),
        ('tl.send(dir="W", src=tl.load(p))', "waits in send of", ['tl.send(dir="W", src=tl.load(p))']),
        ("tl.store(p, x + y * z)", "mul f16[8]", ["y * z"]),
        ("x = tl.recv(a) if c else tl.recv(b)", "recv", ["tl.recv(a)", "tl.recv(b)"]),
        ("größe = tl.load(p)  # ä", "", ["tl.load(p)"]),
        ("\tx = tl.exp(y)", "exp", ["tl.exp(y)"]),
        ("x = tl.exp(tl.log(y))", "of something else", ["x = tl.exp(tl.log(y))"]),
        ("for _ in range(4):", "", ["for _ in range(4):"]),
    ],
)
def test_the_call_that_is_meant_is_marked(line: str, told: str, marked: list[str], tmp_path: Path) -> None:
    indent, rest = ("", line) if not line.startswith("\t") else ("\t", line[1:])
    body = f"if 1:\n{indent}{rest}\n" if indent else f"{rest}\n"
    (tmp_path / "k.py").write_text(
        f"# {tmp_path}\n{body}{'    pass' if rest.endswith(':') else ''}\n", encoding="utf-8"
    )
    number = 3 if indent else 2
    _, shown, marks = Excerpts().below(f"  {told}  [{tmp_path}/k.py:{number}]").split("\n")
    under = "".join(c if mark == "^" else "\0" for c, mark in zip(shown, marks.ljust(len(shown)), strict=True))
    assert [part for part in under.split("\0") if part] == marked


def test_a_file_that_is_no_python_is_marked_by_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("tl.load(p\n  x = (\n", encoding="utf-8")
    assert Excerpts().below(f"load  [{tmp_path}/k.py:1]").endswith("^" * len("tl.load(p"))


def test_of_a_long_line_the_first_word_is_marked(tmp_path: Path) -> None:
    (tmp_path / "plan.xml").write_text(f'<algo>\n    <step s="0" type="send" {"x" * 90}/>\n', encoding="utf-8")
    _, line, marks = Excerpts().below(f"  plan  [{tmp_path}/plan.xml:2]").split("\n")
    assert line.endswith("x") and marks.strip("| ") == "^^^^^" and marks.index("^") == line.index("<")


def test_a_line_is_shown_once_and_a_command_shows_few(tmp_path: Path) -> None:
    kernel(tmp_path, 'send(dir="W", src=tl.load(t_ptr, shape=(n_elem,), dtype="f16"))')
    code, out, _ = run("ahbm", ["check", "-a", "mine", "-t", "npu_ring_8"], tmp_path)
    assert code and out.count("[mine.py:7]") == 1 and out.count(" 7 |     tl.send") == 1
    (tmp_path / "t.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    place = f"{tmp_path}/t.txt"
    assert Excerpts().below(f"a  [{place}:1]\nb  [{place}:1]").count("1 | one") == 1
    fused = Excerpts().below(f"a  [{place}:1 (rank=1) and (rank=2), fused with {place}:3]")
    assert "1 | one" in fused and "3 | three" in fused and "2 |" not in fused
    for number in range(9):
        (tmp_path / f"{number}.xml").write_text("\n<algo\n", encoding="utf-8")
    text = "\n".join(f"  plan  [{tmp_path}/{number}.xml:2]" for number in range(9))
    assert Excerpts().below(text).count("^^^^^") == MOST


def test_files_of_other_kinds_are_shown(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("system:\n  sips:\n    count: x\n", encoding="utf-8")
    (tmp_path / "plan.xml").write_text("<algo>\n  </gpu>\n", encoding="utf-8")
    assert "    3 |     count: x\n      |     ^^^^^^^^" in run("ahbm", ["topology", "t.yaml"], tmp_path)[2]
    assert "2 |   </gpu>" in run("ahbm", ["check", "plan.xml"], tmp_path)[1]


@pytest.mark.parametrize(
    "content", [b"", b"one\n", b"one\n\n", b"one\n\xff\xfe\n", b"one\n\x1b[2J\x1b[31m\r\x07\n", b"one\n" + b"x" * 10**6]
)
def test_what_cannot_be_shown_is_left_out(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "f.xml"
    file.write_bytes(content)
    for name in (str(file), str(tmp_path), f"{tmp_path}/absent.xml", "f.py", "\x00.xml"):
        for line in ("2", "0", "999999999"):
            shown = Excerpts().below(f"  plan  [{name}:{line}]")
            assert "\x1b" not in shown and max(map(len, shown.split("\n"))) < 200


def test_files_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    kernel(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.py").write_text("\n" * 6 + "nothing_to_do_with_it = 1\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text("\n" * 6 + "nothing_either = 1\n", encoding="utf-8")
    err = run("ahbm", ["run", "all_reduce", "-a", "algorithms/mine.py"], tmp_path)[2]
    assert f"7 |     tl.{WRONG}" in err and "nothing" not in err
