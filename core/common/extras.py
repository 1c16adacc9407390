"""How to install optional dependencies: the extras of the package."""

from __future__ import annotations

import shlex
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def how_to_install(extra: str, root: Path = _ROOT) -> str:
    """The command that installs an extra, as "dspy": the README's, where the package lies in a
    checkout (root); what the extra requires, where it was installed from elsewhere."""
    if (root / "pyproject.toml").is_file():
        folder = shlex.quote(str(root))
        return f"cd {folder} && pip install -c constraints-cpu.txt -e '.[{extra}]'"
    return " ".join(["pip install", *map(shlex.quote, _requirements(extra))])


def _requirements(extra: str) -> list[str]:
    try:
        listed = [line.partition(";") for line in requires("forkroot") or ()]
    except PackageNotFoundError:
        listed = []
    markers = f'extra == "{extra}"', f"extra == '{extra}'"
    found = [name.strip() for name, _, marker in listed if marker.endswith(markers)]
    return found or [f"forkroot[{extra}]"]
