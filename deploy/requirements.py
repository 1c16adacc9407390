"""Prints the requirements of pyproject.toml beside it, with those of the extras that are named.

For images: dependencies are installed in layers of their own, before the package.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """All of them, in pip's form. Raises KeyError for an extra that there is not."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(Path("pyproject.toml"), sys.argv[1:])))
