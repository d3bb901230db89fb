"""What mkdocs does beside its own when `make site` builds the documentation (mkdocs.yml).

- Links to files of the repository beside docs/ lead to `SITE_REPOSITORY`; without one, their text stays and no link.
- A build of mike has a choice of versions.
- Nothing of a page is fetched from elsewhere: `on_post_page` raises where something is.
"""

from __future__ import annotations

import os
import re
from typing import Any

BESIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)([^)]+)\)")
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|link(?! rel="(?:canonical|next|prev)"))\b[^>]*?"""
    r"""\b(?:src|href|srcset)=["']?((?:https?:)?//[^"'\s>]*)"""
)
WORKER = "https://unpkg.com/iframe-worker/shim"
"""What the theme would fetch for the search of a site that is opened from a folder: docs/javascripts has it."""


def on_config(config: Any) -> Any:
    """Versions, where mike builds."""
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page, with links out of docs/ that lead somewhere."""
    deep = page.file.src_uri.count("/") + 1

    def link(found: re.Match[str]) -> str:
        text, up, target = found.groups()
        if up.count("../") != deep:
            return found[0]
        repository = str(config.repo_url or "").rstrip("/")
        return f"[{text}]({repository}/blob/HEAD/{target})" if repository else text

    return BESIDE.sub(link, markdown)


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Raises SystemExit for a page that fetches something from elsewhere."""
    output = output.replace(WORKER, "../" * page.file.src_uri.count("/") + "javascripts/iframe-worker.js")
    own = str(config.site_url or "\0")
    if found := [one for one in FETCHED.findall(output) if not one.startswith(own)]:
        raise SystemExit(f"{page.file.src_uri} fetches from elsewhere: {found[0]}")
    return output
