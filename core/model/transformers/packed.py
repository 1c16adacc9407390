"""A tower's matrices, packed as this machine multiplies them fastest.

Where compiled loops use AMX they multiply numbers that checkpoints store in half precision with
float32's precision, in less time than torch's product takes. Elsewhere towers stay as they are.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ....kernels.cpu.linear.linear import linear_kernel, multiplies_faster

_PARTS = ("vision_tower", "multi_modal_projector", "visual")


class PackedLinear(nn.Module):
    """As `nn.Linear`, by a kernel. `weight` holds nothing but the dtype and the device."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._kernel = linear_kernel(linear.weight.detach())
        self.weight = nn.Parameter(linear.weight.new_empty(0), requires_grad=False)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """As of `nn.Linear`."""
        out = self._kernel(x.reshape(-1, self.in_features))
        if self.bias is not None:
            out += self.bias
        return out.view(*x.shape[:-1], self.out_features)


def pack_tower(whole: Any) -> bool:
    """Pack the matrices of a model's tower and projector where that is faster; whether any is."""
    found = False
    for name in _PARTS:
        part = getattr(whole.model, name, None)
        for module in [] if part is None else list(part.modules()):
            for key, child in module.named_children():
                if type(child) is nn.Linear and multiplies_faster(child.weight.detach()):
                    setattr(module, key, PackedLinear(child))
                    found = True
    return found
