"""Sums of squared per-sample gradients: the diagonal of the empirical Fisher information.

A layer's per-sample gradient follows from the layer's input and the gradient of its output, which one pass of a whole
batch gives (linear layers: Goodfellow, "Efficient per-example gradient computations", 2015). Modules with other
layers, or with other uses of their layers, are computed sample by sample under `vmap`.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap

from fedbench.models.compiled import without_compiler

AT_ONCE = 100
"""Samples per pass by layers."""

UNFOLDED_AT_ONCE = 8
"""Samples that a convolution unfolds at once."""

NUMBERS_AT_ONCE = 1 << 24
"""Numbers in memory at once for per-sample gradients: 64 MB of float32."""


class SquaredGradients:
    """Sums over samples of the squared gradients of their losses, for a module in evaluation mode."""

    def __init__(
        self, module: nn.Module, names: list[str], loss: Callable[..., Tensor], like: tuple[Tensor, Tensor]
    ) -> None:
        """names: of the parameters; loss: a task's; like: two samples with targets, on which both ways are tested."""
        self.module, self.names, self.loss = module, names, loss
        self.layers = layers_of(module)
        if self.layers is not None and self._rules_agree(*like):
            self.at_once = AT_ONCE
        else:
            self.layers = None
            self.at_once = max(1, NUMBERS_AT_ONCE // sum(p.numel() for p in module.parameters()))

    def _rules_agree(self, x: Tensor, y: Tensor) -> bool:
        try:
            by_layers, expected = self._by_layers(x, y), self._by_samples(x, y)
        except RuntimeError:
            return False
        largest = max(float(part.max()) for part in expected)
        return all(
            torch.allclose(*both, rtol=1e-2, atol=1e-6 * largest) for both in zip(by_layers, expected, strict=True)
        )

    def __call__(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """The sum `[*shape]` of every parameter, float64; x and y: at most `at_once` samples with targets."""
        if self.layers is not None:
            with suppress(RuntimeError):  # a module that branches on its data
                return self._by_layers(x, y)
        return self._by_samples(x, y)

    def _by_layers(self, x: Tensor, y: Tensor) -> list[Tensor]:
        assert self.layers is not None
        seen: dict[str, tuple[Tensor, GradientEdge]] = {}
        with ExitStack() as hooks, torch.enable_grad(), without_compiler():
            for name, layer in self.layers.items():
                hooks.callback(layer.register_forward_hook(partial(note_call, seen, name)).remove)
            loss = self.loss(self.module(x), y, reduction="sum")
        errors = torch.autograd.grad(loss, [edge for _, edge in seen.values()], allow_unused=True)
        squares: dict[str, Tensor] = {}
        for (name, (inputs, _)), error in zip(seen.items(), errors, strict=True):
            if error is not None:
                layer = self.layers[name]
                sums = LAYER_RULES[type(layer)](layer, inputs, error)
                squares |= {f"{name}.{which}".lstrip("."): part for which, part in zip(("weight", "bias"), sums)}  # noqa: B905
        shapes = {name: self.module.get_parameter(name).shape for name in self.names}
        return [
            squares[name].view(shape) if name in squares else torch.zeros(shape, dtype=torch.float64, device=x.device)
            for name, shape in shapes.items()
        ]

    def _by_samples(self, x: Tensor, y: Tensor) -> list[Tensor]:
        parameters = {name: self.module.get_parameter(name).detach() for name in self.names}

        def sample_loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return self.loss(functional_call(self.module, parameters, (x[None],)), y[None])

        gradients: Iterable[Any]
        try:
            gradients = vmap(grad(sample_loss), in_dims=(None, 0, 0), randomness="different")(parameters, x, y).values()
        except RuntimeError:  # a forward pass with `.item()` or a branch on a tensor goes sample by sample
            rows = [list(grad(sample_loss)(parameters, *sample).values()) for sample in zip(x, y, strict=True)]
            gradients = (torch.stack(column) for column in zip(*rows, strict=True))
        return [squares_of(part) for part in gradients]


def note_call(
    seen: dict[str, tuple[Tensor, GradientEdge]], name: str, _: nn.Module, args: tuple[Tensor, ...], output: Tensor
) -> None:
    """Notes the input of a layer, and the gradient edge of its output, in `seen`."""
    if name in seen or not args:
        raise RuntimeError(f"{name} is called twice, or by keyword")
    if output.requires_grad:
        seen[name] = args[0].detach(), get_gradient_edge(output)  # which stays if the next layer works in place


def layers_of(module: nn.Module) -> dict[str, nn.Module] | None:
    """The layers of the module's parameters, or None if a layer of another type has some or two share any."""
    layers = {name: part for name, part in module.named_modules() if any(True for _ in part.parameters(recurse=False))}
    held = [id(p) for part in layers.values() for p in part.parameters(recurse=False)]
    known = all(type(part) in LAYER_RULES and _rule_applies(part) for part in layers.values())
    return layers if known and len(held) == len(set(held)) else None


def _rule_applies(layer: nn.Module) -> bool:
    """Whether the rule of its type applies to this layer."""
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return not isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) or layer.running_mean is not None


Sums = list[Tensor]


def square(numbers: Tensor) -> Tensor:
    """Squares, float64. In place on a copy: a second one costs ten times as much in page faults."""
    return numbers.to(torch.float64, copy=True).square_()


def squares_of(rows: Tensor) -> Tensor:
    """`[n]`, float64: sums over the samples of squares `[b, n]`."""
    return square(rows).sum(0)


def of_linear(layer: nn.Module, x: Tensor, error: Tensor) -> Sums:
    """x `[b, *, in]`, error `[b, *, out]`. The square of an outer product is that of the squares."""
    if x.dim() == 2:
        squares = square(error)
        sums = [squares.T @ square(x), squares.sum(0)]
    else:
        x, error = x.flatten(1, -2).to(error.dtype), error.flatten(1, -2)
        sums = [squares_of((error.mT @ x).flatten(1)), squares_of(error.sum(1))]
    return sums if layer.bias is not None else sums[:1]


def of_convolution(layer: nn.Module, x: Tensor, error: Tensor) -> Sums:
    """x `[b, in, h, w]`, error `[b, out, h', w']`. Uses channels last, with longer contiguous patches."""
    assert isinstance(layer, nn.Conv2d)
    assert not isinstance(layer.padding, str)
    (below, beside), (high, wide) = layer.padding, layer.kernel_size
    x = F.pad(x, (beside, beside, below, below)).to(error.dtype).permute(0, 2, 3, 1).contiguous()
    error = error.permute(0, 2, 3, 1).flatten(1, 2)  # [b, h' * w', out]
    total = torch.zeros(layer.weight.numel(), dtype=torch.float64, device=x.device)
    for some, errors in zip(x.split(UNFOLDED_AT_ONCE), error.split(UNFOLDED_AT_ONCE), strict=True):
        total += squares_of((unfold_patches(layer, some).mT @ errors).flatten(1))
    sums = [total.view(high, wide, x.shape[3], -1).permute(3, 2, 0, 1).flatten(), squares_of(error.sum(1))]
    return sums if layer.bias is not None else sums[:1]


def unfold_patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Patches of x `[b, h, w, in]` as `[b, h' * w', kernel * in]`: one copy of a view, unlike `F.unfold`."""
    for dim, size, stride, gap in zip((1, 2), layer.kernel_size, layer.stride, layer.dilation, strict=True):
        x = x.unfold(dim, gap * (size - 1) + 1, stride)[..., ::gap]
    return x.permute(0, 1, 2, 4, 5, 3).flatten(1, 2).flatten(2)


def of_batch_norm(layer: nn.Module, x: Tensor, error: Tensor) -> Sums:
    """x and error `[b, C, *]`, normalised by running statistics."""
    assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)
    normal = F.batch_norm(x, layer.running_mean, layer.running_var, eps=layer.eps).to(error.dtype)
    return [squares_of(part.flatten(2).sum(2) if part.dim() > 2 else part) for part in (error * normal, error)]


LAYER_RULES: dict[type[nn.Module], Callable[[nn.Module, Tensor, Tensor], Sums]] = {
    nn.Linear: of_linear,
    nn.Conv2d: of_convolution,
    nn.BatchNorm1d: of_batch_norm,
    nn.BatchNorm2d: of_batch_norm,
}
