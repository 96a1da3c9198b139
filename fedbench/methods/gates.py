"""What pFedGate trains beside the model: a model cut into blocks, and the gate that gives every block a factor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.learner.layout import Layout

GateState = dict[str, Tensor]


@dataclass(frozen=True)
class Cut:
    """A tensor of `size` elements in `count` pieces of `piece` elements, the last one shorter; `begin`: first block."""

    begin: int
    count: int
    piece: int
    size: int


@dataclass(frozen=True)
class Blocks:
    """The blocks of a model in order; sizes `[L]` in elements; first `[L]`: the first of several pieces of a tensor."""

    cuts: tuple[Cut, ...]
    sizes: tuple[int, ...]
    first: tuple[bool, ...]

    @classmethod
    def of(cls, layout: Layout, per_tensor: int) -> "Blocks":
        cuts: list[Cut] = []
        sizes: list[int] = []
        first: list[bool] = []
        for slot in layout.params:
            piece = ceil(slot.size / min(per_tensor, slot.size))
            cuts.append(Cut(len(sizes), ceil(slot.size / piece), piece, slot.size))
            sizes += [min(piece, slot.size - start) for start in range(0, slot.size, piece)]
            first += [per_tensor > 1 and start == 0 for start in range(0, slot.size, piece)]
        return cls(tuple(cuts), tuple(sizes), tuple(first))

    def spread(self, values: Tensor) -> Tensor:
        """`[N]`: the value of every element's block; values `[L]`."""
        return torch.cat([_spread(cut, values) for cut in self.cuts])

    def scaled(self, tensors: Iterable[Tensor], values: Tensor) -> list[Tensor]:
        """The model's tensors, in any shape, every element times the value of its block."""
        return [
            tensor * (values[cut.begin] if cut.count == 1 else _spread(cut, values).view_as(tensor))
            for tensor, cut in zip(tensors, self.cuts, strict=True)
        ]

    def slices(self, vector: Tensor) -> tuple[Tensor, ...]:
        """A vector `[N]` tensor by tensor."""
        return vector.split([cut.size for cut in self.cuts])

    def products(self, one: Tensor, other: Tensor) -> Tensor:
        """`[L]`: the inner products of two vectors `[N]`, block by block."""
        found = []
        for cut, a, b in zip(self.cuts, self.slices(one), self.slices(other), strict=True):
            if cut.count == 1:
                found.append(torch.dot(a, b)[None])
            else:
                found.append(F.pad(a * b, (0, cut.count * cut.piece - cut.size)).view(cut.count, cut.piece).sum(1))
        return torch.cat(found)


def _spread(cut: Cut, values: Tensor) -> Tensor:
    """Of one tensor. An expansion: its gradient is a plain sum."""
    return values[cut.begin : cut.begin + cut.count, None].expand(-1, cut.piece).reshape(-1)[: cut.size]


def selected(
    factors: Sequence[float], sizes: Sequence[int], groups: Sequence[bool], first: Sequence[bool], share: float
) -> list[bool]:
    """Which blocks stay: those of the largest factors that fit the budget, in each group for itself.

    A group's budget is `share` of its elements; the first pieces of tensors stay whatever they cost.
    """
    keep, budget = list(first), {False: 0.0, True: 0.0}
    for size, group, stays in zip(sizes, groups, first, strict=True):
        budget[group] += share * size - size * stays
    for block in sorted(range(len(sizes)), key=lambda b: -factors[b]):
        if not keep[block] and sizes[block] <= budget[groups[block]] + 1e-6:
            keep[block] = True
            budget[groups[block]] -= sizes[block]
    return keep


class SwitchNorm(nn.Module):
    """Switchable normalisation: learned mixtures of the statistics of instance, layer and batch."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mean_mix, self.var_mix = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        self.weight, self.bias = nn.Parameter(torch.ones(channels, 1, 1)), nn.Parameter(torch.zeros(channels, 1, 1))
        self.register_buffer("running_mean", torch.zeros(1, channels, 1, 1))
        self.register_buffer("running_var", torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w]
        mean = x.mean((2, 3), keepdim=True)
        # Not `x.var`, which takes five times as long on a CPU.
        var = (x - mean).square().sum((2, 3), keepdim=True) / (x[0, 0].numel() - 1)
        square = var + mean.square()
        layer_mean, batch_mean = mean.mean(1, keepdim=True), self.running_mean
        layer_var, batch_var = square.mean(1, keepdim=True) - layer_mean.square(), self.running_var
        if self.training:
            batch_mean = mean.mean(0, keepdim=True)
            batch_var = square.mean(0, keepdim=True) - batch_mean.square()
            self.running_mean.lerp_(batch_mean.detach(), 0.1)
            self.running_var.lerp_(batch_var.detach(), 0.1)
        a, b = self.mean_mix.softmax(0), self.var_mix.softmax(0)
        mixed_mean = a[0] * mean + a[1] * layer_mean + a[2] * batch_mean
        mixed_var = b[0] * var + b[1] * layer_var + b[2] * batch_var
        return (x - mixed_mean) * (mixed_var + 1e-5).rsqrt() * self.weight + self.bias


class Gate(nn.Module):
    """Factors of the blocks for a batch: the mean over it of sigmoid(BatchNorm(Linear(flat input)))."""

    def __init__(self, shape: Sequence[int], blocks: int, switch: bool) -> None:
        super().__init__()
        self.norm = SwitchNorm(shape[0]) if switch else nn.Identity()
        self.linear = nn.Linear(torch.Size(shape).numel(), blocks)
        self.batchnorm = nn.BatchNorm1d(blocks)

    def factors(self, x: Tensor) -> Tensor:
        """`[n, L]`, of each image."""
        with torch.autocast(x.device.type, enabled=False):
            return self.batchnorm(self.linear(self.norm(x).flatten(1))).sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return self.factors(x).mean(0)


def copied(module: nn.Module) -> GateState:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}
