"""A hook of mkdocs: links to files outside docs/ lead to the repository."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    """The page with `](../PATH)` as addresses in the repository."""
    base = f"{config.repo_url.rstrip('/')}/blob/main"
    return re.sub(r"\]\(\.\./", f"]({base}/", markdown)
