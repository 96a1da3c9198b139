"""Gradient steps: the built-in optimisers on the flat vector, or the module's own, with hard freezing."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit
from fedbench.engine.flat_optimizers import FLAT_KINDS, FLAT_OPTIONS
from fedbench.engine.module_optimizer import (
    OptimizerState,
    drop_frozen_gradients,
    module_optimizer,
    own_optimizer,
    restrain,
    rounds_ahead,
)
from fedbench.errors import ConfigError
from fedbench.module.masks import MOST_SLICES, choose, mask_indices, slices_of

Closure = Callable[[], Tensor | None]

SHOW_OPTIMIZER = {"on_before_zero_grad", "on_before_optimizer_step"}
"""Hooks that pass the optimiser to a module."""

LITTLE = 0.25
"""Largest share of scattered entries that are gathered for a step."""


class Stepper:
    """The module's own optimiser. Every step gets fresh gradients, None for unused parameters.

    A frozen entry never moves, by gradient, decay or momentum.
    """

    def __init__(self, engine: Engine, fit: Fit) -> None:
        assert engine.hooks is not None
        with engine.hooks.context.over(rounds_ahead(engine, fit)):
            _, self.optimizer, self.schedulers = module_optimizer(engine.flat.module)
        self.g = engine.flat.g.zero_()
        self._pairs = [
            (p, v) for p, v in zip(engine.flat.parameters, engine.flat.gradient_views, strict=True) if p.requires_grad
        ]
        restrain(self.optimizer, self.schedulers, engine, fit)
        self._engine, self._fit, self._most = engine, fit, engine.train.clip_norm

    def zero_grad(self) -> None:
        for parameter, _ in self._pairs:
            parameter.grad = None

    def gather(self) -> None:
        """Copies the gradients to the flat vector and replaces them by views of it."""
        for parameter, view in self._pairs:
            grad = parameter.grad
            if grad is not view:
                view.zero_() if grad is None else view.copy_(grad)
                parameter.grad = view

    def scale(self, factor: float) -> None:
        """Multiplies the gradients."""
        for parameter, _ in self._pairs:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    def step(self, closure: Closure) -> None:
        """One step; `closure` computes loss and gradient, or returns None to skip the batch."""
        self.optimizer.step(closure if self._most is None else partial(self._compute_and_clip, closure))  # type: ignore[arg-type]

    def _compute_and_clip(self, closure: Closure) -> Tensor | None:
        loss = closure()
        drop_frozen_gradients(self._engine, self._fit)
        assert self._most is not None
        nn.utils.clip_grad_norm_([p for group in self.optimizer.param_groups for p in group["params"]], self._most)
        return loss

    def state(self) -> OptimizerState:
        return self.optimizer.state_dict()["state"]

    def release(self) -> None:
        """Frees what the next fit can reuse."""


class FlatStepper(Stepper):
    """A built-in optimiser in one fused pass over the flat vector, a third less time than three passes on large models.

    Gradients accumulate in the flat vector, because fresh ones cost page faults on large models. Contiguous frozen
    parts are skipped. With scattered ones, the moving entries are stepped as a separate vector if they are few;
    otherwise the frozen ones are restored after every step.
    """

    def __init__(self, engine: Engine, fit: Fit, steps: int) -> None:
        self.schedulers = []
        self.w, self.g = engine.flat.w, engine.flat.g
        self._pairs = list(zip(engine.flat.parameters, engine.flat.gradient_views, strict=True))
        self._trainable = None if fit.move is None else fit.move.mask.to(engine.flat.device)
        self._parts, self._frozen = split_by_mask(self._trainable, engine.flat.layout.size)
        groups = split_by_parts(self._trainable, fit, engine.flat.layout.size) if fit.step.parts else []
        if groups:
            self._parts, self._frozen = [piece for places, _ in groups for piece in places], None
        self._kept = None if self._frozen is None else self.w[self._frozen]
        self._most = engine.train.clip_norm
        self._engine, self._reuse_key = engine, reuse_key(engine, fit, steps)
        self.optimizer: Any = engine.idle_optimizers.pop(self._reuse_key, None) or self._make(fit, steps, groups)
        if self._reuse_key is not None:
            reset_optimizer(self.optimizer, rate_of(engine, fit))
        self._flats: list[nn.Parameter] = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._resumed: OptimizerState = (fit.memory or {}).get("optimizer", {})
        if self._resumed:
            self._resume(self._resumed)

    def _make(self, fit: Fit, steps: int, groups: "Sequence[Group]") -> Any:
        flats = [nn.Parameter(self.w[part]) for part in self._parts]
        for flat, part in zip(flats, self._parts, strict=True):
            flat.grad = self.g[part]
        if not groups:
            return built_in_optimizer(self._engine, flats, fit, steps, flat=True)
        each = iter(flats)
        param_groups = [{"params": [next(each) for _ in places], **settings} for places, settings in groups]
        return built_in_optimizer(self._engine, param_groups, fit, steps, flat=True)

    def zero_grad(self) -> None:
        self.g.zero_()
        for parameter, view in self._pairs:
            parameter.grad = view

    def step(self, closure: Closure) -> None:
        if closure() is None:
            return
        self.gather()
        if self._most is not None:
            clip_gradient(self.g, self._most, self._trainable)
        (flat, *_), (part, *_) = self._flats, self._parts
        if isinstance(part, Tensor):
            assert flat.grad is not None
            torch.index_select(self.w, 0, part, out=flat.detach())
            torch.index_select(self.g, 0, part, out=flat.grad)
        self.optimizer.step()
        if isinstance(part, Tensor):
            self.w.scatter_(0, part, flat.detach())
        elif self._frozen is not None and self._kept is not None:
            self.w.scatter_(0, self._frozen, self._kept)

    def state(self) -> OptimizerState:
        """The optimiser's state as whole vectors `[N]`, unchanged if frozen: another mask can continue it."""
        whole: OptimizerState = {}
        for flat, part in zip(self._flats, self._parts, strict=True):
            for name, value in self.optimizer.state[flat].items():
                if value is None or not value.dim():
                    whole[name] = value if value is None else value.clone()
                else:
                    whole.setdefault(name, self._resumed_vector(name))[part] = value
        if self._frozen is not None:
            assert self._trainable is not None
            for name, value in whole.items():
                if value is not None and value.dim():
                    whole[name] = choose(self._trainable, value, self._resumed_vector(name))
        return whole

    def release(self) -> None:
        if self._reuse_key is not None:
            self._engine.idle_optimizers[self._reuse_key] = self.optimizer

    def _resumed_vector(self, name: str) -> Tensor:
        """A whole vector of the state that this fit continues; zero without one."""
        value = self._resumed.get(name)
        return torch.zeros_like(self.g) if value is None else value.clone()

    def _resume(self, state: OptimizerState) -> None:
        for flat, part in zip(self._flats, self._parts, strict=True):
            self.optimizer.state[flat] = {
                name: value if value is None else (value[part] if value.dim() else value).clone()
                for name, value in state.items()
            }


def clip_gradient(g: Tensor, most: float, moving: Tensor | None = None) -> None:
    """Scales gradients `[..., N]` down to norms of `most`, as torch.nn.utils.clip_grad_norm_ does.

    moving: bool, the entries that move; the others are set to 0.
    """
    if moving is not None:
        g.masked_fill_(~moving, 0)
    norm = torch.linalg.vector_norm(g, dim=-1, keepdim=True)
    g.mul_((most / (norm + 1e-6)).clamp_(max=1.0))


Places = slice | Tensor


def split_by_mask(trainable: Tensor | None, size: int) -> tuple[list[Places], Tensor | None]:
    """The entries that an optimiser steps, as slices of a vector `[N]` or one index, and the index to restore."""
    if trainable is None:
        return [slice(0, size)], None
    slices = slices_of(trainable, MOST_SLICES)
    if slices is not None:
        return [*slices], None
    moving = mask_indices(trainable)
    if len(moving) <= LITTLE * size:
        return [moving], None
    return [slice(0, size)], mask_indices(~trainable)


Group = tuple[Sequence[Places], dict[str, float]]
"""Places of a vector, and what of their steps differs from the others'."""


def split_by_parts(trainable: Tensor | None, fit: Fit, size: int) -> list[Group]:
    """The entries that move, by the parts of a step. Raises ConfigError for scattered ones."""
    rest = torch.ones(size, dtype=torch.bool) if trainable is None else trainable.cpu()
    groups: list[tuple[Tensor, dict[str, float]]] = []
    for part in fit.step.parts:
        entries = part.mask.cpu()
        groups.append((rest & entries, part.settings(fit.step.decay)))
        rest = rest & ~entries
    with_slices: list[Group] = []
    for mask, settings in [(rest, {}), *groups]:
        slices = slices_of(mask, MOST_SLICES)
        if slices is None:
            raise ConfigError(f"a part with steps of its own has more than {MOST_SLICES} ranges in the model's vector")
        if slices:
            with_slices.append((slices, settings))
    return with_slices


def make_stepper(engine: Engine, fit: Fit, steps: int) -> Stepper:
    """The optimiser of a fit of `steps` steps. Raises ConfigError if it cannot step parts in their own way."""
    if fit.step.parts and own_optimizer(engine, fit):
        raise ConfigError(
            "train.optimizer = module: this method steps parts of the model by settings of their own; choose sgd"
        )
    return Stepper(engine, fit) if own_optimizer(engine, fit) else FlatStepper(engine, fit, steps)


def built_in_optimizer(engine: Engine, parameters: list[Any], fit: Fit, steps: int, flat: bool) -> Any:
    """sgd, adam or adamw with the run's options, or the method's rule.

    parameters: or groups of them, in the form of torch.optim; flat: on one vector, in one pass.
    """
    train = engine.train
    rule: partial[Any]
    if fit.step.rule is not None:
        rule = partial(fit.step.rule)
    elif engine.optimizer in ("sgd", "module"):
        rule = partial(torch.optim.SGD, momentum=momentum_of(engine, fit, steps), weight_decay=train.weight_decay)
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[engine.optimizer]
        rule = partial(kind, weight_decay=train.weight_decay)
    is_flat = flat and not shows_optimizer(engine) and not fit.step.parts
    if is_flat and rule.func in FLAT_KINDS and rule.keywords.keys() <= FLAT_OPTIONS:
        return FLAT_KINDS[rule.func](parameters, rate_of(engine, fit), **rule.keywords)
    return rule(parameters, lr=rate_of(engine, fit), fused=flat)


def reuse_key(engine: Engine, fit: Fit, steps: int) -> tuple[str, float] | None:
    """A key, equal for fits that can share an optimiser; None if it has frozen entries, a rule or hooks."""
    if fit.move is not None or fit.step.rule is not None or fit.step.parts or shows_optimizer(engine):
        return None
    return engine.optimizer, momentum_of(engine, fit, steps)


def reset_optimizer(optimizer: Any, rate: float) -> None:
    """Resets an optimiser to before its first step, with this learning rate as a tensor."""
    (group,) = optimizer.param_groups
    (flat,) = group["params"]
    if not isinstance(group["lr"], Tensor):
        group["lr"] = rate_tensor(flat.device)
    group["lr"].fill_(rate)
    for value in optimizer.state[flat].values():
        value.zero_()


def rate_tensor(device: torch.device) -> Tensor:
    """Memory for a learning rate; GPU kernels read it in single precision."""
    return torch.zeros((), dtype=torch.float32 if device.type == "cuda" else torch.float64, device=device)


def rate_of(engine: Engine, fit: Fit) -> float:
    """The learning rate of a fit by a built-in optimiser."""
    return (engine.train.lr if fit.step.lr is None else fit.step.lr) * fit.step.decay


def momentum_of(engine: Engine, fit: Fit, steps: int) -> float:
    """SGD's momentum; 0 if no second step will read it."""
    return 0.0 if fit.memory is None and steps == 1 else engine.train.momentum


def shows_optimizer(engine: Engine) -> bool:
    """Whether hooks of the module see the optimiser."""
    return engine.hooks is not None and bool(SHOW_OPTIMIZER.intersection(engine.hooks.calls))
