"""A folder of wheels for a machine without a network: filled where there is one, unpacked there.

Knows only the standard library, and pip where the folder is filled.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "gpu-wheels"
CONSTRAINTS = ROOT / "constraints-cpu.txt"
# What forkroot and its tests need beside torch, triton, numpy, transformers and what these bring.
RUNNING = (
    *("numba", "llvmlite", "llguidance", "msgpack", "pluggy"),
    *("httpx", "httpcore", "certifi", "anyio", "h11", "idna"),
)
TESTING = ("pytest", "pytest-timeout", "iniconfig", "hypothesis", "sortedcontainers")
NAMES = RUNNING + TESTING
THERE = ("torch", "triton", "numpy", "transformers")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
PREPARE = "python benchmarks/gpu/gpu.py --prepare"
GLIBC = (28, 27, 24, 17, 12, 5)  # 2.N: of the manylinux tags that are taken


class Refused(ValueError):
    """What was asked for cannot be done; the text says why, and what can."""


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
    which changes nothing, or where all of them are larger than the limit. Wheels of other names
    stay. Raises Refused for a folder that cannot be written."""
    left_out = {normalized(name) for name in without}
    names = [*(name for name in NAMES if name not in left_out), *also]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".new-", dir=folder) as aside:
            status = _download(Path(aside), python, names)
            if status:
                message = f"pip ended with status {status}; the wheels in {folder} are as before"
                print(message, file=sys.stderr)
                return 1
            _swap(folder, Path(aside))
    except OSError as error:
        why = error.strerror or str(error)
        raise Refused(f"--prepare {folder}: {why}; expected a folder to write to") from error
    return _report(folder, limit_mb)


def _download(folder: Path, python: str, names: Sequence[str]) -> int:
    """pip's exit status."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder)]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command += [f"--platform=manylinux_2_{minor}_{platform.machine()}" for minor in GLIBC]
    command += [f"--platform=manylinux2014_{platform.machine()}", "-c", str(CONSTRAINTS), *names]
    return subprocess.run(command).returncode


def _swap(folder: Path, new: Path) -> None:
    """Move new wheels into the folder in place of older ones of theirs and of NAMES."""
    replaced = {wheel.name for wheel in wheels_in(new)} | set(NAMES)
    for wheel in wheels_in(folder):
        if wheel.name in replaced:
            wheel.path.unlink()
    for wheel in wheels_in(new):
        wheel.path.replace(folder / wheel.path.name)


def wheels_in(folder: Path) -> list[Wheel]:
    """The wheels of a folder, by name; a file whose name is not that of a wheel is left out."""
    paths = sorted(folder.glob("*.whl"))
    return [Wheel.of(path) for path in paths if path.stem.count("-") >= 4]


def lacking(folder: Path) -> dict[str, list[str]]:
    """What the folder's additional wheels require and neither the folder nor NAMES or THERE have:
    name to the wheels that need it. Requirements of extras and of other systems are left out.
    Raises Refused for a file that is no wheel."""
    wheels = wheels_in(folder)
    known = {*NAMES, *THERE, *(wheel.name for wheel in wheels)}
    found: dict[str, list[str]] = {}
    for wheel in wheels:
        for name in _requirements(wheel.path) if wheel.name not in NAMES else ():
            if name not in known:
                found.setdefault(name, []).append(wheel.name)
    return found


def _requirements(path: Path) -> Iterator[str]:
    try:
        with ZipFile(path) as archive:
            (title,) = (it for it in archive.namelist() if it.endswith(".dist-info/METADATA"))
            text = archive.read(title).decode()
    except (BadZipFile, ValueError) as error:
        raise Refused(f"{path} cannot be read ({error}); remove it") from error
    for name, rest in re.findall(r"^Requires-Dist: *([\w.-]+)(.*)$", text, re.MULTILINE):
        if not re.search(r"\bextra *==|==? *['\"](win32|darwin|Windows|Darwin)['\"]", rest):
            yield normalized(name)


def _report(folder: Path, limit_mb: float | None) -> int:
    sizes = {path.name: path.stat().st_size / 1e6 for path in sorted(folder.glob("*.whl"))}
    for name, size in sizes.items():
        print(f"{size:7.2f} MB  {name}")
    total = sum(sizes.values())
    print(f"{total:7.2f} MB  {len(sizes)} wheels in {folder}")
    if needed := lacking(folder):
        names = ", ".join(f"{name} (for {', '.join(users)})" for name, users in needed.items())
        print(f"Dependencies are not resolved. Unless the machine has them, name these: {names}")
        print("as in: --also " + " --also ".join(needed))
    if limit_mb is not None and total > limit_mb:
        message = f"the wheels take {total:.1f} MB; expected at most {limit_mb:g} (--limit-mb)."
        print(f"{message} Leave out what the machine has: --without NAME", file=sys.stderr)
        return 1
    return 0


def unpack(folder: Path, site: Path) -> dict[str, str]:
    """Unpack into `site` (on the path) each wheel that fits this Python and whose distribution is
    not installed: what is installed is never shadowed. Returns what is added, name to version.
    Raises Refused for a file that is no archive."""
    added: dict[str, str] = {}
    for wheel in wheels_in(folder):
        if wheel.name in added or is_installed(wheel.name):
            continue
        if not wheel.fits(sys.version_info[:2], platform.machine()):
            continue
        try:
            with ZipFile(wheel.path) as archive:
                archive.extractall(site)
        except (BadZipFile, OSError) as error:
            why = f"{wheel.path} cannot be unpacked ({error})"
            raise Refused(f"{why}; fill the folder anew: {PREPARE}") from error
        for kind in ("purelib", "platlib"):
            for part in site.glob(f"*.data/{kind}/*"):
                shutil.move(part, site / part.name)
        added[wheel.name] = wheel.version
    return added


def check(folder: Path, added: Collection[str]) -> None:
    """Raise Refused where what forkroot needs is neither installed nor was unpacked; print what
    only its tests need. The text has the Python of the folder's wheels, and the command to run."""
    absent = [name for name in NAMES if name not in added and not is_installed(name)]
    if not absent:
        return
    pythons = {
        f"{it[2]}.{it[3:]}"
        for wheel in wheels_in(folder)
        for it in wheel.pythons
        if wheel.abi not in ("none", "abi3") and re.fullmatch(r"cp3\d+", it)
    }
    held = f"compiled wheels for Python {', '.join(sorted(pythons))}" if pythons else "none"
    where = "" if folder == FOLDER else f" {folder}"
    text = (
        f"missing: {', '.join(absent)}. This is Python {HERE} on {platform.machine()}; of wheels, "
        f"{folder} has {held}. With a network: {PREPARE}{where} --python {HERE}"
    )
    if set(absent) & set(RUNNING):
        raise Refused(text)
    print(f"{text}\nOnly tests need these: other stages are run.", flush=True)


def is_installed(name: str) -> bool:
    """Whether a distribution of this name is on the path."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
