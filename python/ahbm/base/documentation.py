"""Where a page of the documentation is."""

from __future__ import annotations

from functools import cache


@cache
def _home() -> str:
    """The address that the package's metadata give (scripts/urls.py), without a slash at its end; empty without one."""
    # Reading metadata imports the library of e-mails, and few runs tell a page.
    from importlib import metadata

    try:
        urls = metadata.metadata("ahbm").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    named = dict(url.split(", ", 1) for url in urls if ", " in url)
    return str(named.get("Documentation", "")).rstrip("/")


def page(name: str, anchor: str = "") -> str:
    """The address of a page on the site that belongs to this version, or, where nobody hosts one, its file in the
    sources."""
    home = _home()
    # A folder of a repository shows the files themselves.
    ending = ".html" if home and not home.endswith("/docs") else ".md"
    return f"{home or 'docs'}/{name}{ending}" + (f"#{anchor}" if anchor else "")
