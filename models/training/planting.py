"""What the network is given before training: a sense of spelling, and a rough circuit that copies.

Both are only a start that training refines. A run without them could not copy after 800 steps; with
them some copying is there from the first.
"""

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from .network import Layer, Network, Shape

SAME_FOR_ALL = 0.4  # the first dimension of every embedding: what a positional head attends by


@torch.no_grad()
def plant_spelling(network: Network, tokenizer: Tokenizer) -> None:
    """Let tokens that differ only in case or in a leading space, quote or bracket start alike."""
    tokens = [tokenizer.id_to_token(i) or "" for i in range(network.shape.vocab_size)]
    spelling = [token.lstrip('Ġ"[(').lower() or token for token in tokens]
    first = {word: i for i, word in reversed(list(enumerate(spelling)))}
    shared = network.embed_tokens[[first[word] for word in spelling]].clone()
    network.embed_tokens.copy_(0.8 * shared + 0.06 * torch.randn_like(shared))


@torch.no_grad()
def plant_induction(network: Network) -> None:
    """Plant an induction circuit in the first head of layers 0, 1 and 2.

    Layer 0 looks at the token before and writes a sketch of it to a place of its own. Layers 1
    and 2 look for the current token in that place, and add what stands there to the prediction.
    """
    shape, width = network.shape, network.shape.hidden_size
    first, *seekers = [layer for layer in network.layers if isinstance(layer, Layer)][:3]
    dims = slow_dims(shape)
    sketch, place, copy = (
        orthonormal_rows(n, width) for n in (len(dims), len(dims), shape.head_dim)
    )
    network.embed_tokens[:, 0] = SAME_FOR_ALL
    look_one_back(first, shape)
    first.v_proj[: shape.head_dim] = 0
    first.v_proj[: len(dims)] = sketch
    first.o_proj[:, : len(dims)] = 0.15 * place.T
    head = slice(0, shape.head_dim)
    for layer in seekers:
        for weight, look in ((layer.q_proj, sketch), (layer.k_proj, place)):
            weight[head] *= 0.1
            weight[dims] = 2.2 * look
        layer.v_proj[head] = copy
        layer.o_proj[:, head] = 0.5 * copy.T


def look_one_back(layer: Layer, shape: Shape) -> None:
    """Make the first head attend to the token before, by its fast turning pairs."""
    half = shape.head_dim // 2
    turns = shape.rope_theta ** (-torch.arange(half) / half)
    fast = torch.arange(half) < half // 4
    for weight, angle in ((layer.q_proj, torch.zeros(half)), (layer.k_proj, turns)):
        weight[: shape.head_dim] *= 0.1
        weight[: shape.head_dim, 0] = (
            2.4 * (fast * torch.stack((angle.cos(), angle.sin()))).flatten()
        )


def slow_dims(shape: Shape) -> Tensor:
    """The dimensions of a head whose pairs hardly turn within a passage."""
    half, slow = shape.head_dim // 2, shape.head_dim * 5 // 16
    return torch.cat((torch.arange(slow, half), torch.arange(half + slow, 2 * half)))


def orthonormal_rows(count: int, width: int) -> Tensor:
    """Random orthonormal rows [count, width] whose first column is zero."""
    rows: Tensor = torch.linalg.qr(torch.randn(width - 1, count)).Q.T
    return F.pad(rows, (1, 0))
