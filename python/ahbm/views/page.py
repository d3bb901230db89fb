"""A page of charts and tables: one HTML file that needs no network, and every chart as a file of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from html import escape
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base.store import make_folders, store
from ahbm.errors import ConfigError
from ahbm.views.drawing import Drawing

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Section:
    """A headed part of a page: words, a table, charts by name."""

    key: str
    title: str
    text: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    charts: Sequence[str] = ()
    pictures: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Runs by name, as `ahbm.views.workbench` and `ahbm.views.job_lanes` make them; one at a time is shown."""


@dataclass(frozen=True)
class Page:
    """Everything a page shows."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    plots: Mapping[str, alt.TopLevelMixin]
    """The charts; those that no section names are for files."""
    facts: Sequence[tuple[str, str]] = field(default=())
    headline: Sequence[str] = ()
    """The answer, in sentences."""

    @property
    def charts(self) -> dict[str, Drawing]:
        """The charts by name, as drawings."""
        return {name: Drawing(plot) for name, plot in self.plots.items()}

    def html(self) -> str:
        """The page as one self-contained document."""
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup

        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        shown = [name for section in self.sections for name in section.charts]
        specs = {name: self.charts[name].to_dict() for name in shown}
        pictures = {section.key: section.pictures for section in self.sections if section.pictures}
        return environment.get_template("page.html.j2").render(
            title=self.title,
            subtitle=self.subtitle,
            sections=self.sections,
            facts=self.facts,
            headline=self.headline,
            bundle=Markup(bundle().result().replace("</script", "<\\/script") if specs else ""),
            specs=Markup(_json(specs)),
            pictures=Markup(_json(pictures)),
            viewer=Markup(viewer()),
        )

    def _repr_html_(self) -> str:
        # A frame keeps the page's styles and scripts from the notebook's, and needs no network, unlike altair's own.
        style = "width:100%;height:800px;border:1px solid rgba(128,128,128,.35)"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html())}"></iframe>'

    def write(self, path: Path) -> None:
        """Writes the page. Raises ConfigError (AHBM-C161) where it cannot."""
        write(path, self.html().encode())

    def write_charts(self, folder: Path, kind: str = "svg") -> list[Path]:
        """Writes every chart as NAME.svg or NAME.png into `folder`. Raises ConfigError (AHBM-C161)."""
        paths = []
        for name, chart in self.charts.items():
            path = folder / f"{name}.{kind}"
            if kind == "svg":
                write(path, chart.svg().encode())
            elif kind == "png":
                write(path, chart.png())
            else:
                raise ConfigError("AHBM-C161", f"no charts as {kind}", hint="svg or png")
            paths.append(path)
        return paths


USED = "RAMPS, button, copied, csv, mount, save, sortable"
"""What a page's script takes of the viewer."""


def viewer() -> str:
    """The viewer for a page's script, which goes on behind it, with names of its own."""
    text = (Path(__file__).parent / "viewer.js").read_text(encoding="utf-8")
    return f"const {{ {USED} }} = (() => {{\n{text[: text.rindex('export {')]}return {{ {USED} }};\n}})();"


def _json(data: object) -> str:
    # "<" never stands in the JSON, so nothing in it can end the script element.
    return json.dumps(data, sort_keys=True, separators=(",", ":")).replace("<", "\\u003c")


def write(path: Path, content: bytes) -> None:
    """Writes a file and its folder. Raises ConfigError (AHBM-C161) where it cannot."""
    try:
        make_folders(path.parent)
        store({path: content})
    except OSError as error:
        raise ConfigError("AHBM-C161", f"cannot write {path}: {error.strerror}") from error


BUNDLING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
import vl_convert
script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode()
try:
    sys.stdout.buffer.write(script)
    sys.stdout.flush()
except BrokenPipeError:
    os._exit(0)
"""
"""Ctrl-C is for who waits for the bundle, and goes without it."""


@cache
def bundle() -> Future[str]:
    """Vega, Vega-Lite and Vega-Embed as one script that defines `vegaEmbed`; the first call begins to make it.

    It takes two seconds of a process of its own, for the interpreter's lock is held all the while: called early, it is
    made while the simulations run. The user's cache keeps it for each version of vl-convert.
    """

    def run() -> str:
        kept = cached()
        if (script := _kept(kept)) is not None:
            return script
        made = subprocess.run([sys.executable, "-c", BUNDLING], stdout=subprocess.PIPE, check=True).stdout
        with suppress(OSError):  # whoever has no cache makes it every time
            make_folders(kept.parent)
            store({kept: sha256(made).hexdigest().encode() + b"\n" + made})
        return made.decode()

    return ThreadPoolExecutor(1).submit(run)


def cached() -> Path:
    """Where the user's cache keeps the script: in `XDG_CACHE_HOME`, of Windows in `LOCALAPPDATA`, else in ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/.cache")
    return Path(home) / "ahbm" / f"vega-{metadata.version('vl-convert-python')}.js"


def _kept(path: Path) -> str | None:
    """The script of a file, None where there is none or where it is not what was written."""
    try:
        digest, _, script = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return script.decode() if digest == sha256(script).hexdigest().encode() else None


def require_extra() -> Any:
    """Raises UnsupportedError (AHBM-U145) unless the packages of the extra `report` are there."""
    from importlib.util import find_spec

    from ahbm.errors import UnsupportedError

    missing = [name for name in ("altair", "vl_convert", "jinja2") if find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            "AHBM-U145", f"reports need {', '.join(missing)}", hint="pip install 'ahbm[report]', or '.[report]' here"
        )
