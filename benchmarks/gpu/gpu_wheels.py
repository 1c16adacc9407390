"""A folder of wheels for a machine without a network: filled where there is one, unpacked there.

Knows only the standard library, and pip where the folder is filled.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "gpu-wheels"
CONSTRAINTS = ROOT / "constraints-cpu.txt"
# What forkroot and its tests need beside torch, triton, numpy, transformers and what these bring.
NAMES = (
    *("numba", "llvmlite", "llguidance", "msgpack", "pluggy"),
    *("httpx", "httpcore", "certifi", "anyio", "h11", "idna"),
    *("pytest", "pytest-timeout", "iniconfig", "hypothesis", "sortedcontainers"),
)
GLIBC = (28, 27, 24, 17, 12, 5)  # 2.N: of the manylinux tags that are taken


class Wheel(NamedTuple):
    """A wheel's file, and what its name says."""

    path: Path
    name: str
    version: str
    pythons: tuple[str, ...]
    abi: str
    platforms: str

    @classmethod
    def of(cls, path: Path) -> Wheel:
        """Read the name of a file."""
        name, version, *_, pythons, abi, platforms = path.stem.split("-")
        return cls(path, normalized(name), version, tuple(pythons.split(".")), abi, platforms)

    def fits(self, version: tuple[int, int], machine: str) -> bool:
        """Whether it is for this Python and this processor."""
        if self.platforms != "any" and not self.platforms.endswith(machine):
            return False
        exact = {f"{kind}{version[0]}{version[1]}" for kind in ("cp", "py")}
        if exact & set(self.pythons):
            return True
        older = [int(it[3:] or 0) for it in self.pythons if re.fullmatch(r"(py|cp)3\d*", it)]
        return (self.abi in ("none", "abi3")) and any(it <= version[1] for it in older)


def normalized(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def prepare(
    folder: Path, python: str, without: Iterable[str], also: Sequence[str], limit_mb: float | None
) -> int:
    """Download the wheels into the folder, print their sizes; the exit status: 1 where pip fails,
    or where all of them are larger than the limit."""
    left_out = {normalized(name) for name in without}
    names = [*(name for name in NAMES if name not in left_out), *also]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder)]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command += [f"--platform=manylinux_2_{minor}_{platform.machine()}" for minor in GLIBC]
    command += [f"--platform=manylinux2014_{platform.machine()}", "-c", str(CONSTRAINTS), *names]
    status = subprocess.run(command).returncode
    if status:
        print(f"pip ended with status {status}; {folder} is not complete", file=sys.stderr)
        return 1
    return _report(folder, limit_mb)


def _report(folder: Path, limit_mb: float | None) -> int:
    sizes = {path.name: path.stat().st_size / 1e6 for path in sorted(folder.glob("*.whl"))}
    for name, size in sizes.items():
        print(f"{size:7.2f} MB  {name}")
    total = sum(sizes.values())
    print(f"{total:7.2f} MB  {len(sizes)} wheels in {folder}")
    if limit_mb is not None and total > limit_mb:
        message = f"the wheels take {total:.1f} MB; expected at most {limit_mb:g} (--limit-mb)."
        print(f"{message} Leave out what the machine has: --without NAME", file=sys.stderr)
        return 1
    return 0


def unpack(folder: Path, site: Path) -> dict[str, str]:
    """Unpack into `site` (on the path) each wheel that fits this Python and whose distribution is
    not installed: what is installed is never shadowed. Returns what is added, name to version."""
    added: dict[str, str] = {}
    for path in sorted(folder.glob("*.whl")):
        wheel = Wheel.of(path)
        if wheel.name in added or is_installed(wheel.name):
            continue
        if not wheel.fits(sys.version_info[:2], platform.machine()):
            continue
        with ZipFile(path) as archive:
            archive.extractall(site)
        for kind in ("purelib", "platlib"):
            for part in site.glob(f"*.data/{kind}/*"):
                shutil.move(part, site / part.name)
        added[wheel.name] = wheel.version
    return added


def is_installed(name: str) -> bool:
    """Whether a distribution of this name is on the path."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
