"""A quick look at a network in training: on held-out text, which answers would it give token for
token?
"""

import random
from collections import defaultdict
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from .batches import copy_row, encode
from .network import Network
from .tasks.world import documents


@torch.no_grad()
def right_tokens(network: Network, tokens: list[int]) -> list[bool]:
    """For each token but the first, whether the network would have picked it."""
    device = network.embed_tokens.device
    row = torch.tensor([tokens], device=device)
    hidden = network(row, torch.arange(len(tokens), device=device)[None])
    best: Tensor = network.logits(hidden)[0, :-1].argmax(-1)
    return (best == row[0, 1:]).tolist()


def probe(network: Network, folder: Path, num_documents: int = 160) -> dict[str, float]:
    """Per task, the share of held-out documents whose every answer token is right; for copy rows,
    of tokens.
    """
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    scores = defaultdict[str, list[float]](list)
    for doc in islice(documents(99, held_out=True), num_documents):
        tokens, weights = encode(tokenizer, doc, by_part=False)
        right = right_tokens(network, tokens)
        answers = [ok for ok, weight in zip(right, weights[1:], strict=True) if weight >= 1]
        scores[doc.task].append(sum(answers) / len(answers))
    rng = random.Random(99)
    for _ in range(12):
        row = copy_row(rng, 256)
        right = right_tokens(network, row.tokens)
        known = [ok for ok, weight in zip(right, row.weights[1:], strict=True) if weight]
        scores["copy"].append(sum(known) / len(known))
    return {task: round(sum(values) / len(values), 2) for task, values in sorted(scores.items())}
