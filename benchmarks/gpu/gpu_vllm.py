"""vLLM on prompts that a file holds, with weights that mean nothing: how long each task took. Knows
nothing of forkroot; a process of its own, as vLLM's memory lives as long as that.

The file is an object: folder (of a config.json), dtype, max_model_len, max_num_seqs, memory_share
(of the device's memory), tasks (by name: prompts to warm up, prompts to time, tokens of an answer),
and out, the file that the seconds of each task are written to after each.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer all tasks."""
    from vllm import LLM, SamplingParams, TokensPrompt

    given: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    engine = LLM(
        model=given["folder"],
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype=given["dtype"],
        max_model_len=given["max_model_len"],
        max_num_seqs=given["max_num_seqs"],
        gpu_memory_utilization=given["memory_share"],
        enable_prefix_caching=True,
    )
    seconds: dict[str, float] = {}
    for name, (warming, timed, answer) in given["tasks"].items():
        params = SamplingParams(
            max_tokens=answer, temperature=0.0, ignore_eos=True, detokenize=False
        )
        for prompts in (warming, timed):
            inputs = [TokensPrompt(prompt_token_ids=ids) for ids in prompts]
            started = time.perf_counter()
            found = engine.generate(inputs, params, use_tqdm=False)
            seconds[name] = time.perf_counter() - started
        lengths = {len(it.outputs[0].token_ids) for it in found}
        assert lengths == {answer}, f"answers of {sorted(lengths)} tokens; expected {answer}"
        Path(given["out"]).write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
