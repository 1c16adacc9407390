"""The eyes, a CLIP tower and LLaVA's projector, before the text model, which stays as it is."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor, nn
from transformers import CLIPVisionConfig, CLIPVisionModel

from ..batches import Batch as TextBatch
from ..network import Network, Shape, llama_name, load_weights, rope
from ..scenes.drawing import COLOURS
from ..scenes.scene import WHATS, is_held_out
from .rows import IMAGE_ID, PATCH, SEEN, SIDE, SIZE

_Read: TypeAlias = Callable[[Mapping[str, Tensor], Tensor], Tensor]
TOWER: dict[str, Any] = {
    "model_type": "clip_vision_model",
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "image_size": SIZE,
    "patch_size": PATCH,
    "projection_dim": 128,
    "hidden_act": "gelu",
}
ATTENTION_RANK, MLP_RANK = 8, 4


def waves(width: int) -> Tensor:
    """[1 + NUM_PATCHES, width]: sines and cosines of each patch's row and column; zero for the
    class."""
    rates = SIDE ** (-torch.arange(width // 4) / (width // 4)) * torch.pi / 2
    angles = torch.arange(SIDE)[:, None] * rates
    line = torch.cat((angles.sin(), angles.cos()), dim=1)
    rows, columns = line[:, None].expand(-1, SIDE, -1), line[None].expand(SIDE, -1, -1)
    return F.pad(torch.cat((rows, columns), dim=2).flatten(0, 1), (0, 0, 1, 0))


class Eyes(nn.Module):
    """From pictures to what stands in the place of the text model's embeddings."""

    def __init__(self, text_width: int) -> None:
        super().__init__()
        self.tower: nn.Module = CLIPVisionModel._from_config(
            CLIPVisionConfig(**TOWER), attn_implementation="eager"
        )
        width = TOWER["hidden_size"]
        self.linear_1, self.linear_2 = (
            nn.Linear(width, text_width),
            nn.Linear(text_width, text_width),
        )
        # What each patch shows: learned beside the answers, and not kept.
        self.colour, self.shape = nn.Linear(width, len(COLOURS) + 1), nn.Linear(width, len(SEEN))
        self.place = nn.Linear(text_width, 2)
        with torch.no_grad():
            place = self.tower.get_parameter("embeddings.position_embedding.weight")
            place.copy_(0.5 * waves(width))
            self.linear_1.weight.normal_(std=0.1 / width**0.5)  # the tower gives about ten
            self.linear_2.weight.normal_(std=0.25 / text_width**0.5)  # embeddings are about 0.13
            self.linear_1.bias.zero_()
            self.linear_2.bias.zero_()

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Of pictures [batch, 3, SIZE, SIZE], -1 to 1: what the tower gives for each patch, and
        the features [batch, NUM_PATCHES, text_width]."""
        seen: Tensor = self.tower(pictures, output_hidden_states=True).hidden_states[-1][:, 1:]
        return seen, self.linear_2(F.gelu(self.linear_1(seen)))


def normalised(pictures: "np.ndarray[Any, Any]", dtype: torch.dtype) -> Tensor:
    """[batch, 3, SIZE, SIZE], as the image processor of the checkpoint gives them."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).to(dtype) / 127.5 - 1


class Changes(nn.Module):
    """What is added to the matrices of a text model: for each a product of two thin ones."""

    def __init__(self, text: Network) -> None:
        super().__init__()
        for i, layer in enumerate(text.layers):
            for name, weight in layer.named_parameters():
                if weight.ndim == 2:
                    rank = ATTENTION_RANK if name[0] in "qkvo" else MLP_RANK
                    tall, wide = weight.shape
                    a, b = torch.randn(rank, wide) / wide**0.5, torch.zeros(tall, rank)
                    self.register_parameter(f"{i}_{name}_a", nn.Parameter(a))
                    self.register_parameter(f"{i}_{name}_b", nn.Parameter(b))

    def product(self, layer: nn.Module, i: int, x: Tensor, name: str) -> Tensor:
        """x times a matrix of layer i with what is added to it. The thin ones are applied apart, so
        that no gradient of the whole matrix is computed."""
        a, b = (self.get_parameter(f"{i}_{name}_{end}") for end in "ab")
        return F.linear(x, layer.get_parameter(name)) + F.linear(F.linear(x, a), b)


class Seeing(nn.Module):
    """The eyes and the text model, whose own weights are frozen."""

    def __init__(self, text: Path) -> None:
        super().__init__()
        self.text = Network(Shape())
        load_weights(self.text, text)
        self.text.requires_grad_(False)
        self.changes = Changes(self.text)
        for i, layer in enumerate(self.text.layers):
            layer.product = partial(self.changes.product, layer, i)  # type: ignore[assignment]
        self.eyes = Eyes(self.text.shape.hidden_size)

    def losses(self, batch: Mapping[str, Tensor], read: _Read, rows: int) -> tuple[Tensor, Tensor]:
        """The mean loss of the patches, and that of the answers of the first `rows` pictures (zero
        if none). read: `logits`, maybe compiled."""
        seen, features = self.eyes(batch["pictures"])
        colours, shapes = batch["colours"].flatten(), batch["shapes"].flatten()
        never = _never_seen()
        patches = _patch_loss(self.eyes.colour(seen), colours, never.T[shapes])
        patches = patches + _patch_loss(self.eyes.shape(seen), shapes, never[colours])
        patches = patches + _place_loss(self.eyes.place(features), batch["places"], colours)
        if not rows:
            return patches, torch.zeros(())
        asked = {name: it[:rows] for name, it in batch.items()}
        return patches, _answer_loss(asked, read(asked, features[:rows]))

    def answers(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The likeliest token at each target [rows, NUM_TARGETS]."""
        return self.logits(batch, self.eyes(batch["pictures"])[1]).argmax(-1)

    def logits(self, batch: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Those of the token at each target [rows, NUM_TARGETS, vocabulary]."""
        tokens, blocks, text = batch["tokens"], batch["blocks"], self.text
        x = F.embedding(tokens, text.embed_tokens)
        x = x.masked_scatter((tokens == IMAGE_ID)[..., None], features.to(x.dtype))
        same = blocks[:, :, None] == blocks[:, None, :]
        seen = (same | (blocks == 0)[:, None, :]).tril()[:, None]
        mask = torch.zeros((), dtype=x.dtype).where(seen, -1e4)
        x = self._through(x, batch["positions"], mask)
        x = x.gather(1, batch["picked"][..., None].expand(-1, -1, x.shape[-1]))
        return text.logits(x)

    def _through(self, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """Final hidden states of embeddings x."""
        text = self.text
        cos, sin = rope(positions, text.shape, x.dtype)
        for layer in text.layers:
            x = layer(x, cos, sin, mask)
        return F.rms_norm(x, text.norm.shape, text.norm, text.shape.rms_norm_eps)

    def text_loss(self, batch: TextBatch) -> Tensor:
        """The mean loss of a batch without pictures."""
        tokens, positions, picked, targets, weights = map(torch.from_numpy, batch)
        hidden = self._through(F.embedding(tokens, self.text.embed_tokens), positions)
        logits = self.text.logits(hidden.flatten(0, 1)[picked]).float()
        loss = F.cross_entropy(logits, targets, reduction="none")
        return (loss * weights).sum() / weights.sum()


def _answer_loss(batch: Mapping[str, Tensor], logits: Tensor) -> Tensor:
    targets, weights = batch["targets"].flatten(), batch["weights"].flatten()
    never = batch["unasked"].flatten()[:, None]
    full = logits.float().flatten(0, 1).scatter_add(1, never, torch.full(never.shape, -1e4))
    loss = F.cross_entropy(full, targets, reduction="none")
    return (loss * weights).sum() / weights.sum()


@cache
def _never_seen() -> Tensor:
    """[1 + colours, SEEN]: which pairs are held out."""
    known = [it in WHATS for it in SEEN]  # letters are seen in all colours: of words
    rows = [
        [is_known and is_held_out(it, colour) for it, is_known in zip(SEEN, known, strict=True)]
        for colour in COLOURS
    ]
    return torch.tensor([[False] * len(SEEN), *rows])


def _place_loss(guessed: Tensor, places: Tensor, colours: Tensor) -> Tensor:
    """The mean squared error where there is something."""
    weights = (colours > 0).float()[:, None]
    squares = (guessed.float().flatten(0, 1) - places.flatten(0, 1)) ** 2
    return (squares * weights).sum() / weights.sum().clamp(min=1)


def _patch_loss(logits: Tensor, wanted: Tensor, never: Tensor) -> Tensor:
    """The mean loss, where patches that show nothing count for a tenth. never: classes [patches,
    classes] that are no choice."""
    full = logits.float().flatten(0, 1).masked_fill(never, -1e4)
    loss = F.cross_entropy(full, wanted, reduction="none")
    weights = (wanted > 0) * 0.9 + 0.1
    return (loss * weights).sum() / weights.sum()


def llava_names(network: Seeing) -> dict[str, str]:
    """The names in LLaVA's checkpoints of the weights that are kept. A thin pair whose product is
    added to a text matrix bears its name with `.a` and `.b` behind it."""
    named = dict[str, str]()
    for name, _ in network.named_parameters():
        match name.split(".")[:2]:
            case ["eyes", "tower"]:
                named[name] = f"vision_tower.vision_model.{name.removeprefix('eyes.tower.')}"
            case ["eyes", "linear_1" | "linear_2"]:
                named[name] = f"multi_modal_projector.{name.removeprefix('eyes.')}"
            case ["changes", change]:
                layer, matrix = change[:-2].split("_", 1)
                full = llama_name(f"layers.{layer}.{matrix}")
                named[name] = f"language_model.{full}.{change[-1]}"
    return named


def llava_tensors(network: Seeing, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The trained weights, or where these lack them the network's, in bfloat16 by `llava_names`."""
    own = dict(network.named_parameters())
    return {
        kept: weights.get(name, own[name]).detach().to("cpu", torch.bfloat16).contiguous()
        for name, kept in llava_names(network).items()
    }


@torch.no_grad()
def load_eyes(network: Seeing, folder: Path) -> None:
    """Set the weights to those that were kept in a folder."""
    tensors, own = load((folder / "vision.safetensors").read_bytes()), network.get_parameter
    for name, kept in llava_names(network).items():
        own(name).copy_(tensors[kept])
