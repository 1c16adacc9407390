"""Names of models on the hub: "org/name", or "org/name@revision"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PART = r"[A-Za-z0-9](?:[\w.-]*\w)?"
_NAME = re.compile(rf"({_PART}/{_PART})(?:@([^\s@]+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MOST = 96  # characters of a repository's name


@dataclass(frozen=True, slots=True)
class HubName:
    """A model on the hub. revision: a branch, a tag or a commit."""

    repo: str
    revision: str = "main"

    def __str__(self) -> str:
        return self.repo if self.revision == "main" else f"{self.repo}@{self.revision}"

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a full commit hash, whose files never change."""
        return _COMMIT.fullmatch(self.revision) is not None


def hub_name(model: str | Path) -> HubName | None:
    """The hub model that a name refers to; None for other names, for every `Path`, and for names
    that begin with "/", "." or "~"."""
    found = _NAME.fullmatch(model) if isinstance(model, str) else None
    if found is None or len(found[1]) > _MOST or ".." in found[1] or "--" in found[1]:
        return None
    return HubName(found[1], found[2] or "main")


def repository_of(folder: Path) -> str | None:
    """The "org/name" of a snapshot in the hub's cache, as `.../models--org--name/snapshots/COMMIT`;
    None for any other folder."""
    parent = folder.parent.parent.name
    if folder.parent.name != "snapshots" or not parent.startswith("models--"):
        return None
    return parent.removeprefix("models--").replace("--", "/")
