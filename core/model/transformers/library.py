"""All uses of the library transformers: its configurations, its classes, its loader.

Only its own classes are run, never code that lies in a checkpoint, and only the folder is read,
never the network. The library is an optional one, imported when it is needed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ...api.protocol import InvalidModel
from ...common.extras import how_to_install
from ..config import read_architecture
from ..hub.files import some
from ..keys import Keys
from ..sizes import DTYPE_BYTES
from ..vision.families import FAMILIES, LOOKING_AHEAD
from .attention import NAME, TRIAL, attention_forward
from .trial import trial_mask

_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
_LENGTHS = ("max_position_embeddings", "max_seq_len", "seq_length")  # the latter MPT's and BLOOM's
_WARNING = "warn_if_padding_and_no_attention_mask"
_SAFE = {"local_files_only": True, "trust_remote_code": False}


def read_config(keys: Keys) -> Any:
    """The configuration beside a `config.json` as transformers reads it. Raises InvalidModel."""
    library, name = _transformers(), read_architecture(keys)
    try:
        config = library.AutoConfig.from_pretrained(keys.path.parent, **_SAFE)
    except Exception as error:  # foreign code may raise anything
        version = library.__version__
        raise InvalidModel(
            f"{keys.path}: transformers {version} cannot read this configuration of {name}: {error}"
        ) from error
    if config.is_encoder_decoder:
        raise InvalidModel(f"{keys.path}: {name} has an encoder; expected decoders of text")
    if config.get_text_config() is config:
        _check_sizes(keys, config)
    return config


def _check_sizes(keys: Keys, config: Any) -> None:
    """Raise InvalidModel for missing sizes: transformers would silently use a default."""
    for name in _SIZES:
        stored = config.attribute_map.get(name, name)
        if stored in vars(config) and not {name, stored} & keys.values.keys():
            keys.count(stored)


def stated_context_len(config: Any) -> int:
    """The context length of a model; 0 where the configuration does not state it."""
    text = config.get_text_config()
    return next((length for name in _LENGTHS if (length := getattr(text, name, 0))), 0)


def stored_dtype(config: Any) -> str:
    """Of the weights. Raises InvalidModel."""
    name = str(config.dtype or torch.float32).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise InvalidModel(f"dtype is {name}; expected {', '.join(DTYPE_BYTES)}")
    return name


def eos_ids(config: Any) -> tuple[int, ...]:
    """Tokens that end an answer."""
    ids = getattr(config.get_text_config(), "eos_token_id", None)
    return () if ids is None else tuple(ids) if isinstance(ids, list) else (int(ids),)


def settle_rope(config: Any, context_len: int) -> None:
    """Let no angle depend on a sequence's length so far, see `rotary.frequencies`."""
    _settle(getattr(config.get_text_config(), "rope_parameters", None), context_len)


def _settle(rope: Any, context_len: int) -> None:
    if not isinstance(rope, dict):
        return
    for part in rope.values():  # one for each type of layers
        _settle(part, context_len)
    if rope.get("rope_type") == "dynamic":
        rope["rope_type"] = "default"
        rope.pop("factor", None)
    if rope.get("rope_type") == "longrope":
        is_long = context_len > rope["original_max_position_embeddings"]
        chosen, other = ("long", "short") if is_long else ("short", "long")
        rope[f"{other}_factor"] = rope[f"{chosen}_factor"]


def class_of(keys: Keys) -> Any:
    """The class that a checkpoint names. Raises InvalidModel where that is not a decoder."""
    library, name = _transformers(), read_architecture(keys)
    known = library.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if name in LOOKING_AHEAD and name not in known.values():
        raise InvalidModel(
            f"{keys.path}: tokens of a picture see those after them in {name}; expected causal "
            f"attention, as in {', '.join(FAMILIES)}"
        )
    if name not in known.values() and name not in FAMILIES:
        allowed = (
            f"a decoder of text that transformers {library.__version__} knows, or one of "
            f"{', '.join(FAMILIES)}"
        )
        raise keys.refuse("architectures", allowed)
    return getattr(library, name)


def attention_paths(kind: Any, config: Any) -> tuple[bool, ...]:
    """How a class may call attention, see `attention`: whether torch's function is intercepted,
    the better way first. Classes that do not declare `AttentionInterface` may support it all the
    same; () for classes with their own attention code. Raises InvalidModel for classes that
    keep a state."""
    if getattr(kind, "_is_stateful", False):
        raise InvalidModel(f"{kind.__name__} keeps a state beside its KV; expected attention only")
    if getattr(config.get_text_config(), "alibi", False):
        return ()
    if kind._supports_attention_backend:
        return (False,)
    return (False, True) if kind._supports_sdpa else ()


def own_attention(kind: Any) -> str:
    """The name of the attention that transformers would choose for a class."""
    return "sdpa" if kind._supports_sdpa else "eager"


def build(kind: Any, config: Any, attention: str) -> Any:
    """A model without data to be tried, in bfloat16: some grouped products know no other type."""
    try:
        with torch.device("meta"):
            given = attention_of(config, attention)
            whole = kind._from_config(config, attn_implementation=given, dtype=torch.bfloat16)
    except Exception as error:  # foreign code may raise anything
        raise InvalidModel(f"{kind.__name__} cannot be built: {error}") from error
    return _for_inference(whole)


def without_layers(config: Any) -> Any:
    """A configuration with no layer of text, of which nothing is read but embeddings and head."""
    text = config.get_text_config()
    text.num_hidden_layers = 0
    if getattr(text, "layer_types", None):
        text.layer_types = []
    return config


def picture_numbers(config: Any) -> dict[str, int]:
    """`feature_size` and `tower_numbers` of `Sizes`, for a model that takes pictures: the hidden
    states of all layers, which some towers keep, and what a layer computes."""
    vision = config.vision_config
    width = getattr(vision, "embed_dim", None) or vision.hidden_size
    num_layers = getattr(vision, "depth", None) or vision.num_hidden_layers
    ffn = getattr(vision, "intermediate_size", None) or int(width * vision.mlp_ratio)
    early = getattr(vision, "deepstack_visual_indexes", None) or ()
    return {
        "feature_size": config.get_text_config().hidden_size * (1 + len(early)),
        "tower_numbers": (num_layers + 8) * width + 2 * ffn,
    }


def text_config_of(config: Any) -> dict[str, Any]:
    """The text part of a configuration, with every default, as a decoder's config.json has it."""
    tied = {"tie_word_embeddings": config.tie_word_embeddings}
    return {**config.get_text_config().to_dict(), **tied}


def load_weights(
    kind: Any,
    config: Any,
    folder: Path,
    dtype: torch.dtype,
    attention: str,
    ignored: str | None = None,
) -> Any:
    """A model with the weights of a folder. ignored: names that begin so are not needed. Raises
    InvalidModel for names or shapes that differ."""
    try:
        whole, info = kind.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=attention_of(config, attention),
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are distinguished below
            **_SAFE,
        )
    except Exception as error:  # foreign code may raise anything
        raise InvalidModel(f"{folder} cannot be loaded as {kind.__name__}: {error}") from error
    others = [
        f"{name} with shape {tuple(is_shape)}, where config.json wants {tuple(shape)}"
        for name, is_shape, shape in info["mismatched_keys"]
    ]
    faults = {
        "holds": others,
        "lacks the tensors": info["missing_keys"],
        "holds tensors that the model has no use for:": [
            name
            for name in info["unexpected_keys"]
            if ignored is None or not name.startswith(ignored)
        ],
    }
    for fault, names in faults.items():
        if names:
            raise InvalidModel(f"{folder} {fault} {some(names)}")
    return _for_inference(whole)


def attention_of(config: Any, attention: str) -> Any:
    """An attention for a model's text alone: towers keep that of torch."""
    if config.get_text_config() is config:
        return attention
    towers = dict.fromkeys((name for name in config.sub_configs if name != "text_config"), "sdpa")
    return {**towers, "text_config": attention}


def _for_inference(whole: Any) -> Any:
    """For passes without padding: some models look for it in the tokens of each, to warn."""
    for part in whole.modules():
        if hasattr(part, _WARNING):
            setattr(part, _WARNING, lambda *_: None)
    return whole.eval()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Progress is shown on a terminal only, and warnings of the library not at all."""
    logs = _transformers().logging
    level, is_shown = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    if not sys.stderr.isatty():
        logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(level)
        if is_shown:
            logs.enable_progress_bar()


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise InvalidModel(
            "this architecture is run by transformers, which is not installed; "
            f"expected {how_to_install('hub')}"
        ) from error
    for name in (NAME, TRIAL):
        transformers.AttentionInterface.register(name, attention_forward)
    transformers.AttentionMaskInterface.register(TRIAL, trial_mask)
    return transformers
