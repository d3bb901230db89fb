"""`ahbm view`: who is answered, what is run, and what a browser shows of it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ahbm.cli import app
from ahbm.errors import ConfigError
from ahbm.views import live
from support.browser import CHROMIUM, CONTRASTS, browser

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")
from ahbm.views import server  # noqa: E402

TOKEN = "a-token-of-the-test"
SOURCE = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n_elem, n_sips, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    right, left = (tl.peer(sip=(sip_rank + step) % n_sips) for step in (1, -1))
    acc = current = tl.load(t_ptr, shape=(n_elem,), dtype=dtype)
    for _ in range(n_sips - 1):
        tl.send(dir=right, src=current)
        current = tl.recv(dir=left, shape=(n_elem,), dtype=dtype)
        acc = acc + current
    tl.store(t_ptr, acc)
"""
EVIL = "<img src=x onerror=document.body.dataset.hacked=1>.py"


@dataclass
class Served:
    """A server in a thread, and the folder that it shows."""

    port: int
    folder: Path
    bench: live.Bench

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and answer; with the token unless headers say otherwise."""
        given = {"X-AHBM-Token": TOKEN, "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, data, {k: v for k, v in given.items() if v})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert "default-src 'none'" in answer.getheader("Content-Security-Policy", "") or answer.status == 404
        return answer.status, json.loads(text) if text.startswith("{") else text


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("view")
    (folder / "mine.py").write_text(SOURCE, encoding="utf-8")
    (folder / EVIL).write_text(SOURCE, encoding="utf-8")
    (folder / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "notes.py").write_text("print('no algorithm')", encoding="utf-8")
    bench = live.Bench(live.found_in(folder, "all_reduce", "npu_torus_4x4"), topology="npu_torus_4x4")
    listener = server.listening("127.0.0.1", 0)
    port = listener.getsockname()[1]
    config = uvicorn.Config(server.application(bench, TOKEN, port), log_level="error", lifespan="off")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield Served(port, folder, bench)
    running.should_exit = True
    thread.join(20)


def number(served: Served, name: str) -> int:
    return [item.name for item in served.bench.items].index(name)


def test_nobody_is_answered_without_the_token(served: Served) -> None:
    for path in ("/", "/api/state", "/api/stamp/0", "/api/source/0"):
        for token in ("", "wrong", TOKEN + "x", "é"):
            status, text = served.ask(path, X_AHBM_Token=token)
            assert status == 403 and TOKEN not in str(text), (path, token)
    assert served.ask("/api/run", {}, X_AHBM_Token="")[0] == 403
    # The token in the address is for the page alone: another site could make a browser ask for the rest.
    assert served.ask(f"/api/state?token={TOKEN}", X_AHBM_Token="")[0] == 403
    assert served.ask(f"/?token={TOKEN}", X_AHBM_Token="")[0] == 200


def test_another_host_and_another_site_are_refused(served: Served) -> None:
    for host in ("evil.example", f"evil.example:{served.port}", f"127.0.0.1:{served.port + 1}", "127.0.0.1"):
        assert served.ask("/api/state", Host=host)[0] == 421, host
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{served.port + 1}", "https://localhost"):
        assert served.ask("/api/state", Origin=origin)[0] == 403, origin
    assert served.ask("/api/state", Origin=f"http://127.0.0.1:{served.port}")[0] == 200


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.7", "example.com", "", "127.0.0.1.example.com", "::ffff:8.8.8.8"]
)
def test_only_a_loopback_address_is_listened_on(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server.listening(host, 0)
    assert caught.value.code == "AHBM-C146"
    bad = CliRunner().invoke(app, ["view", "--host", host])
    assert isinstance(bad.exception, ConfigError) and bad.exception.code == "AHBM-C146"


def test_a_client_names_no_paths(served: Served) -> None:
    for item in ("../secret.txt", "0/../../secret.txt", "%2e%2e%2fsecret.txt", "secret.txt", "-1"):
        assert served.ask(f"/api/source/{item}")[0] == 404, item
    assert served.ask("/api/source/99999")[0] == 400
    for item in ("mine.py", -1, 10**30, True, None, [0], 1.5):
        status, answer = served.ask("/api/run", {"item": item})
        assert (status, answer["error"]["code"]) == (200, "AHBM-C129"), item
    packaged = number(served, "ring_allreduce")
    assert served.ask(f"/api/source/{packaged}")[0] == 400, "what comes with the package is not edited"
    assert [item.name for item in served.bench.items if item.kind == "module"] == sorted(["mine.py", EVIL])


def test_what_is_too_much_or_no_number_is_refused(served: Served) -> None:
    item = number(served, "mine.py")
    assert served.ask("/api/run", b"x" * (server.MOST_BODY + 1))[0] == 413
    assert served.ask("/api/run", b"[" * 100_000)[0] == 400
    assert served.ask("/api/run", b"[]")[0] == 400
    assert served.ask("/api/run", b"{}", Content_Type="text/plain")[0] == 415
    assert served.ask(f"/api/source/{item}", {"text": "x" * (live.MOST_TEXT + 1)})[0] == 400
    for change in (
        {"size": 1 << 40},
        {"size": -4},
        {"bandwidth": 0},
        {"bandwidth": "1e3"},
        {"latency": -1},
        {"slots": 1e9},
    ):
        _, answer = served.ask("/api/run", {"item": item, **change})
        assert answer["error"]["code"] == "AHBM-C129", change
    _, answer = served.ask("/api/run", b'{"item": 0, "bandwidth": NaN}')
    assert answer["error"]["code"] == "AHBM-C129"
    assert (served.folder / "mine.py").read_text(encoding="utf-8") == SOURCE


def test_sliders_run_the_emulator_again(served: Served) -> None:
    """With the numbers of `ahbm run`."""
    item = number(served, "mine.py")
    _, state = served.ask("/api/state")
    assert state["values"] == {"bandwidth": 50.0, "latency": 500.0, "slots": 4.0}
    found = {}
    for change in ({}, {"bandwidth": 100}, {"latency": 0}, {"slots": 1}, {"size": 1024}):
        _, answer = served.ask("/api/run", {"item": item, **change})
        found[str(change)] = answer["latency_ps"]
        assert answer["picture"]["latency"] == answer["latency_ps"]
    assert len(set(found.values())) >= 4
    terms = ["-t", "npu_torus_4x4", "-a", str(served.folder / "mine.py"), "--size", "64K", "--json"]
    for change, words in (({}, []), ({"bandwidth": 100}, ["--set", f"{live.LINK}=100"])):
        done = CliRunner().invoke(app, ["run", "all_reduce", *terms, *words])
        assert round(1000 * json.loads(done.stdout)["latency_ns"]) == found[str(change)]


def test_what_is_saved_is_run_and_errors_are_at_their_lines(served: Served) -> None:
    item = number(served, "mine.py")
    path = served.folder / "mine.py"
    try:
        _, answer = served.ask(f"/api/source/{item}", {"text": SOURCE.replace("acc + current", "current")})
        assert "The result is wrong" in " ".join(answer["told"])
        _, answer = served.ask(f"/api/source/{item}", {"text": SOURCE.replace("tl.store(", "tl.stor(")})
        line = SOURCE.splitlines().index("    tl.store(t_ptr, acc)") + 1
        assert {"file": "mine.py", "line": line} in answer["error"]["lines"] and "did you mean store" in answer[
            "error"
        ]["text"]
        _, answer = served.ask(f"/api/source/{item}", {"text": SOURCE + "\nx = (\n"})
        assert answer["error"]["lines"] and "never closed" in answer["error"]["text"]
        before = served.ask(f"/api/stamp/{item}")[1]
        _, answer = served.ask(f"/api/source/{item}", {"text": SOURCE})
        assert "The result is right." in answer["told"] and path.read_text(encoding="utf-8") == SOURCE
        assert served.ask(f"/api/stamp/{item}")[1] != before
    finally:
        path.write_text(SOURCE, encoding="utf-8")


def test_an_element_s_provenance_is_that_of_inspect(served: Served) -> None:
    item = number(served, "mine.py")
    _, answer = served.ask("/api/origin", {"item": item, "rank": 3, "element": 5, "size": 1024})
    words = ["inspect", "all_reduce", "-t", "npu_torus_4x4", "-a", str(served.folder / "mine.py"), "--size", "1K"]
    told = json.loads(CliRunner().invoke(app, [*words, "--element", "3:5", "--json"]).stdout)
    assert answer["told"].startswith(f"element 5 of rank 3 = {told['value']}: rank 0 + rank 1 + ")
    assert [step["at"] for step in answer["steps"]] == sorted((step["at"] for step in answer["steps"]), reverse=True)
    store = answer["steps"][0]
    assert store["rank"] == 3 and store["text"].startswith("store") and "(mine.py:" in store["text"]
    # Its way led through most of the ring.
    assert {0, 2, 3} < {step["rank"] for step in answer["steps"]} <= set(range(16))
    for bad in ({"rank": -1}, {"rank": "0"}, {"element": 1.5}, {"rank": 16}, {"element": 1 << 30}, {"element": None}):
        _, answer = served.ask("/api/origin", {"item": item, "rank": 0, "element": 0, "size": 1024, **bad})
        assert answer["error"]["code"].startswith("AHBM-"), bad


def test_a_sweep_tells_each_time_as_it_comes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert served.ask("/api/sweep", {"bandwidth": -1})[0] == 400
    monkeypatch.setattr(live, "SWEPT", (1024, 4096))
    _, begun = served.ask("/api/sweep", {"bandwidth": 100})
    modules = [item for item in served.bench.items if item.kind != "target"]
    assert begun["cases"] == 2 * len(modules)
    until, seen = time.monotonic() + 60, [begun]
    while len(seen[-1]["rows"]) < begun["cases"] and time.monotonic() < until:
        seen.append(served.ask("/api/sweep")[1])
    rows = seen[-1]["rows"]
    assert len(rows) == begun["cases"] and any(0 < len(state["rows"]) < len(rows) for state in seen)
    (mine,) = (row for row in rows if (row["name"], row["size"]) == ("mine.py", 4096))
    words = ["run", "all_reduce", "-t", "npu_torus_4x4", "-a", str(served.folder / "mine.py"), "--size", "4K"]
    done = CliRunner().invoke(app, [*words, "--set", f"{live.LINK}=100", "--no-data", "--json"])
    assert mine["ps"] == round(1000 * json.loads(done.stdout)["latency_ns"])
    assert all(("ps" in row) != ("code" in row) for row in rows)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("def kernel(t_ptr, *, tl):", "module"),
        ("def work(t_ptr, *, tl):\n    pass\n\nkernel = work\n", "module"),
        ("def work(t_ptr, *, tl:\n\nkernel = work\n", "module"),
        ("from mine import work as kernel, kernel_args\n", "module"),
        ("import sys\nprint(sys.argv)\n", "target"),
        ("def helper():\n    kernel = 3\n", "target"),
    ],
)
def test_a_module_is_told_by_its_kernel_whatever_the_function_is_called(text: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    (item,) = live.found_in(tmp_path / "mine.py", "all_reduce", None)
    assert item.kind == kind


def test_a_new_algorithm_is_shown_with_its_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "mine"]).exit_code == 0
    (item,) = live.found_in(Path("algorithms/mine.py"), "all_reduce", None)
    assert item.kind == "module"


def test_a_file_that_nothing_here_runs_is_named(tmp_path: Path) -> None:
    log = tmp_path / "test.log"
    log.write_text("# nThread 1 nGpus 8 minBytes 1024\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="AHBM-C144") as caught:
        live.found_in(log, "all_reduce", None)
    assert "a log of nccl-tests" in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_in_a_browser(served: Served, tmp_path: Path, width: int, dark: bool) -> None:
    with browser(tmp_path / "profile") as tab:
        tab.size(width, 900, dark)
        ran = "document.getElementById('root')?.dataset.ran"
        tab.open(f"http://127.0.0.1:{served.port}/?token={TOKEN}", ran)
        tab.wait("document.querySelector('.ahbm-view')?.dataset.drawn")
        assert tab.problems == [] and tab.run("document.documentElement.scrollWidth") <= width
        names = tab.run("[...document.querySelectorAll('[data-part=item] option')].map((o) => o.textContent)")
        assert any(EVIL in name for name in names) and tab.run("document.body.dataset.hacked") is None
        pick = "document.querySelector('[data-part=item]')"
        tab.run(f"(() => {{ const s = {pick}; s.value = '{number(served, 'mine.py')}'; s.onchange(); }})()")
        tab.wait("document.querySelector('[data-part=editor]').value.includes('def kernel')")
        tab.wait("/mine.py takes/.test(document.querySelector('[data-part=told]').innerText)")
        # A slider: another time, and a picture of it.
        told, before = "document.querySelector('[data-part=told]').innerText", tab.run(ran)
        first = tab.run(told)
        slider = "document.querySelectorAll('[data-part=sliders] input')[1]"
        tab.run(f"(() => {{ const s = {slider}; s.value = 1; s.oninput(); }})()")
        tab.wait(f"{ran} !== '{before}' && {told} !== {json.dumps(first)}")
        # A fault: its line is marked, and gone when it is mended.
        broken = SOURCE.replace("tl.store(", "tl.stor(")
        write = "((t) => {{ const e = document.querySelector('[data-part=editor]'); e.value = t; e.oninput(); }})({})"
        tab.run(write.format(json.dumps(broken)))
        tab.run("document.querySelector('[data-part=save]').click()")
        tab.wait("!document.querySelector('[data-part=failed]').hidden")
        marked = tab.run("[...document.querySelectorAll('[data-part=gutter] .bad')].map((s) => s.textContent)")
        assert str(broken.splitlines().index("    tl.stor(t_ptr, acc)") + 1) in marked
        tab.run(write.format(json.dumps(SOURCE)))
        tab.run("document.querySelector('[data-part=save]').click()")
        tab.wait("document.querySelector('[data-part=failed]').hidden")
        # Where an element comes from, and the picture there.
        tab.run("document.querySelector('[data-part=ask]').click()")
        tab.wait("document.querySelector('[data-part=steps] button')")
        assert tab.run("document.querySelector('[data-part=origin]').innerText").startswith("element 0 of rank 0 = ")
        tab.run("document.querySelector('[data-part=steps] button').click()")
        tab.run("document.querySelector('[data-part=compare]').click()")
        tab.wait("document.querySelectorAll('[data-part=sweep] tr').length > 2")
        tab.wait("/^(\\d+) of \\1 cases$/.test(document.querySelector('[data-part=progress]').innerText)")
        assert tab.run("document.querySelectorAll('[data-part=sweep] .best').length") >= 6
        assert tab.problems == [] and tab.run("document.documentElement.scrollWidth") <= width
        assert tab.run(CONTRASTS) == []
        took = [int(tab.run(f"document.getElementById('root').dataset.{what}")) for what in ("took", "saved")]
        assert took[0] < 1500 and took[1] < 3000, "ms, on a machine that others work on too"
