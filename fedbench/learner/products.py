"""The inner product of every parameter with its gradient: what the loss says of a factor in front of it.

Of a layer y = W x + b, whatever W x is, they follow from y and its gradient: <W, dW> = <y - b, dy>, <b, db> = <b, dy>.
So the gradients of the parameters, a third of a pass, need not be made. Modules with other layers, or that use their
layers in other ways, go the general way.
"""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.learner.samples import Watched, layers_of

Found = tuple[Tensor, Tensor]
Loss = Callable[[Any, Any], Tensor]


class TensorProducts:
    """Loss `[]` and inner products `[tensors]` of batches, for a module in evaluation mode."""

    def __init__(self, module: nn.Module, names: list[str], loss: Loss, like: tuple[Tensor, Tensor]) -> None:
        """names: of the parameters; loss: of (module, batch); like: a batch on which both ways are tried, on a copy."""
        self.module, self.names, self.loss = module, names, loss
        self.layers = layers_of(module)
        if self.layers is not None and not self._agree(*like):
            self.layers = None

    def _agree(self, x: Tensor, y: Tensor) -> bool:
        """Whether both ways find the same, in float64 and away from the first weights, some of which are often 0.

        Whatever fails on noise goes the general way.
        """
        try:
            twin, batch, draw = deepcopy(self.module).double(), (x.double(), y), torch.Generator().manual_seed(0)
            with torch.no_grad():
                for parameter in twin.parameters():
                    parameter.add_(torch.randn(parameter.shape, generator=draw).to(parameter), alpha=0.1)
            layers = layers_of(twin) or {}
            (_, found), (_, expected) = self._by_layers(twin, layers, batch), self._by_gradients(twin, batch)
        except Exception:
            return False
        return torch.allclose(found, expected, rtol=1e-6, atol=1e-9 * float(expected.abs().max()))

    def __call__(self, batch: Any) -> Found:
        if self.layers is not None:
            with suppress(RuntimeError):  # a module that takes another way for other data
                return self._by_layers(self.module, self.layers, batch)
        return self._by_gradients(self.module, batch)

    def _by_gradients(self, module: nn.Module, batch: Any) -> Found:
        parameters = [module.get_parameter(name) for name in self.names]
        loss = self.loss(module, batch)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        products = [(p.detach() * g).sum() for p, g in zip(parameters, gradients, strict=True)]
        return loss.detach(), torch.stack(products)

    def _by_layers(self, module: nn.Module, layers: dict[str, nn.Module], batch: Any) -> Found:
        seen: dict[str, Watched] = {}
        with ExitStack() as hooks:
            for name, layer in layers.items():
                hooks.enter_context(Watched(name, layer, seen))
            loss = self.loss(module, batch)
        refuse_other_uses(loss)
        errors = torch.autograd.grad(loss, [of.edge for of in seen.values()], allow_unused=True)
        found: dict[str, Tensor] = {}
        for (name, of), error in zip(seen.items(), errors, strict=True):
            if error is not None:
                prefix = f"{name}." if name else ""
                found |= {prefix + which: part for which, part in products_of(layers[name], of.output, error).items()}
        none = torch.zeros((), dtype=loss.dtype, device=loss.device)
        return loss.detach(), torch.stack([found.get(name, none) for name in self.names])


def refuse_other_uses(loss: Tensor) -> None:
    """Raises RuntimeError where a parameter came into the loss in more than one way, its layer's and another."""
    nodes, reached, ahead = set(), set(), [loss.grad_fn]
    while ahead:
        for node, _ in ahead.pop().next_functions:  # type: ignore[union-attr]
            if hasattr(node, "variable"):
                if node in reached:
                    raise RuntimeError("a parameter is used twice")
                reached.add(node)
            elif node is not None and node not in nodes:
                nodes.add(node)
                ahead.append(node)


def products_of(layer: nn.Module, output: Tensor, error: Tensor) -> dict[str, Tensor]:
    """Of a layer's weight and bias, `[]`; output and error: of linear layers `[b, *, C]`, of others `[b, C, *]`."""
    bias, of_weight = layer.bias, (output * error).sum()
    if not isinstance(bias, Tensor):
        return {"weight": of_weight}
    channels = error.dim() - 1 if isinstance(layer, nn.Linear) else 1
    totals = error.sum([dim for dim in range(error.dim()) if dim != channels])
    of_bias = torch.dot(totals.to(bias.dtype), bias.detach())
    return {"weight": of_weight - of_bias, "bias": of_bias}
