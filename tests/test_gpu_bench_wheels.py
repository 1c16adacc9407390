"""The folder of wheels that the script for GPUs fills, checks and unpacks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from forkroot.benchmarks.gpu import gpu_wheels
from forkroot.benchmarks.gpu.gpu_wheels import Wheel

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu" / "gpu.py"


# --- wheels ---------------------------------------------------------------------------------------


def make_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    """A wheel of these files, and its metadata; its name is that of the file."""
    folder.mkdir(exist_ok=True)
    title, version, *_ = name.split("-")
    about = f"{title}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {title}\nVersion: {version}\n"
    with ZipFile(folder / f"{name}.whl", "w") as archive:
        for path, text in {**files, f"{about}/METADATA": metadata}.items():
            archive.writestr(path, text)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{about}/WHEEL", tags)
        archive.writestr(f"{about}/RECORD", "")
    return folder / f"{name}.whl"


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a-1-py3-none-any", True),
        ("a-1-py2.py3-none-any", True),
        ("a-1-py37-none-any", True),
        ("a-1-cp39-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
        ("a-1-cp312-cp312-manylinux_2_28_x86_64", True),
        ("a-1-1build-cp312-cp312-manylinux_2_28_x86_64", True),
        ("a-1-cp313-abi3-manylinux_2_28_x86_64", False),
        ("a-1-cp311-cp311-manylinux_2_28_x86_64", False),
        ("a-1-cp312-cp312-manylinux_2_28_aarch64", False),
        ("a-1-py2-none-any", False),
    ],
)
def test_a_wheel_is_for_a_python_and_a_processor(name: str, fits: bool) -> None:
    assert Wheel.of(Path(f"{name}.whl")).fits((3, 12), "x86_64") is fits


def test_wheels_are_unpacked_but_never_over_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, site = tmp_path / "wheels", tmp_path / "site"
    site.mkdir()
    make_wheel(folder, "Numpy-9.9-py3-none-any", {"numpy/__init__.py": "wrong = True"})
    make_wheel(folder, "gpu_only_here-1.0-py3-none-any", {"gpu_only_here.py": "number = 1"})
    make_wheel(folder, "gpu_only_here-2.0-py3-none-any", {"gpu_only_here.py": "number = 2"})
    part = {"gpu_parted-1.data/purelib/gpu_parted.py": "number = 3"}
    make_wheel(folder, "gpu_parted-1-py3-none-any", part)
    other = "arm" if platform.machine() == "x86_64" else "x86_64"
    make_wheel(folder, f"gpu_other-1-py3-none-manylinux_2_17_{other}", {"gpu_other.py": ""})
    monkeypatch.syspath_prepend(site)
    added = gpu_wheels.unpack(folder, site)
    assert added == {"gpu-only-here": "1.0", "gpu-parted": "1"}
    modules = sorted(it.name for it in site.glob("*.py"))
    assert modules == ["gpu_only_here.py", "gpu_parted.py"] and not (site / "numpy").exists()
    assert (site / "gpu_only_here.py").read_text() == "number = 1"


def test_preparing_downloads_what_is_named_prints_sizes_and_fails_above_the_limit(
    tmp_path: Path,
) -> None:
    source = make_wheel(tmp_path / "index", "gpu_extra-1.0-py3-none-any", {"it.py": "#" * 9000})
    env = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(source.parent)}
    command = [sys.executable, str(SCRIPT), "--prepare", str(tmp_path / "wheels")]
    command += ["--also", "gpu_extra==1.0"]
    command += [option for name in gpu_wheels.NAMES for option in ("--without", name)]
    limited = subprocess.run(
        [*command, "--limit-mb", "0.001"], env=env, capture_output=True, text=True
    )
    (tmp_path / "wheels" / "no_wheel.whl").write_text("")
    assert limited.returncode == 1 and "expected at most 0.001 (--limit-mb)" in limited.stderr
    assert "0.01 MB  gpu_extra-1.0-py3-none-any.whl" in limited.stdout
    foreign = make_wheel(tmp_path / "wheels", "other_of_mine-1.0-py3-none-any", {"mine.py": ""})
    held = sorted(path.name for path in foreign.parent.iterdir())
    missing = subprocess.run([*command, "--also", "gpu_none"], env=env)
    assert missing.returncode == 1
    assert sorted(path.name for path in foreign.parent.iterdir()) == held
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "3 wheels in" in done.stdout


def test_what_an_additional_wheel_requires_is_named(tmp_path: Path) -> None:
    title = "gpu_more-1.0"
    needs = ["torch>=2", "gpu.part", "gpu-win; sys_platform == 'win32'", "gpu-x; extra == 'x'"]
    metadata = "Name: gpu_more\n" + "".join(f"Requires-Dist: {it}\n" for it in needs)
    tmp_path.joinpath("wheels").mkdir()
    with ZipFile(tmp_path / "wheels" / f"{title}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{title}.dist-info/METADATA", metadata)
    assert gpu_wheels.lacking(tmp_path / "wheels") == {"gpu-part": ["gpu-more"]}


def test_a_wheel_that_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "gpu_torn-1-py3-none-any.whl").write_text("PK")
    with pytest.raises(gpu_wheels.Refused, match=r"gpu_torn-1.*cannot be unpacked.*--prepare"):
        gpu_wheels.unpack(tmp_path, tmp_path / "site")
    with pytest.raises(gpu_wheels.Refused, match=r"gpu_torn-1.*cannot be read"):
        gpu_wheels.lacking(tmp_path)


def test_a_folder_for_another_python_is_refused_with_the_command_to_fill_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wheel(tmp_path, "gpu_c-1-cp38-cp38-manylinux_2_17_x86_64", {})
    gpu_wheels.check(tmp_path, gpu_wheels.NAMES)
    monkeypatch.setattr(gpu_wheels, "is_installed", lambda name: name not in ("msgpack", "pytest"))
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    text = rf"missing: msgpack, pytest\. This is Python {here} .* Python 3\.8\..* --python {here}"
    with pytest.raises(gpu_wheels.Refused, match=text):
        gpu_wheels.check(tmp_path, ())
    gpu_wheels.check(tmp_path, ("msgpack",))
    assert "Only tests need these" in capsys.readouterr().out
