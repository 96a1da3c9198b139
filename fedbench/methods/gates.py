"""What pFedGate trains beside the model: a model cut into blocks, and the gate that gives every block a factor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.learner.layout import Layout

GateState = dict[str, Tensor]
Tensors = tuple[Tensor, ...]
Back = Callable[[Tensor], Tensor]
"""Makes the gradient `[P]` of a gate of that of its factors `[L]`."""

NORM_MOMENTUM = 0.1
"""Of running statistics: the share of this batch's."""


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

    def scaled(self, vector: Tensor, values: Tensor, out: Tensor | None = None) -> Tensor:
        """`[N]`: every element of a vector times the value of its block; values `[L]`, without a gradient."""
        out = torch.empty_like(vector) if out is None else out
        with torch.no_grad():
            for cut, part, target in zip(self.cuts, self.slices(vector), self.slices(out), strict=True):
                torch.mul(part, values[cut.begin] if cut.count == 1 else _spread(cut, values), out=target)
        return out

    def slices(self, vector: Tensor) -> tuple[Tensor, ...]:
        """A vector `[N]` tensor by tensor."""
        return vector.split([cut.size for cut in self.cuts])

    def products(self, one: Tensor, other: Tensor) -> Tensor:
        """`[L]`: the inner products of two vectors `[N]`, block by block."""
        found = []
        for cut, a, b in zip(self.cuts, self.slices(one), self.slices(other), strict=True):
            if cut.count == 1:
                found.append(torch.dot(a, b))
            else:
                padded = F.pad(a * b, (0, cut.count * cut.piece - cut.size))
                found += padded.view(cut.count, cut.piece).sum(1).unbind()
        return torch.stack(found)


def _spread(cut: Cut, values: Tensor) -> Tensor:
    """Of one tensor."""
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

    def line(self, moments: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], Tensors]]:
        """Scale and shift `[n, c]` that normalise the channels of images with these moments.

        With a function that makes the gradients of the parameters of those of scale and shift.
        """
        given = self._statistics(moments)
        mix = torch.stack((self.mean_mix, self.var_mix)).softmax(1)
        mean, variance = torch.bmm(mix[:, None], given.flatten(2)).view_as(moments)
        root = (variance + 1e-5).rsqrt_()
        scale = root * self.weight

        def back(slope: Tensor, shift: Tensor) -> Tensors:
            slope = torch.addcmul(slope, mean, shift, value=-1)
            of_given = torch.stack((shift * scale, slope * scale * root.square() / 2)).neg_()
            of_mix = torch.bmm(given.flatten(2), of_given.view(2, -1, 1))[..., 0]
            of_mix = mix * (of_mix - (mix * of_mix).sum(1, keepdim=True))
            return of_mix[0], of_mix[1], (slope * root).sum(0), shift.sum(0)

        return scale, torch.addcmul(self.bias, mean, scale, value=-1), back

    def _statistics(self, moments: Tensor) -> Tensor:
        """Means, then variances, of instances, layers and the batch `[2, 3, n, c]`, which are given, not learned."""
        mean, variance = moments
        powers = torch.stack((mean, torch.addcmul(variance, mean, mean)))
        given = mean.new_empty(2, 3, *mean.shape)
        given[:, 0] = moments
        given[:, 1] = powers.mean(2, keepdim=True)
        given[:, 2] = powers.mean(1, keepdim=True)
        given[1, 1:] -= given[0, 1:].square()
        if self.training:
            self.running_mean.lerp_(given[0, 2, 0], NORM_MOMENTUM)
            self.running_var.lerp_(given[1, 2, 0], NORM_MOMENTUM)
        else:
            given[0, 2], given[1, 2] = self.running_mean, self.running_var
        return given


def moments_of(x: Tensor) -> Tensor:
    """Mean and variance of every image's channels `[2, n, c]`; x `[n, c, h, w]`."""
    x = x.flatten(2)
    mean = x.mean(2)
    # Not `x.var`, which takes five times as long on a CPU.
    return torch.stack((mean, (x - mean[..., None]).square_().sum(2).div_(x.shape[2] - 1)))


class Gate(nn.Module):
    """Factors of the blocks for a batch: the mean over it of sigmoid(BatchNorm(Linear(flat input))).

    Its gradient is written out: of so many small tensors autograd's own takes several times as long as the rest of a
    gate's step. All parameters are views of the vector `w` `[P]`, in their order.
    """

    def __init__(self, shape: Sequence[int], blocks: int, switch: bool) -> None:
        super().__init__()
        self.norm = SwitchNorm(shape[0]) if switch else None
        self.linear = nn.Linear(torch.Size(shape).numel(), blocks)
        self.batchnorm = nn.BatchNorm1d(blocks)

    def flat(self, device: torch.device, dtype: torch.dtype) -> "Gate":
        """The same as one vector, in this place and precision."""
        self.to(device, dtype)
        self.w = torch.cat([p.detach().flatten() for p in self.parameters()])
        for p, part in zip(self.parameters(), self.w.split([p.numel() for p in self.parameters()]), strict=True):
            p.data = part.view_as(p)
        return self

    @torch.no_grad()
    def forward(self, x: Tensor, moments: Tensor | None = None) -> tuple[Tensor, Back]:
        """The factors `[L]` of a batch; moments: as `moments_of` finds them, where they are known."""
        with torch.autocast(x.device.type, enabled=False):
            found, back = self._factors(x, moments)
        return found.mean(0), back

    @torch.no_grad()
    def factors(self, x: Tensor, moments: Tensor | None = None) -> Tensor:
        """`[n, L]`, of each image."""
        with torch.autocast(x.device.type, enabled=False):
            return self._factors(x, moments)[0]

    def _factors(self, x: Tensor, moments: Tensor | None) -> tuple[Tensor, Back]:
        norm, training = self.batchnorm, self.training
        scores, back_of_scores = self._plain(x) if self.norm is None else self._switched(self.norm, x, moments)
        moving = norm.weight, norm.running_mean, norm.running_var
        out, mean, root = torch.native_batch_norm(
            scores, norm.weight, norm.bias, *moving[1:], training, NORM_MOMENTUM, norm.eps
        )
        if training and norm.num_batches_tracked is not None:
            norm.num_batches_tracked += 1
        found = out.sigmoid_()

        def back(slope: Tensor) -> Tensor:
            with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
                each = torch.ops.aten.sigmoid_backward((slope / len(x)).expand_as(found), found)
                of_scores, *of_norm = torch.ops.aten.native_batch_norm_backward(
                    each, scores, *moving, mean, root, training, norm.eps, [True] * 3
                )
                return torch.cat([part.flatten() for part in (*back_of_scores(of_scores), *of_norm)])

        return found, back

    def _plain(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensors]]:
        """Scores `[n, L]` of inputs as they are."""
        x = x.flatten(1)
        return F.linear(x, self.linear.weight, self.linear.bias), lambda slope: (slope.T @ x, slope.sum(0))

    def _switched(
        self, norm: SwitchNorm, x: Tensor, moments: Tensor | None
    ) -> tuple[Tensor, Callable[[Tensor], Tensors]]:
        """Scores `[n, L]` of normalised images: channels are summed up first, so that pixels need not be normalised."""
        scale, shift, back_of_line = norm.line(moments_of(x) if moments is None else moments)
        x = x.flatten(2)
        x, across = x.transpose(0, 1), scale.T[..., None]  # [c, n, pixels], [c, n, 1]
        weight = self.linear.weight.view(-1, len(x), x.shape[2])  # [L, c, pixels]
        total = weight.sum(2)
        plain = torch.bmm(x, weight.permute(1, 2, 0))  # [c, n, L]
        scores = torch.addmm(self.linear.bias, shift, total.T).add_((plain * across).sum(0))

        def back(slope: Tensor) -> Tensors:
            of_weight = torch.baddbmm((shift.T @ slope)[..., None], (slope * across).transpose(1, 2), x)
            of_line = back_of_line((plain * slope).sum(2).T, slope @ total)
            return *of_line, of_weight.transpose(0, 1), slope.sum(0)

        return scores, back


def copied(module: nn.Module) -> GateState:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}
