"""The built-in optimisers on rows: their states, and a step in plain arithmetic, which compiles into one function."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit
from fedbench.engine.rows import over_rows

STATES: Mapping[str, Mapping[str, bool]] = {
    "sgd": {"momentum_buffer": True},
    "adam": {"exp_avg": True, "exp_avg_sq": True, "step": False},
    "adamw": {"exp_avg": True, "exp_avg_sq": True, "step": False},
}
"""torch.optim's names of an optimiser's states, and whether each is a vector of the size of the parameters."""

RULES = {torch.optim.SGD: "sgd"}


@dataclass(frozen=True)
class RowOptimizer:
    """An optimiser with its settings, by torch.optim's names and defaults."""

    name: str
    momentum: float = 0.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    @classmethod
    def of(cls, engine: Engine, fit: Fit) -> "RowOptimizer | None":
        """That of a fit: the run's, or the method's rule; None for one that is unknown here."""
        if fit.step.rule is None:
            train, is_sgd = engine.train, engine.optimizer == "sgd"
            return cls(engine.optimizer, train.momentum if is_sgd else 0.0, train.weight_decay)
        rule: Any = fit.step.rule
        kind, given, arguments = (rule.func, rule.keywords, rule.args) if isinstance(rule, partial) else (rule, {}, ())
        known = {"momentum", "weight_decay", "betas", "eps"}
        return cls(RULES[kind], **given) if kind in RULES and not arguments and given.keys() <= known else None

    @property
    def states(self) -> Mapping[str, bool]:
        """The names of its states, and whether each is a vector."""
        return STATES[self.name] if self.name != "sgd" or self.momentum else {}

    def step(self, w: Tensor, g: Tensor, states: Mapping[str, Tensor], rate: Tensor | float) -> None:
        """Moves w `[..., N]` along the gradients g `[..., N]`, and changes the states, all in place."""
        if self.name == "sgd":
            if self.weight_decay:
                g = g + self.weight_decay * w
            if self.momentum:
                g = states["momentum_buffer"].mul_(self.momentum).add_(g)
            w.sub_(rate * g)
            return
        first, second, steps = (states[name] for name in ("exp_avg", "exp_avg_sq", "step"))
        if self.weight_decay and self.name == "adamw":
            w.mul_(1 - rate * self.weight_decay)
        elif self.weight_decay:
            g = g + self.weight_decay * w
        steps.add_(1)
        first.lerp_(g, 1 - self.betas[0])
        second.mul_(self.betas[1]).addcmul_(g, g, value=1 - self.betas[1])
        counts = over_rows(steps.to(w.dtype), w)
        corrections = [1 - beta**counts for beta in self.betas]
        w.sub_(rate * (first / corrections[0]) / (torch.sqrt(second / corrections[1]) + self.eps))
