"""Gradient steps: the built-in optimisers on the flat vector, or the module's own, with hard freezing."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from lightning import LightningModule
from lightning.pytorch.core.optimizer import _configure_optimizers, _configure_schedulers_automatic_opt
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.optim import Optimizer

from fedbench.bits import bitmask, choose, holds_one, places
from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout, ranges_of

if TYPE_CHECKING:
    from fedbench.learner.learner import Job, Learner

Closure = Callable[[], Tensor | None]
State = dict[Any, Any]

MAX_RANGES = 64
"""A frozen pattern of more runs than this is scattered."""

LITTLE = 0.25
"""Share of scattered entries up to which they are gathered for a step."""


class Stepper:
    """The module's own optimiser. Every step gets fresh gradients, None where a parameter took no part.

    A frozen entry never moves, by gradient, decay or momentum.
    """

    def __init__(self, learner: "Learner", job: "Job") -> None:
        _, self.optimizer, self.schedulers = module_optimizer(learner.module)
        self.g = learner.g.zero_()
        self._pairs = [
            (p, v) for p, v in zip(learner.parameters, learner.gradient_views, strict=True) if p.requires_grad
        ]
        restrain(self.optimizer, learner, job)

    def zero_grad(self) -> None:
        for parameter, _ in self._pairs:
            parameter.grad = None

    def gather(self) -> None:
        """Bring the gradients into the flat vector and leave views of it in their place."""
        for parameter, view in self._pairs:
            grad = parameter.grad
            if grad is not view:
                view.zero_() if grad is None else view.copy_(grad)
                parameter.grad = view

    def step(self, closure: Closure) -> None:
        """One step; `closure` computes loss and gradient, or gives None for a batch that is skipped."""
        self.optimizer.step(closure)  # type: ignore[arg-type]

    def state(self) -> State:
        return self.optimizer.state_dict()["state"]


class FlatStepper(Stepper):
    """A built-in optimiser in one fused pass over the flat vector, a third less time than three passes on large models.

    Gradients add up in the flat vector, because fresh ones for a large model cost page faults. Contiguous frozen parts
    are left out; of scattered ones, what moves is stepped as a vector of its own where it is little, else what is
    frozen is put back after every step.
    """

    def __init__(self, learner: "Learner", job: "Job") -> None:
        self.schedulers = []
        self.w, self.g = learner.w, learner.g
        self._pairs = list(zip(learner.parameters, learner.gradient_views, strict=True))
        self._trainable = None if job.train_only is None else job.train_only.to(learner.device)
        self._parts, self._frozen = parts_of(self._trainable, learner.layout.size)
        self._kept = None if self._frozen is None else self.w[self._frozen]
        self._flats = [nn.Parameter(self.w[part]) for part in self._parts]
        for flat, part in zip(self._flats, self._parts, strict=True):
            flat.grad = self.g[part]
        self.optimizer = built_in(learner, self._flats, job, fused=True)
        spare_search(self.optimizer, learner.device)
        self._resumed: State = (job.memory or {}).get("optimizer", {})
        if self._resumed:
            self._resume(self._resumed)

    def zero_grad(self) -> None:
        self.g.zero_()
        for parameter, view in self._pairs:
            parameter.grad = view

    def step(self, closure: Closure) -> None:
        if closure() is None:
            return
        self.gather()
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

    def state(self) -> State:
        """The optimiser's state as whole vectors `[N]`, as before where frozen: another mask can go on with it."""
        whole: State = {}
        for flat, part in zip(self._flats, self._parts, strict=True):
            for name, value in self.optimizer.state[flat].items():
                if value is None or not value.dim():
                    whole[name] = value
                else:
                    whole.setdefault(name, self._before(name))[part] = value
        if self._frozen is not None:
            assert self._trainable is not None
            for name, value in whole.items():
                if value is not None and value.dim():
                    whole[name] = choose(self._trainable, value, self._before(name))
        return whole

    def _before(self, name: str) -> Tensor:
        """A whole vector of the state that this fit goes on with, zero without one."""
        value = self._resumed.get(name)
        return torch.zeros_like(self.g) if value is None else value.clone()

    def _resume(self, state: State) -> None:
        for flat, part in zip(self._flats, self._parts, strict=True):
            self.optimizer.state[flat] = {
                name: value if value is None else (value[part] if value.dim() else value).clone()
                for name, value in state.items()
            }


Part = slice | Tensor


def parts_of(trainable: Tensor | None, size: int) -> tuple[list[Part], Tensor | None]:
    """What an optimiser steps, as slices of a vector `[N]` or one index, and the index of what is to be put back."""
    if trainable is None:
        return [slice(0, size)], None
    runs = ranges_of(trainable, MAX_RANGES)
    if runs is not None:
        return [slice(*both) for both in runs], None
    moving = places(trainable)
    if len(moving) <= LITTLE * size:
        return [moving], None
    return [slice(0, size)], places(~trainable)


def make_stepper(learner: "Learner", job: "Job") -> Stepper:
    """The optimiser of one fit; one that takes no steps where the method makes its own."""
    return Stepper(learner, job) if own_optimizer(learner, job) else FlatStepper(learner, job)


def own_optimizer(learner: "Learner", job: "Job") -> bool:
    """Whether the module's configure_optimizers makes the steps of this fit."""
    return learner.optimizer == "module" and job.optimizer is None and job.step is None


def built_in(learner: "Learner", parameters: list[nn.Parameter], job: "Job", fused: bool) -> Optimizer:
    """sgd, adam or adamw with the run's options, or what the method asks for."""
    train = learner.train
    rate = (job.lr if job.lr is not None else train.lr) * learner.lr_factor
    if job.optimizer is not None:
        return job.optimizer(parameters, lr=rate, fused=fused)
    if learner.optimizer in ("sgd", "module"):
        once = job.memory is None and sum(map(len, job.epochs)) == 1  # no second step will read a momentum
        momentum = 0 if once else train.momentum
        return torch.optim.SGD(parameters, rate, momentum=momentum, weight_decay=train.weight_decay, fused=fused)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[learner.optimizer]
    return kind(parameters, rate, weight_decay=train.weight_decay, fused=fused)


def spare_search(optimizer: Optimizer, device: torch.device) -> None:
    """Keep Adam from looking for a GPU's driver at every step, in case a CUDA graph is captured: 0.5 ms on a CPU.

    PyTorch has no switch for it. Should it rename the method, steps only stay as slow as they are.
    """
    if device.type == "cpu":
        optimizer._accelerator_graph_capture_health_check = lambda: None  # type: ignore[method-assign]


def module_optimizer(module: LightningModule) -> tuple[Any, Optimizer, list[Any]]:
    """What configure_optimizers returns, the optimiser in it, and its schedulers in Lightning's form.

    Raises ConfigError for anything but one optimiser.
    """
    where = f"{type(module).__name__}.configure_optimizers"
    asked: Any = type(module).configure_optimizers(module)
    if asked is None:
        raise ConfigError(f"{where} returns None: return an optimiser, or choose one with --train.optimizer sgd")
    try:
        optimizers, schedulers, monitor = _configure_optimizers(asked)
        configs = _configure_schedulers_automatic_opt(schedulers, monitor)
    except (MisconfigurationException, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error
    if len(optimizers) != 1:
        raise ConfigError(
            f"{where} returns {len(optimizers)} optimisers, one is expected: give it several parameter groups, "
            "or choose one with --train.optimizer sgd"
        )
    return asked, optimizers[0], configs


def restrain(optimizer: Optimizer, learner: "Learner", job: "Job") -> None:
    """Give a module's or a Trainer's optimiser the memory, learning rate and frozen entries of a fit."""
    if job.memory and "optimizer" in job.memory:
        held = job.memory["optimizer"]
        state = _cloned(held) if job.optimizer is None else by_tensor(held, learner.layout)
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if own_optimizer(learner, job):
        learner.ledger.own_rate = True
        first = optimizer.param_groups[0]
        own = 1.0 if job.lr is None else job.lr / first.get("initial_lr", first["lr"])
        if own * learner.lr_factor != 1:
            scale_rate(optimizer, own * learner.lr_factor)
    spare_search(optimizer, learner.device)
    if job.train_only is not None and _splits_tensors(learner, job.train_only):
        hold_frozen(optimizer, learner.w, job.train_only)


def scale_rate(optimizer: Optimizer, factor: float) -> None:
    """Multiply the learning rate of every step, whatever a scheduler makes of it in between."""
    rates: list[Any] = []

    def before(*_: Any) -> None:
        rates[:] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    def after(*_: Any) -> None:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def hold_frozen(optimizer: Optimizer, w: Tensor, trainable: Tensor) -> None:
    """Undo after every step what it did to frozen entries."""
    moving, kept = bitmask(trainable.to(w.device), w), torch.empty_like(w)

    def before(*_: Any) -> None:
        kept.copy_(w)

    def after(*_: Any) -> None:
        choose(moving, w, kept, in_place=True)

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def advance(schedulers: list[Any], interval: str, count: int, plateau: bool, metrics: Callable[[], dict]) -> None:
    """Step the schedulers of this interval ('step' or 'epoch') and kind; `count` steps or epochs are done."""
    for config in schedulers:
        if config.interval != interval or config.reduce_on_plateau != plateau or count % config.frequency:
            continue
        if not plateau:
            config.scheduler.step()
        elif (value := _monitored(config, metrics())) is not None:
            config.scheduler.step(value)


def _monitored(config: Any, metrics: dict[str, Any]) -> Any:
    if config.monitor not in metrics and config.strict:
        others = f", or monitor one of {', '.join(sorted(metrics))}" if metrics else ""
        raise ConfigError(
            f"the learning-rate scheduler monitors '{config.monitor}', which the model has not logged while training: "
            f"log it in training_step with self.log{others}"
        )
    return metrics.get(config.monitor)


def by_tensor(flat: State, layout: Layout) -> State:
    """An optimiser's state, given as vectors `[N]` and scalars, for one parameter group of all tensors."""
    return {
        k: {n: v[s.start : s.stop].view(s.shape).clone() if v.dim() else v.clone() for n, v in flat.items()}
        for k, s in enumerate(layout.params)
    }


def as_vectors(state: State, layout: Layout) -> State:
    """The other way round; 0 for a tensor that took no step."""
    first: State = next(iter(state.values()), {})
    flat = {n: v if not v.dim() else v.new_zeros(layout.size) for n, v in first.items()}
    for k, held in state.items():
        slot = layout.params[k]
        for name, vector in flat.items():
            if vector.dim():
                vector[slot.start : slot.stop] = held[name].flatten()
    return flat


def _splits_tensors(learner: "Learner", mask: Tensor) -> bool:
    """Whether some tensor is frozen in part; those frozen as a whole get no gradient anyway."""
    parts = (mask[slot.start : slot.stop] for slot in learner.layout.params)
    return any(holds_one(part) and not bool(part.all()) for part in parts)


def _cloned(state: State) -> State:
    return {k: {n: v.clone() if isinstance(v, Tensor) else v for n, v in s.items()} for k, s in state.items()}


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0].strip() if text else type(error).__name__
