"""Muon for matrices and AdamW for the rest, on fp32 master weights with a bfloat16 working copy."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def orthogonal(update: Tensor, steps: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrix to `update`, roughly, by the quintic Newton-Schulz
    iteration in bfloat16.
    """
    wide = update.shape[0] <= update.shape[1]
    x = (update if wide else update.T).to(torch.bfloat16)
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        quartic = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, quartic, x, beta=3.4445)
    return (x if wide else x.T).to(update.dtype)


class Optimizer:
    """One step of Muon (2-D weights of the layers) or AdamW (embedding, norms) per call of `step`.

    network: the working copy, any dtype, whose `grad` is read and whose data is overwritten after
    each step. Parameters that need no gradient stay as they are.
    slower: the share of the rate for some parameters, by name. matrices: how the names of weights
    for Muon begin.
    """

    def __init__(
        self,
        network: nn.Module,
        muon_rate: float,
        adam_rate: float,
        decay: float = 0.01,
        slower: Mapping[str, float] | None = None,
        matrices: tuple[str, ...] = ("layers.",),
    ) -> None:
        self.slower, self.matrices = slower or {}, matrices
        self.network, self.decay = network, decay
        self.muon_rate, self.adam_rate = muon_rate, adam_rate
        self.num_steps = 0
        self.master = {
            n: p.detach().float().clone() for n, p in network.named_parameters() if p.requires_grad
        }
        self.first = {n: torch.zeros_like(p) for n, p in self.master.items()}
        self.second = {
            n: torch.zeros_like(p) for n, p in self.master.items() if not self._is_matrix(n)
        }

    def _is_matrix(self, name: str) -> bool:
        return name.startswith(self.matrices) and self.master[name].ndim == 2

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Apply the gradients at `scale` times the learning rates, and clear them."""
        self.num_steps += 1
        for name, parameter in self.network.named_parameters():
            if name not in self.master:
                continue
            assert parameter.grad is not None
            update = self._muon if self._is_matrix(name) else self._adam
            update(name, parameter.grad.float(), scale * self.slower.get(name, 1.0))
            parameter.copy_(self.master[name])
            parameter.grad = None

    def _muon(self, name: str, grad: Tensor, scale: float, momentum: float = 0.95) -> None:
        weight, first = self.master[name], self.first[name]
        first.lerp_(grad, 1 - momentum)
        direction = orthogonal(grad.lerp(first, momentum))
        rate = scale * self.muon_rate
        weight.mul_(1 - rate * self.decay)
        weight.add_(direction, alpha=-rate * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5)

    def _adam(
        self, name: str, grad: Tensor, scale: float, betas: tuple[float, float] = (0.9, 0.95)
    ) -> None:
        first, second = self.first[name], self.second[name]
        first.lerp_(grad, 1 - betas[0])
        second.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
        unbias = (1 - betas[1] ** self.num_steps) ** 0.5 / (1 - betas[0] ** self.num_steps)
        self.master[name].addcdiv_(
            first, second.sqrt().add_(1e-10), value=-scale * self.adam_rate * unbias
        )

    def state(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("num_steps", "master", "first", "second")}

    @torch.no_grad()
    def load(self, state: dict[str, object]) -> None:
        """Go on from a state of an optimizer of the same network."""
        for key, value in state.items():
            setattr(self, key, value)
        for name, parameter in self.network.named_parameters():
            if name in self.master:
                parameter.copy_(self.master[name])
