"""Which decoders of transformers run here, by which path, and whether their greedy tokens are those
of transformers' `generate`: every class of its causal mapping, in a tiny random configuration.

Each runs in a process of its own. Prompts are prefilled in chunks, in one batch with others, and
one goes on behind a prefix that another has cached. Prints a table, or JSON lines with `--json`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forkroot.core.api.batch import GREEDY, Batch
from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.checkpoint.load import describe, load_model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.transformers.model import HubConfig

NUM_LAYERS, NUM_NEW, NUM_SLOTS, WIDTH = 4, 12, 512, 48
PROMPTS, ROOT, CHUNK = (40, 5, 23), 17, 16  # tokens of each; of the prefix that a branch shares
SMALL: Mapping[str, Any] = {
    **dict.fromkeys(("vocab_size", "n_vocab"), 97),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim"), WIDTH),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), NUM_LAYERS),
    **dict.fromkeys(("decoder_layers", "encoder_layers"), NUM_LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "num_global_key_value_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"), 80),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "intermediate_size_mlp"), 80),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 24),
    **dict.fromkeys(("expert_ffn_hidden_size", "dense_intermediate_size"), 24),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_top_k", "top_k_experts", "moe_topk"), 2),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace", "num_shared_experts"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 256),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "window_size"), 8),
    **dict.fromkeys(("local_attention", "attention_window_size"), 8),
    **dict.fromkeys(("head_dim", "global_head_dim", "v_head_dim", "attention_head_dim"), 12),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("word_embed_proj_dim", "embedding_size"), WIDTH),
    **dict.fromkeys(("mamba_d_state", "mamba_d_head", "mamba_n_groups", "state_size"), 8),
    **dict.fromkeys(("hidden_size_per_layer_input", "laurel_rank"), 8),
    **dict.fromkeys(("vocab_size_per_layer_input",), 97),
    **dict.fromkeys(("bos_token_id", "decoder_start_token_id"), 1),
    **dict.fromkeys(("eos_token_id",), 2),
    **dict.fromkeys(("pad_token_id",), 0),
    **dict.fromkeys(("initializer_range", "init_std"), 0.2),
    **dict.fromkeys(("num_kv_shared_layers",), 0),
    **dict.fromkeys(("is_decoder",), True),
}
MLA = {"num_key_value_heads": 4, "head_dim": 8}
MORE: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("axk1", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3"), MLA),
    **dict.fromkeys(("longcat_flash", "youtu", "kimi_linear"), MLA),
}


def tiny(kind: str) -> Any:
    """A small configuration of a kind. Raises whatever its library does where it has none."""
    from transformers import CONFIG_MAPPING

    default = CONFIG_MAPPING[kind]()
    if default.get_text_config() is not default:
        raise NotImplementedError("composite: see its text model")
    count = default.num_hidden_layers
    keys = {key: value for key, value in SMALL.items() if _has(default, key)}
    for key, value in default.to_dict().items():
        if isinstance(value, list) and len(value) == count:
            seen = list(dict.fromkeys(value))
            keys[key] = (seen * NUM_LAYERS)[:NUM_LAYERS]
    return CONFIG_MAPPING[kind](**{**keys, **MORE.get(kind, {})})


def _has(config: Any, key: str) -> bool:
    """Whether a key can be set; reading one may fail that differs from layer to layer."""
    known = getattr(type(config), key, None)
    if isinstance(known, property) and known.fset is None:
        return False
    try:
        return hasattr(config, key)
    except Exception:
        return True


def greedy(runner: ModelRunner, prompts: list[list[int]]) -> list[list[int]]:
    """New tokens of each prompt, the last of which goes on behind the first one's first tokens."""
    table = np.full((len(prompts), 256), -1, np.int32)
    free = np.random.default_rng(1).permutation(NUM_SLOTS).astype(np.int32).tolist()
    ids, done = [list(prompt) for prompt in prompts], [0] * len(prompts)
    branch = len(prompts) - 1
    while any(
        len(found) < len(prompt) + NUM_NEW for found, prompt in zip(ids, prompts, strict=True)
    ):
        if not done[branch] and done[0] >= ROOT:
            table[branch, :ROOT], done[branch] = table[0, :ROOT], ROOT
        rows = [row for row in range(len(ids)) if row != branch or done[row]]
        counts = {row: min(CHUNK, len(ids[row]) - done[row]) for row in rows}
        for row, count in counts.items():
            table[row, done[row] : done[row] + count] = [free.pop() for _ in range(count)]
        tokens = runner.run(_batch(ids, done, counts, table)).tokens.tolist()
        for (row, count), token in zip(counts.items(), tokens, strict=True):
            done[row] += count
            if done[row] == len(ids[row]):
                ids[row].append(token)
    return [found[len(p) : len(p) + NUM_NEW] for found, p in zip(ids, prompts, strict=True)]


def _batch(ids: list[list[int]], done: list[int], counts: dict[int, int], table: Any) -> Batch:
    rows = np.array(list(counts), np.int32)
    lens = np.array(list(counts.values()), np.int32)
    spans = [np.arange(done[row], done[row] + count) for row, count in counts.items()]
    new = [np.array(ids[row])[span] for row, span in zip(counts, spans, strict=True)]
    positions = np.concatenate(spans).astype(np.int64)
    return Batch(
        ids=np.concatenate(new).astype(np.int64),
        positions=positions,
        slots=table[np.repeat(rows, lens), positions],
        rows=rows,
        starts=np.array([done[row] for row in counts], np.int32),
        lens=lens,
        table=table,
        sampled=np.cumsum(lens, dtype=np.int32) - 1,
        sampling_params=(GREEDY,) * len(rows),
    )


def judge(kind: str) -> dict[str, Any]:
    """What becomes of one kind."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    try:
        theirs = AutoModelForCausalLM.from_config(tiny(kind)).eval().float()
    except Exception as error:
        return {"kind": kind, "path": "none", "reason": f"no tiny model: {_line(error)}"}
    name, random = type(theirs).__name__, np.random.default_rng(0)
    columns = {"kind": kind, "architecture": name}
    prompts = [random.integers(3, 97, count).tolist() for count in PROMPTS]
    prompts.append(prompts[0][:ROOT] + random.integers(3, 97, 9).tolist())
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        try:
            sizes = describe(Path(folder))
            ours = load_model(folder, sizes, torch.float32, torch.device("cpu"), Ranks())
        except InvalidModel as error:
            return {**columns, "path": "refused", "reason": _line(error).replace(folder, "FOLDER")}
        mine = greedy(ModelRunner(ours, NUM_SLOTS), prompts)
    path = _path(sizes)
    padded = {} if getattr(ours, "can_pad", True) else {"padded": False}
    columns |= {"path": path, **padded}
    try:
        if mine == generated(theirs, prompts, use_cache=True):
            return {**columns, "same": True}
        is_same = mine == generated(theirs, prompts, use_cache=False)
    except Exception as error:
        return {**columns, "reason": f"generate fails: {_line(error)}"}
    reason = "generate itself gives another text with its cache than without"
    return {**columns, "same": is_same, **({"reason": reason} if is_same else {})}


def generated(model: Any, prompts: list[list[int]], use_cache: bool) -> list[list[int]]:
    """New tokens of each prompt by transformers, alone."""
    options = {"max_new_tokens": NUM_NEW, "do_sample": False, "eos_token_id": None}
    options |= {"forced_bos_token_id": None, "forced_eos_token_id": None}
    rows = [
        model.generate(torch.tensor([prompt]), pad_token_id=0, use_cache=use_cache, **options)
        for prompt in prompts
    ]
    return [row[0, len(p) :].tolist() for row, p in zip(rows, prompts, strict=True)]


def _path(sizes: Any) -> str:
    if not isinstance(sizes, HubConfig):
        return "own"
    return "cache" if sizes.cached_layers else "caught" if sizes.intercepts_sdpa else "interface"


def _line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0][:160]
    return line if isinstance(error, InvalidModel) else f"{type(error).__name__}: {line}"


def _send(kind: str, end: Connection) -> None:
    warnings.simplefilter("ignore")
    try:
        end.send(judge(kind))
    except Exception as error:
        end.send({"kind": kind, "path": "failed", "reason": _line(error)})


def judged(kinds: list[str], limit: float) -> Iterator[dict[str, Any]]:
    """What becomes of each kind, in a process of its own that has so many seconds."""
    context = multiprocessing.get_context("fork")
    for kind in kinds:
        mine, other = context.Pipe(duplex=False)
        process = context.Process(target=_send, args=(kind, other))
        process.start()
        other.close()
        reason = f"no result in {limit:g} s" if not mine.poll(limit) else "its process died"
        try:
            row = mine.recv() if reason != f"no result in {limit:g} s" else None
        except EOFError:
            row = None
        yield row or {"kind": kind, "path": "failed", "reason": reason}
        process.kill()
        process.join()


def main() -> None:
    """Print a row for each kind, then how many there are of each outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="model types of transformers; all, if none")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    total: dict[str, int] = {}
    for row in judged(options.kinds or list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), options.limit):
        same = {True: "same tokens", False: "OTHER TOKENS", None: "-"}[row.get("same")]
        outcome = f"{row['path']}, {same}"
        total[outcome] = total.get(outcome, 0) + 1
        cells = (row["kind"], row.get("architecture", "-"), row["path"], same)
        line = "| " + " | ".join((*cells, row.get("reason", ""))) + " |"
        print(json.dumps(row) if options.json else line, flush=True)
    if not options.json:
        print(f"transformers {transformers.__version__}: {json.dumps(total)}")


if __name__ == "__main__":
    main()
