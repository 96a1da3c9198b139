"""What pFedGate trains beside the model: a model cut into blocks, and the gate that gives every block a factor."""

from collections.abc import Sequence
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

    def factors(self, values: Tensor) -> list[Tensor]:
        """For each tensor of the model what multiplies its flat elements: `[]` or `[size]`; values `[L]`."""
        return [values[cut.begin] if cut.count == 1 else _spread(cut, values) for cut in self.cuts]

    def scaled(self, vector: Tensor, values: Tensor) -> Tensor:
        """`[N]`: every element times the value of its block. No gradient goes through it."""
        out = torch.empty_like(vector)
        with torch.no_grad():
            for part, factor, target in zip(self.slices(vector), self.factors(values), self.slices(out), strict=True):
                torch.mul(part, factor, out=target)
        return out

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
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w]
        scale, shift = self.line(x)
        return torch.addcmul(shift[..., None, None], x, scale[..., None, None])

    def line(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift `[n, c]` that normalise images `[n, c, h, w]`."""
        means, variances = self._statistics(x.flatten(2))
        mean = torch.tensordot(self.mean_mix.softmax(0), means, 1)
        variance = torch.tensordot(self.var_mix.softmax(0), variances, 1)
        scale = (variance + 1e-5).rsqrt() * self.weight
        return scale, self.bias - mean * scale

    @torch.no_grad()
    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances `[3, n, c]` of instances, layers and the batch, which are given, not learned."""
        mean = x.mean(2)
        # Not `x.var`, which takes five times as long on a CPU.
        var = (x - mean[..., None]).square_().sum(2) / (x.shape[2] - 1)
        square = mean.square() + var
        layer_mean, batch_mean = mean.mean(1, keepdim=True), self.running_mean
        layer_var, batch_var = square.mean(1, keepdim=True) - layer_mean.square(), self.running_var
        if self.training:
            batch_mean = mean.mean(0)
            batch_var = square.mean(0) - batch_mean.square()
            self.running_mean.lerp_(batch_mean, 0.1)
            self.running_var.lerp_(batch_var, 0.1)
        means = torch.stack(torch.broadcast_tensors(mean, layer_mean, batch_mean))
        return means, torch.stack(torch.broadcast_tensors(var, layer_var, batch_var))


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
            return self.batchnorm(self._scores(x)).sigmoid()

    def _scores(self, x: Tensor) -> Tensor:
        """`[n, L]`: linear(norm(x)), where channels are normalised after they were summed up, not pixel by pixel."""
        if not isinstance(self.norm, SwitchNorm):
            return self.linear(x.flatten(1))
        scale, shift = self.norm.line(x)
        weight = self.linear.weight.view(-1, *x.shape[1:]).flatten(2)
        plain = torch.einsum("nci,lci->ncl", x.flatten(2), weight)
        return (scale[..., None] * plain).sum(1) + shift @ weight.sum(2).T + self.linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.factors(x).mean(0)


def copied(module: nn.Module) -> GateState:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}
