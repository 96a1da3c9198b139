"""The optimiser and schedulers of a module's configure_optimizers, and how a fit constrains them."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning import LightningModule
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.core.optimizer import _configure_optimizers, _configure_schedulers_automatic_opt
from torch import Tensor
from torch.optim import Optimizer

from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit
from fedbench.errors import ConfigError, as_config_error
from fedbench.module.hooks import LoopContext
from fedbench.module.layout import Layout
from fedbench.module.logs import Logs
from fedbench.module.masks import bitmask, choose, holds_one

OptimizerState = dict[Any, Any]

SCHEDULE = "schedule"
"""Key of the schedulers' position in the memory of a fit."""
SETTING = (int, float, tuple, Tensor)
"""Settings of an optimiser's groups that a scheduler may change."""


def module_optimizer(module: LightningModule) -> tuple[Any, Optimizer, list[Any]]:
    """The result of configure_optimizers, its (first) optimiser, and its schedulers in Lightning's form.

    Raises ConfigError for anything but one optimiser, or several of a module that optimises manually.
    """
    where = f"{type(module).__name__}.configure_optimizers"
    returned: Any = type(module).configure_optimizers(module)
    if returned is None:
        raise ConfigError(f"{where} returns None: return an optimiser, or choose one with --train.optimizer sgd")
    try:
        optimizers, schedulers, monitor = _configure_optimizers(returned)
        configs = _configure_schedulers_automatic_opt(schedulers, monitor)
    except (MisconfigurationException, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error
    if len(optimizers) != 1 and (module.automatic_optimization or not optimizers):
        raise ConfigError(
            f"{where} returns {len(optimizers)} optimisers instead of one: use several parameter groups, "
            "choose one with --train.optimizer sgd, or optimise manually with --train.engine trainer"
        )
    return returned, optimizers[0], configs


@dataclass(frozen=True)
class OptimizerFacts:
    """What is known of a module's optimiser before any training.

    schedules: the types of its schedulers. optimizer_reevaluates: whether it evaluates the loss of a batch several
    times. left_out: the trainable tensors that no optimiser of the module holds.
    """

    schedules: list[str] = field(default_factory=list)
    optimizer_reevaluates: bool = False
    left_out: list[str] = field(default_factory=list)


def try_optimizer(engine: Engine) -> OptimizerFacts:
    """Raises ConfigError for an invalid configure_optimizers, or one that would train nothing of the model."""
    module, context = engine.flat.module, engine.hooks.context if engine.hooks else LoopContext(Logs())
    context.begin([[torch.zeros(0)] * 100] * max(1, engine.train.epochs))
    if engine.hooks:
        with as_config_error(f"{type(module).__name__}.configure_optimizers fails"):
            returned, optimizer, schedulers = module_optimizer(module)
    else:
        module._trainer = context  # type: ignore[assignment]
        try:
            returned, optimizer, schedulers = module_optimizer(module)
        except Exception:  # `probe` tests what needs a Trainer
            return OptimizerFacts()
        finally:
            module._trainer = None
    left_out = _left_out(engine, _configure_optimizers(returned)[0])
    if len(left_out) == len(engine.flat.parameters):
        raise ConfigError(
            f"{type(module).__name__}.configure_optimizers: its optimiser holds none of the model's trainable tensors, "
            "so nothing would be trained: give it self.parameters()"
        )
    kinds = [type(config.scheduler).__name__ for config in schedulers]
    return OptimizerFacts(kinds, isinstance(optimizer, torch.optim.LBFGS), left_out)


def _left_out(engine: Engine, optimizers: list[Optimizer]) -> list[str]:
    """The names of the model's trainable tensors that no optimiser holds."""
    held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    slots = zip(engine.flat.layout.params, engine.flat.parameters, strict=True)
    return [slot.name for slot, parameter in slots if id(parameter) not in held]


def own_optimizer(engine: Engine, fit: Fit) -> bool:
    """Whether the module's configure_optimizers makes the steps of this fit."""
    return engine.optimizer == "module" and fit.step.rule is None


def restrain(optimizer: Optimizer, schedulers: list[Any], engine: Engine, fit: Fit) -> None:
    """Sets the memory, learning rate and frozen entries of a fit in a module's or a Trainer's optimiser.

    schedulers: of the optimiser, in Lightning's form; they continue from its memory.
    """
    if fit.memory and "optimizer" in fit.memory:
        held = fit.memory["optimizer"]
        state = deepcopy(held) if fit.step.rule is None else by_tensor(held, engine.flat.layout)
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if fit.memory and schedulers and SCHEDULE in fit.memory:
        _go_on(optimizer, schedulers, fit.memory[SCHEDULE])
    if own_optimizer(engine, fit):
        engine.ledger.own_rate = True
        first, rate = optimizer.param_groups[0], fit.step.lr
        scale = engine.train.lr_scale if rate is None else rate / first.get("initial_lr", first["lr"])
        if scale * fit.step.decay != 1:
            scale_rate(optimizer, scale * fit.step.decay)
    if fit.move is not None and _splits_tensors(engine, fit.move.mask):
        hold_frozen(optimizer, engine.flat.w, fit.move.mask)


def keep_schedule(fit: Fit, optimizer: Optimizer, schedulers: list[Any], epochs: int) -> None:
    """Saves the schedulers' position after `epochs` epochs to the memory of a fit."""
    if fit.memory is not None and schedulers:
        settings = [{k: v for k, v in group.items() if isinstance(v, SETTING)} for group in optimizer.param_groups]
        states = [config.scheduler.state_dict() for config in schedulers]
        kept = {"schedulers": states, "settings": settings, "epochs": epochs_before(fit) + epochs}
        fit.memory[SCHEDULE] = deepcopy(kept)


def epochs_before(fit: Fit) -> int:
    """Epochs that the schedulers of a fit have seen in earlier ones."""
    return int((fit.memory or {}).get(SCHEDULE, {}).get("epochs", 0))


def rounds_ahead(engine: Engine, fit: Fit) -> int:
    """The number of fits that a schedule covers."""
    if not engine.train.keep_optimizer or fit.memory is None:
        return 1
    engine.uses_rounds = True
    return engine.rounds


def _go_on(optimizer: Optimizer, schedulers: list[Any], kept: dict[str, Any]) -> None:
    kept = deepcopy(kept)
    for group, settings in zip(optimizer.param_groups, kept["settings"], strict=True):
        group.update(settings)
    for config, state in zip(schedulers, kept["schedulers"], strict=True):
        config.scheduler.load_state_dict(state)


def scale_rate(optimizer: Optimizer, factor: float) -> None:
    """Multiplies the learning rate of every step, independent of schedulers."""
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
    """Restores frozen entries after every step."""
    moving, kept = bitmask(trainable.to(w.device), w), torch.empty_like(w)

    def before(*_: Any) -> None:
        kept.copy_(w)

    def after(*_: Any) -> None:
        choose(moving, w, kept, in_place=True)

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def drop_frozen_gradients(engine: Engine, fit: Fit) -> None:
    """Sets the gradients of frozen entries to 0, so that they have no part in a norm."""
    for parameter, slot in zip(engine.flat.parameters, engine.flat.layout.params, strict=True):
        if fit.move is not None and parameter.grad is not None:
            moving = slot.view(fit.move.mask)
            parameter.grad.masked_fill_(~moving.to(parameter.grad.device), 0)


def _splits_tensors(engine: Engine, mask: Tensor) -> bool:
    """Whether a tensor is partly frozen; wholly frozen tensors get no gradient anyway."""
    parts = (mask[slot.place] for slot in engine.flat.layout.params)
    return any(holds_one(part) and not bool(part.all()) for part in parts)


def advance(
    schedulers: list[Any], interval: str, count: int, plateau: bool, metrics: Callable[[], dict[str, Any]]
) -> None:
    """Steps the schedulers of this interval ('step' or 'epoch') and kind after `count` steps or epochs."""
    for config in schedulers:
        if config.interval != interval or config.reduce_on_plateau != plateau or count % config.frequency:
            continue
        if not plateau:
            config.scheduler.step()
        elif (value := _monitored_value(config, metrics())) is not None:
            config.scheduler.step(value)


def _monitored_value(config: Any, metrics: dict[str, Any]) -> Any:
    if config.monitor not in metrics and config.strict:
        others = f", monitor one of {', '.join(sorted(metrics))}" if metrics else ""
        raise ConfigError(
            f"the learning-rate scheduler monitors '{config.monitor}', which training_step does not log, and clients "
            f"run no validation_step: log it there with self.log{others}, leave the rate as it is with "
            '"strict": False in lr_scheduler, or choose another optimiser with --train.optimizer sgd'
        )
    return metrics.get(config.monitor)


def by_tensor(flat: OptimizerState, layout: Layout) -> OptimizerState:
    """An optimiser's state, given as vectors `[N]` and scalars, for one parameter group of all tensors."""
    return {
        k: {n: s.view(v).clone() if v.dim() else v.clone() for n, v in flat.items()}
        for k, s in enumerate(layout.params)
    }


def as_vectors(state: OptimizerState, layout: Layout) -> OptimizerState:
    """The inverse; 0 for a tensor without steps."""
    first: OptimizerState = next(iter(state.values()), {})
    flat = {n: v if not v.dim() else v.new_zeros(layout.size) for n, v in first.items()}
    for k, held in state.items():
        slot = layout.params[k]
        for name, vector in flat.items():
            if vector.dim():
                slot.view(vector).copy_(held[name])
    return flat
