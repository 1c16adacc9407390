"""A hook of mkdocs: links to files outside docs/ lead to the repository."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    """The page with `](../PATH)` and links to structure.md as addresses in the repository."""
    base = f"{config.repo_url.rstrip('/')}/blob/main"
    markdown = re.sub(r"\]\(structure\.md", f"]({base}/docs/structure.md", markdown)
    return re.sub(r"\]\(\.\./", f"]({base}/", markdown)
