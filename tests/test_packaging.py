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
WORKFLOW = ROOT / ".github/workflows/wheels.yml"


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
    text = WORKFLOW.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    targets = {row["target"].split("-")[0] + row["target"].split("-")[2] for row in _matrix(workflow)}
    assert targets == {"x86_64linux", "aarch64linux", "aarch64darwin", "x86_64darwin", "x86_64windows"}
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in text
    assert all("upload-artifact" in str(job["steps"]) for job in workflow["jobs"].values())


def test_the_workflow_is_one() -> None:
    """The keys that a workflow, its jobs and steps have; every expression names a column of the matrix."""
    text = WORKFLOW.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    workflow["on"] = workflow.pop(True)  # YAML 1.1 reads `on` as a truth value
    assert set(workflow) == {"name", "on", "permissions", "jobs"}
    assert set(workflow["on"]) == {"push", "pull_request", "workflow_dispatch"}
    for path in workflow["on"]["pull_request"]["paths"]:
        assert (ROOT / path).exists(), path
    for job in workflow["jobs"].values():
        assert set(job) <= {"name", "runs-on", "strategy", "steps"} and {"runs-on", "steps"} <= set(job)
        for step in job["steps"]:
            assert set(step) <= {"name", "uses", "with", "if", "shell", "run"}
            assert ("uses" in step) != ("run" in step)
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
    rows = _matrix(workflow)
    columns = {"name", "runner", "target", "manylinux"}
    assert all(set(row) == columns and all(isinstance(value, str) for value in row.values()) for row in rows)
    assert set(re.findall(r"matrix\.(\w+)", text)) == columns
    assert len({row["name"] for row in rows}) == len(rows)
    systems = {"ubuntu": "linux", "macos": "darwin", "windows": "windows"}
    for row in rows:
        assert row["target"].split("-")[2] == systems[row["runner"].split("-")[0]]
        assert (row["manylinux"] == "off") == (not row["runner"].startswith("ubuntu"))


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
    guarded |= {("base/host.py", "sched_getaffinity"), ("base/host.py", "resource")}
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
    assert all(f"\n### ahbm.{name}\n" in page for name in ahbm.__all__ if name not in ("errors", "__version__"))


def test_every_public_name_says_what_it_is() -> None:
    for name in ahbm.__all__:
        assert name == "__version__" or getattr(ahbm, name).__doc__, name
    for name in ahbm.distributed.__all__:
        assert getattr(ahbm.distributed, name).__doc__, name
