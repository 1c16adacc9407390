"""Runs one program that was written for SGLang, as `__main__`, on a model of ours.

    python benchmarks/frameworks/sglang_stand_ins.py MODEL PROGRAM [OPTIONS OF THE PROGRAM]

MODEL "scripted": a backend without a model, which has one answer and takes images and videos.
`sglang` is `forkroot.sglang` here. Beside it programs import helpers of SGLang's package that are
no part of its frontend, and packages that would reach for a network: for these there are stand-ins
with the same names.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import forkroot.sglang as sgl
from forkroot.adapters.sglang.endpoints import Endpoint
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.tokenizer import Tokenizer

SERVED = ("Runtime", "RuntimeEndpoint", "OpenAI", "VertexAI")


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit("usage: sglang_stand_ins.py MODEL PROGRAM [OPTION ...]")
    model, program, *options = sys.argv[1:]
    is_scripted = model == "scripted"
    backend = Endpoint(ScriptedBackend("A cat.")) if is_scripted else sgl.Runtime(model)
    install(backend)
    sys.argv = [program, *options]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")
    backend.shutdown()


def install(backend: Endpoint) -> None:
    """Put the frontend and the stand-ins where programs import them from."""
    frontend = {name: getattr(sgl, name) for name in sgl.__all__}
    backend.token_usage = Usage()
    frontend |= dict.fromkeys(SERVED, lambda *_, **__: backend)
    patterns = {
        "REGEX_INT": r"[-+]?[0-9]+[ \n]*",
        "REGEX_FLOAT": r"[-+]?[0-9]*\.?[0-9]+[ \n]*",
        "REGEX_BOOL": r"(True|False)",
        "REGEX_STR": r"\"[\w\d\s]*\"",
    }
    for name in ("sglang.api", "sglang.lang.api"):
        module(name, **frontend)
    module("sglang.lang.ir", **patterns)
    module("sglang.lang.backend.runtime_endpoint", **frontend)
    module("sglang.global_config", global_config=sgl.global_config)
    module("sglang.utils", read_jsonl=read_jsonl, dump_state_text=dump_state_text)
    sys.modules["sglang.utils"].download_and_cache_file = no_download  # type: ignore[attr-defined]
    module(
        "sglang.test.test_utils",
        add_common_sglang_args_and_parse=common_options,
        select_sglang_backend=lambda options: backend,
    )
    module("sglang.lang.chat_template", get_chat_template=lambda name: name)
    module("sglang.srt.utils", load_image=no_download)
    module("requests", get=download)
    if importlib.util.find_spec("PIL") is None:
        module("PIL.ImageFile")
    module("sglang.srt.constrained.outlines_backend", build_regex_from_object=lambda kind: "a*")
    tokenizer = Tokenizer.from_folder(model_folder("tiny"))
    module("vllm.transformers_utils.tokenizer", get_tokenizer=lambda *_, **__: Words(tokenizer))
    module("tiktoken", encoding_for_model=lambda name: Words(tokenizer))
    module("datasets", load_dataset=load_dataset)
    if importlib.util.find_spec("pandas") is None:
        module("pandas", read_csv=no_download)
    module("sglang", **frontend)  # last: `sglang.global_config` is a module and a name of it


def module(name: str, **content: Any) -> None:
    """A module of this name, and the packages that it is in."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        parent = ".".join(parts[:end])
        if parent not in sys.modules or not hasattr(sys.modules[parent], "__path__"):
            sys.modules[parent] = ModuleType(parent)
            sys.modules[parent].__path__ = []  # type: ignore[attr-defined]
        if end > 1:
            setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[parent])
    vars(sys.modules[name]).update(content)


class Usage:
    """Tokens that were paid for: none."""

    prompt_tokens = completion_tokens = 0

    def reset(self) -> None:
        """Nothing to forget."""


class Words:
    """A tokenizer as these programs use one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __len__(self) -> int:
        return len(self._tokenizer.token_bytes)

    def __call__(self, text: str) -> Any:
        return argparse.Namespace(input_ids=self.encode(text))

    def encode(self, text: str, **_: Any) -> list[int]:
        """Token ids of a text."""
        return self._tokenizer.encode(text)

    def decode(self, ids: list[int], **_: Any) -> str:
        """The text of token ids."""
        return self._tokenizer.decode(ids)

    def get_vocab(self) -> dict[str, int]:
        """Texts of tokens, and their ids."""
        return {self._tokenizer.decode([token]): token for token in range(300, 600)}


def common_options(options: argparse.ArgumentParser) -> argparse.Namespace:
    """The options that all of SGLang's benchmark programs have."""
    options.add_argument("--parallel", type=int, default=8)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=30000)
    options.add_argument("--backend", default="srt")
    options.add_argument("--device", default="auto")
    options.add_argument("--result-file", default="result.jsonl")
    options.add_argument("--raw-result-file")
    return options.parse_args()


def read_jsonl(path: str) -> list[Any]:
    """The values of a file with one JSON value a line."""
    return [json.loads(line) for line in Path(path).read_text().splitlines() if line[:1] != "#"]


def dump_state_text(path: str, states: list[Any], mode: str = "w") -> None:
    """Write the texts of states (or the texts themselves) into a file."""
    with open(path, mode) as file:
        for number, state in enumerate(states):
            text = state if isinstance(state, str | list) else state.text()
            file.write(f"===== {number} =====\n{text}\n")


def load_dataset(*_: Any, **__: Any) -> dict[str, list[dict[str, str]]]:
    """Two questions of a quiz."""
    line = {"question": "1 + 1?", "A": "1", "B": "2", "C": "3", "D": "4", "answer": "B"}
    return {"dev": [line], "val": [line, line]}


def download(url: str, **_: Any) -> Any:
    """A reply with the file of this name in the working folder."""
    content = Path(url.rpartition("/")[2]).read_bytes()
    return argparse.Namespace(content=content, raise_for_status=lambda: None)


def no_download(*_: Any, **__: Any) -> Any:
    """There is no network."""
    raise OSError("this program wants a file that is not there, or a package that is not installed")


if __name__ == "__main__":
    main()
