"""The package describes itself: what an index shows, and the workflow that builds its wheels."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import ahbm
import ahbm.distributed

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = ROOT / ".github/workflows"
WHEELS, GATE = WORKFLOWS / "wheels.yml", WORKFLOWS / "gate.yml"


def test_an_index_page_says_who_what_and_where() -> None:
    assert PROJECT["authors"] == [{"name": "The AHBM authors"}]
    assert PROJECT["keywords"] == sorted(PROJECT["keywords"], key=str.lower)
    kinds = {classifier.partition(" :: ")[0] for classifier in PROJECT["classifiers"]}
    assert kinds >= {"Development Status", "Intended Audience", "Operating System", "Programming Language", "Topic"}
    # The licence is an expression: a classifier beside it is an error (PEP 639).
    assert "License" not in kinds
    for path in [PROJECT["readme"], *PROJECT["license-files"]]:
        assert (ROOT / path).is_file()


def test_links_of_the_readme_lead_into_the_source_distribution() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["maturin"]
    included = {path for each in settings["include"] for path in ROOT.glob(each["path"])}
    text = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(pictures) == 4 and all(pictures.count(name.replace("light", "dark")) == 1 for name in pictures)
    for link in [*pictures, *re.findall(r"\]\(([^)#]+)\)", text)]:
        if link.startswith(("http", "LICENSE")):
            continue
        target = ROOT / link
        files = [path for path in target.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        left_out = {*(files if target.is_dir() else [target])} - included
        assert target.exists() and not left_out, f"README.md links {link}, which the source distribution leaves out"


def test_wheels_are_built_for_all_platforms_without_secrets() -> None:
    text = WHEELS.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    targets = {row["target"].split("-")[0] + row["target"].split("-")[2] for row in _matrix(workflow)}
    assert targets == {"x86_64linux", "aarch64linux", "aarch64darwin", "x86_64darwin", "x86_64windows"}
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in text
    assert all("upload-artifact" in str(job["steps"]) for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", sorted(WORKFLOWS.iterdir()), ids=lambda path: path.stem)
def test_a_workflow_is_one(path: Path) -> None:
    """The keys that a workflow, its jobs and steps have."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    workflow["on"] = workflow.pop(True)  # YAML 1.1 reads `on` as a truth value
    assert set(workflow) - {"concurrency"} == {"name", "on", "permissions", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}
    assert set(workflow["on"]) == {"push", "pull_request", "workflow_dispatch"}
    for named in (workflow["on"]["pull_request"] or {}).get("paths", ()):
        assert any(ROOT.glob(named)), named
    keys = {"name", "runs-on", "container", "timeout-minutes", "strategy", "steps", "if", "needs", "permissions"}
    for job in workflow["jobs"].values():
        # Only a site that is published writes, and not for a request of a stranger.
        assert "permissions" not in job or (path.stem == "site" and job["if"] == "github.event_name == 'push'")
        assert set(job) <= keys and {"runs-on", "steps"} <= set(job)
        for step in job["steps"]:
            assert set(step) <= {"name", "uses", "with", "if", "shell", "run"}
            assert ("uses" in step) != ("run" in step)
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
            for script in re.findall(r"(?:scripts|\.ci)/[\w./]+", step.get("run", "")):
                assert (ROOT / script).is_file(), script


def test_the_gate_runs_on_every_pull_request() -> None:
    workflow = yaml.safe_load(GATE.read_text(encoding="utf-8"))
    assert workflow[True]["pull_request"] is None
    assert [step.get("run") for step in workflow["jobs"]["gate"]["steps"]][-1] == ".ci/run"


def test_every_expression_of_the_wheels_names_a_column_of_the_matrix() -> None:
    text = WHEELS.read_text(encoding="utf-8")
    rows = _matrix(yaml.safe_load(text))
    columns = {"name", "runner", "target", "manylinux"}
    assert all(set(row) == columns and all(isinstance(value, str) for value in row.values()) for row in rows)
    assert set(re.findall(r"matrix\.(\w+)", text)) == columns
    assert len({row["name"] for row in rows}) == len(rows)
    systems = {"ubuntu": "linux", "macos": "darwin", "windows": "windows"}
    for row in rows:
        assert row["target"].split("-")[2] == systems[row["runner"].split("-")[0]]
        assert (row["manylinux"] == "off") == (not row["runner"].startswith("ubuntu"))


def test_the_workflow_of_wheels_gives_them_the_address_of_the_repository() -> None:
    """A clone has no address; an index shows the links of the metadata, and README.md from a page of its own."""
    script, home, commit = runpy.run_path(str(ROOT / "scripts/urls.py")), "https://host.example/owner/ahbm", "0a" * 20
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    made = script["project"](text, home, commit)
    assert tomllib.loads(made)["project"].pop("urls").keys() == {"Source", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(home) for url in tomllib.loads(made)["project"]["urls"].values())
    hosted = tomllib.loads(script["project"](text, "https://github.com/owner/ahbm", commit))["project"]["urls"]
    assert hosted["Documentation"] == f"https://owner.github.io/ahbm/{PROJECT['version']}"
    page = script["readme"]((ROOT / PROJECT["readme"]).read_text(encoding="utf-8"), home, commit)
    links = re.findall(r"\]\(([^)]+)\)", page) + re.findall(r'(?:src|srcset)="([^"]+)"', page)
    assert len(links) > 40 and all(
        link.startswith((f"{home}/blob/{commit}/", f"{home}/raw/{commit}/")) for link in links
    )
    for again, address, at in ((made, home, commit), (text, "http://host/a/b", commit), (text, home, "main")):
        with pytest.raises(SystemExit):
            script["project"](again, address, at)
    steps = [
        step.get("run", "")
        for job in yaml.safe_load(WHEELS.read_text("utf-8"))["jobs"].values()
        for step in job["steps"]
    ]
    assert sum("scripts/urls.py" in step for step in steps) == 2


def test_the_version_is_one() -> None:
    """pyproject.toml, Cargo.toml and what inherits from it, both locks, the package, the citation and the changelog."""

    def toml(path: str) -> dict[str, Any]:
        return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))

    found = {"pyproject.toml": PROJECT["version"], "Cargo.toml": toml("Cargo.toml")["workspace"]["package"]["version"]}
    found["ahbm.__version__"] = ahbm.__version__
    found["CITATION.cff"] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    found["CHANGELOG.md"] = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0]
    for lock in ("Cargo.lock", "fuzz/Cargo.lock"):
        own = [crate for crate in toml(lock)["package"] if "source" not in crate and crate["name"] != "ahbm-fuzz"]
        found |= {f"{lock}: {crate['name']}": crate["version"] for crate in own}
    assert set(found.values()) == {PROJECT["version"]}, found
    for path in (ROOT / "rust").glob("*/Cargo.toml"):
        assert toml(path.relative_to(ROOT).as_posix())["package"]["version"] == {"workspace": True}, path


def test_the_citation_names_this_version_and_no_person() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["type"] == "software"
    assert (citation["title"], citation["version"]) == ("AHBM", PROJECT["version"])
    assert citation["abstract"].split() == f"{PROJECT['description']}.".split()
    assert citation["authors"] == [{"name": "AHBM developers"}]
    assert " OR ".join(citation["license"]) == PROJECT["license"]
    assert set(citation["keywords"]) <= set(PROJECT["keywords"])


POSIX_ALONE = {
    *("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"),
    *("O_NONBLOCK", "O_NOCTTY", "fork", "forkpty", "getuid", "geteuid", "getgid", "getpgid", "getppgid", "killpg"),
    *("mkfifo", "openpty", "pread", "pwrite", "sched_getaffinity", "set_blocking", "setsid", "sysconf", "uname"),
    *("waitpid", "wait4", "fchmod", "fchown", "chown", "register_at_fork", "posix_spawn", "get_terminal_size"),
    *("SIGKILL", "SIGALRM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD", "SIGWINCH", "SIGTSTP"),
    *("alarm", "setitimer", "pthread_kill", "pthread_sigmask", "sigwait", "AF_UNIX"),
}


@pytest.mark.slow
def test_what_windows_lacks_is_used_where_it_is_asked_for_the_system() -> None:
    """`mypy --platform win32` says the same, in half a minute."""
    package = ROOT / "python/ahbm"
    used = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [node.attr] if node.value.id in ("os", "signal", "socket") else []
            used |= {(path.relative_to(package).as_posix(), name) for name in names if name in POSIX_ALONE}
    guarded = {("base/load.py", "O_NONBLOCK"), ("base/load.py", "set_blocking"), ("base/host.py", "sysconf")}
    guarded |= {("base/store.py", "O_NONBLOCK"), ("base/store.py", "set_blocking")}
    guarded |= {("base/host.py", "sched_getaffinity"), ("base/host.py", "resource")}
    guarded |= {("torch/listener.py", "geteuid")}
    assert used == guarded
    for file in {file for file, _ in guarded}:
        assert "sys.platform" in (package / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("system", ["Linux", "MacOS", "Windows"])
def test_classifiers_name_the_systems_that_have_wheels(system: str) -> None:
    assert any(each.endswith(system) for each in PROJECT["classifiers"])


def _matrix(workflow: dict[str, Any]) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = workflow["jobs"]["wheel"]["strategy"]["matrix"]["include"]
    return rows


def test_the_reference_of_the_interface_is_generated() -> None:
    script = runpy.run_path(str(ROOT / "scripts/api.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["render"](), "run python scripts/api.py"
    elsewhere = {"AhbmError", "errors", "__version__"}
    assert all(f"\n### ahbm.{name}\n" in page for name in ahbm.__all__ if name not in elsewhere)


def test_every_public_name_says_what_it_is() -> None:
    for name in ahbm.__all__:
        assert name == "__version__" or getattr(ahbm, name).__doc__, name
    for name in ahbm.distributed.__all__:
        assert getattr(ahbm.distributed, name).__doc__, name
