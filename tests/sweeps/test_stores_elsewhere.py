"""Stores on file systems that are no folder: an object store and one in memory; the same rows, whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ahbm
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.sweeps.running import swept
from ahbm.sweeps.space import Space
from ahbm.table.engine import Here, Pool
from ahbm.table.store import Store
from support.commands import environment, run

pytestmark = pytest.mark.usefixtures("here")

SPACE = Space(
    algorithms=["ring_allreduce", "tree_allreduce"],
    topologies=["npu_ring_8", "npu_switch_8"],
    overrides={"system.sips.link.bandwidth_gbs": [50, 100]},
    sizes=[64 * number for number in range(16, 56)],
    data=False,
)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An object store on this computer, for this process and those that it begins."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server")
    started = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    started.start()
    told = {
        "AWS_ENDPOINT_URL": "http://{}:{}".format(*started.get_host_and_port()),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "no_proxy": "*",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("sweeps")
        yield "s3://sweeps"
    started.stop()


@pytest.fixture(scope="module")
def plain() -> str:
    return ahbm.sweep(SPACE).csv()


def exported(store: str) -> str:
    return Store(store).rows().csv()


def test_a_store_in_memory_is_that_of_one_process(plain: str) -> None:
    assert ahbm.sweep(SPACE, store="memory://one").csv() == plain
    ahbm.sweep(SPACE, store="folder")
    assert exported("memory://one") == exported("folder")
    before, after = Store("memory://one").compact()
    assert before > after == 1 and exported("memory://one") == exported("folder")
    assert not list(swept(SPACE, Here(), "memory://one"))
    with pytest.raises(ConfigError, match="AHBM-C129 store must be a place that other processes see"):
        list(swept(SPACE, Pool(2), "memory://two"))


def test_urls_of_no_file_system_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="AHBM-C186 nosuch://x is no place of a store"):
        Store("nosuch://x")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UnsupportedError, match="AHBM-U145 fsspec is not installed"):
        Store("s3://x")


@pytest.mark.slow
def test_an_object_store_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs = pytest.importorskip("s3fs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(ConfigError, match="AHBM-C186 s3://none/rows cannot be read"):
        Store("s3://none/rows").parts()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.slow
def test_an_object_store_is_a_store(bucket: str, plain: str) -> None:
    at = f"{bucket}/rows"
    for number, _ in enumerate(swept(SPACE, Here(), at)):
        if number == 2:
            break
    unfinished = Store(at).unfinished()
    assert unfinished is not None and 0 < unfinished.done < unfinished.cases == SPACE.count
    assert ahbm.sweep(SPACE, store=at).csv() == plain and Store(at).unfinished() is None
    before, after = Store(at).compact()
    assert before > after == 1
    assert ahbm.sweep(SPACE, store=at).csv() == plain and not list(swept(SPACE, Here(), at))
    code, out, _ = run("ahbm", ["sweep", "show", at, "--best", "--csv"], Path())
    ahbm.sweep(SPACE, store="folder")
    assert code == 0 and out == run("ahbm", ["sweep", "show", "folder", "--best", "--csv"], Path())[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "object store"])
def test_kills_and_two_writers_lose_nothing_and_tell_nothing_twice(
    kind: str, request: pytest.FixtureRequest, plain: str
) -> None:
    at = "rows" if kind == "folder" else f"{request.getfixturevalue('bucket')}/killed"
    sizes = "[" + ", ".join(f"{64 * number}" for number in range(16, 56)) + "]"
    Path("space.yaml").write_text(
        "algorithms: [ring_allreduce, tree_allreduce]\ntopologies: [npu_ring_8, npu_switch_8]\ndata: false\n"
        f"overrides: {{system.sips.link.bandwidth_gbs: [50, 100]}}\nsizes: {sizes}\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "ahbm", "sweep", "space.yaml", "-o", at, "--json"]

    def parts() -> int:
        try:
            return len(Store(at).parts())
        except ConfigError:
            return 0

    process = subprocess.Popen([*command, "--jobs", "2"], env=environment(), stdout=subprocess.DEVNULL)
    while process.poll() is None and parts() < 2:
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Two writers, and a merge beside them.
    both = [subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) for _ in range(2)]
    while any(process.poll() is None for process in both):
        if parts() > 3:
            Store(at).compact()
        time.sleep(0.2)
    assert [process.returncode for process in both] == [0, 0]
    assert Store(at).unfinished() is None
    assert ahbm.sweep("space.yaml", store=at).csv() == plain
    keys = Store(at).rows().column("key")
    assert len(keys) == len(set(keys)) == SPACE.count
    assert not [name for name in os.listdir(".") if name.endswith(".part")]


def test_a_part_half_written_is_no_part() -> None:
    list(swept(SPACE, Here(), "rows"))
    for number, part in enumerate(sorted(Path("rows/parts").iterdir())[:2]):
        part.rename(part.with_name(f".{part.name}.{number}.part"))
    assert Store("rows").unfinished() is not None
    assert ahbm.sweep(SPACE, store="rows").csv() == ahbm.sweep(SPACE).csv()


def test_a_file_that_is_edited_between_is_run_again() -> None:
    source = (Path(ahbm.__file__).parent / "data/algorithms/ring_allreduce.py").read_text(encoding="utf-8")
    Path("mine.py").write_text(source, encoding="utf-8")
    space = Space(algorithms=["./mine.py", "tree_allreduce"], topologies="npu_ring_8", sizes=["1K", "4K"], data=False)
    assert sum(done.ran for done in swept(space, Here(), "rows")) == 4
    Store("rows").compact()
    from ahbm.base.load import forget_files_read

    forget_files_read()
    Path("mine.py").write_text(source.replace("n_elem, cube_w", "n_elem + 0, cube_w"), encoding="utf-8")
    assert sum(done.ran for done in swept(space, Here(), "rows")) == 2
    forget_files_read()
    Path("mine.py").write_text(source, encoding="utf-8")
    assert sum(done.ran for done in swept(space, Here(), "rows")) == 0


def test_shares_of_a_space_need_nobody_else() -> None:
    for number in (3, 1, 2):
        for _ in swept(SPACE, Here(), "rows", share=(number, 3)):
            pass
        assert (Store("rows").unfinished() is None) == (number == 2)
    assert ahbm.sweep(SPACE, store="rows").csv() == ahbm.sweep(SPACE).csv()
    assert not list(swept(SPACE, Here(), "rows"))
