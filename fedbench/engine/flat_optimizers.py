"""SGD and Adam by the functions behind the optimisers of torch: the same bits in a third of their time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedbench.engine.module_optimizer import OptimizerState

step_sgd = partial(sgd, fused=True, dampening=0, nesterov=False, maximize=False)
"""The function behind torch.optim.SGD: a third of the time of the object's step on a small model."""


class FlatSGD:
    """SGD by `step_sgd`."""

    def __init__(
        self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self.param_groups: list[dict[str, Any]] = [
            dict(params=parameters, lr=lr, momentum=momentum, weight_decay=weight_decay)
        ]
        self.state: dict[Tensor, OptimizerState] = {parameter: {} for parameter in parameters}

    @torch.no_grad()
    def step(self) -> None:
        (group,) = self.param_groups
        parameters, momentum = group["params"], group["momentum"]
        buffers = [self.state[p].get("momentum_buffer") for p in parameters] if momentum else []
        rates = dict(lr=group["lr"], momentum=momentum, weight_decay=group["weight_decay"])
        step_sgd(parameters, [p.grad for p in parameters], buffers, **rates)
        for parameter, buffer in zip(parameters, buffers, strict=False):
            self.state[parameter]["momentum_buffer"] = buffer


class FlatAdam:
    """Adam, or AdamW if `decoupled`, by the function behind both.

    Their own step looks for a GPU every time, which takes longer than the step of a small model.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
    ) -> None:
        (self._beta1, self._beta2), self._eps, self._decoupled = betas, eps, decoupled
        self.param_groups: list[dict[str, Any]] = [dict(params=parameters, lr=lr, weight_decay=weight_decay)]
        self.state: dict[Tensor, OptimizerState] = {parameter: {} for parameter in parameters}

    @torch.no_grad()
    def step(self) -> None:
        (group,) = self.param_groups
        for parameter in group["params"]:
            if not self.state[parameter]:
                count = torch.zeros((), dtype=torch.float32, device=parameter.device)
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.state[parameter].update(step=count, **moments)
        states = [self.state[parameter] for parameter in group["params"]]
        adam(
            group["params"],
            [parameter.grad for parameter in group["params"]],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            decoupled_weight_decay=self._decoupled,
            amsgrad=False,
            beta1=self._beta1,
            beta2=self._beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=self._eps,
            maximize=False,
        )


FLAT_KINDS: dict[Any, Callable[..., Any]] = {
    torch.optim.SGD: FlatSGD,
    torch.optim.Adam: FlatAdam,
    torch.optim.AdamW: partial(FlatAdam, weight_decay=0.01, decoupled=True),
}
FLAT_OPTIONS = {"momentum", "weight_decay", "betas", "eps"}
"""The functions' optimisers by those of torch, and the options with which they take their place."""
