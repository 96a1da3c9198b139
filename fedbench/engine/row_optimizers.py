"""The built-in optimisers on rows: their states, and a step in plain arithmetic, which compiles into one function."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedbench.engine.rows import over_rows

STATES: Mapping[str, Mapping[str, bool]] = {
    "sgd": {"momentum_buffer": True},
    "adam": {"exp_avg": True, "exp_avg_sq": True, "step": False},
    "adamw": {"exp_avg": True, "exp_avg_sq": True, "step": False},
}
"""torch.optim's names of an optimiser's states, and whether each is a vector of the size of the parameters."""

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""torch.optim's defaults of Adam and AdamW."""


def step_rows(
    optimizer: str,
    w: Tensor,
    g: Tensor,
    states: Mapping[str, Tensor],
    rate: Tensor | float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Moves w `[..., N]` along the gradients g `[..., N]`, and changes the states, all in place."""
    if optimizer == "sgd":
        if weight_decay:
            g = g + weight_decay * w
        if momentum:
            g = states["momentum_buffer"].mul_(momentum).add_(g)
        w.sub_(rate * g)
        return
    first, second, steps = (states[name] for name in ("exp_avg", "exp_avg_sq", "step"))
    if weight_decay and optimizer == "adamw":
        w.mul_(1 - rate * weight_decay)
    elif weight_decay:
        g = g + weight_decay * w
    steps.add_(1)
    first.lerp_(g, 1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
    counts = over_rows(steps.to(w.dtype), w)
    corrections = [1 - beta**counts for beta in BETAS]
    w.sub_(rate * (first / corrections[0]) / (torch.sqrt(second / corrections[1]) + EPSILON))
