"""Which files of a repository a checkpoint needs, and which of these a folder lacks.

Knows names only: safetensors are taken, pickled weights, GGUF, ONNX and duplicates are not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from ...api.files import HEADER_BYTES, read_object
from ...api.protocol import InvalidModel

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FIRST = (CONFIG, "generation_config.json", INDEX)  # small, and enough to tell what a model is
TEXT = (
    *(TOKENIZER, "tokenizer_config.json", "chat_template.jinja", "chat_template.json"),
    *("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"),
)
_KINDS = {  # other weights, by how their files' names end
    "pickled weights, which can run code when they are read": (".bin", ".pt", ".pth", ".ckpt"),
    "GGUF weights": (".gguf",),
    "ONNX weights": (".onnx",),
    "weights of other frameworks": (".h5", ".msgpack", ".npz"),
}


def check_files(model: str, names: Collection[str]) -> None:
    """Raise InvalidModel for a repository that holds no checkpoint in safetensors."""
    if "adapter_config.json" in names:
        message = "is an adapter (LoRA): merge it into its model first, and save that"
    elif "model_index.json" in names:
        message = "is a pipeline of diffusers, which makes images"
    elif SINGLE not in names and INDEX not in names:
        message = f"has {_other_weights(names)}; expected {SINGLE} or {INDEX}"
    elif CONFIG not in names:
        message = f"has no {CONFIG}"
    elif TOKENIZER not in names:
        message = (
            f"has no {TOKENIZER}; expected one, as AutoTokenizer.from_pretrained({model!r})"
            ".save_pretrained(folder) writes it: put it into a folder with the model's files"
        )
    else:
        return
    raise InvalidModel(f"{model} {message}")


def _other_weights(names: Collection[str]) -> str:
    """The weights of a repository without safetensors of the usual names, in words."""
    for kind, endings in _KINDS.items():
        if found := [name for name in names if name.endswith(endings)]:
            return f"only {kind} ({some(found)})"
    if found := [name for name in names if name.endswith(".safetensors")]:
        return f"its safetensors in {some(found)}"
    return "no weights"


def first_files(names: Collection[str]) -> list[str]:
    """Files to fetch before the others."""
    return [name for name in FIRST if name in names]


def other_files(names: Collection[str], folder: Path) -> list[str]:
    """Files to fetch next. folder: holds the first ones. Raises InvalidModel where the index of
    the weights cannot be read, or names a file that the repository lacks."""
    weights = weight_names(folder) if INDEX in names else [SINGLE]
    if missing := [name for name in weights if name not in names]:
        raise InvalidModel(f"{INDEX} names {some(missing)}, which the repository lacks")
    return [*(name for name in TEXT if name in names), *weights]


def weight_names(folder: Path) -> list[str]:
    """The weight files that a folder should hold. Raises InvalidModel for a bad index."""
    index = folder / INDEX
    if not index.exists():
        return [SINGLE]
    try:
        names = set(read_object(index, HEADER_BYTES)["weight_map"].values())
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidModel(f"{index} cannot be read as a weight index: {error!r}") from error
    if bad := [name for name in names if not isinstance(name, str) or not is_name(name)]:
        raise InvalidModel(f"{index} names {some(map(repr, bad))}; expected files of its folder")
    return sorted(names)


def is_name(name: str) -> bool:
    """Whether this can be the name of a file, and nothing more."""
    return Path(name).name == name not in (".", "..") and name.isprintable()


def missing_files(folder: Path) -> list[str]:
    """The files that a folder lacks to be a whole checkpoint. Raises InvalidModel for a bad
    index."""
    wanted = [CONFIG, TOKENIZER, *weight_names(folder)]
    return [name for name in wanted if not (folder / name).is_file()]


def some(names: Iterable[str], limit: int = 5) -> str:
    """The first of these names, and how many more there are."""
    names = sorted(names)
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
