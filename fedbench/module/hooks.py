"""The parts of LightningModule that fedbench's own loop supports; others are refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import ceil
from typing import Any, NoReturn

from lightning import LightningModule
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from torchmetrics import Metric

from fedbench.errors import ConfigError
from fedbench.module.logs import Logs
from fedbench.user_code.misspelt import misspelt_names

TRANSFER = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
CALLED = [
    "on_fit_start",
    "on_train_start",
    "on_train_epoch_start",
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
    "on_train_epoch_end",
    "on_train_end",
    "on_fit_end",
    *TRANSFER,
]
NEED_TRAINER = [
    "optimizer_step",
    "optimizer_zero_grad",
    "configure_gradient_clipping",
    "lr_scheduler_step",
    "backward",
    "configure_callbacks",
]
NOT_IN_LOOP = ["optimizers", "lr_schedulers", "manual_backward", "clip_gradients", "toggle_optimizer", "all_gather"]
READ = ["training_step", "validation_step", "test_step", "forward", "configure_optimizers"]
"""What fedbench itself calls of a LightningModule."""
CHANGE_BATCHES = [*TRANSFER, "on_train_batch_start"]
"""Hooks that can change the images of a step."""

USE_TRAINER = "use --train.engine trainer, which runs it through lightning.Trainer"


class NotInLoop(ConfigError, AttributeError):
    """Also an AttributeError, so that `hasattr(self.trainer, name)` returns False."""


class LoopContext:
    """Stands in for `self.trainer`; refuses anything that it lacks."""

    global_rank = local_rank = node_rank = 0
    world_size = num_nodes = num_devices = 1
    is_global_zero = training = True
    sanity_checking = validating = testing = predicting = False
    logger = DummyLogger()
    loggers = (logger,)
    accumulate_grad_batches, max_steps = 1, -1
    progress_bar_callback = None
    current_epoch = global_step = 0
    max_epochs = num_training_batches = estimated_stepping_batches = 1

    def __init__(self, logs: Logs) -> None:
        object.__setattr__(self, "_logs", logs)

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        return vars(self)["_logs"].callback_metrics()

    def update(self, **values: int) -> None:
        vars(self).update(values)

    def begin(self, plan: list[list[Tensor]]) -> None:
        self.update(
            current_epoch=0,
            global_step=0,
            max_epochs=len(plan),
            estimated_stepping_batches=sum(ceil(len(epoch) / self.accumulate_grad_batches) for epoch in plan),
            num_training_batches=len(plan[0]) if plan else 0,
        )

    @contextmanager
    def over(self, rounds: int) -> Iterator[None]:
        """Sets the number of fits, so that schedules continue across them."""
        length = {name: getattr(self, name) for name in ("max_epochs", "estimated_stepping_batches")}
        self.update(**{name: count * rounds for name, count in length.items()})
        try:
            yield
        finally:
            self.update(**length)

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInLoop(f"the model uses self.trainer.{name}, which the fast loop does not have: {USE_TRAINER}")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise ConfigError(f"the model sets self.trainer.{name}, which the fast loop ignores: {USE_TRAINER}")


class Hooks:
    """A module's overridden fit hooks, and its logs. Raises ConfigError for anything that needs a Trainer."""

    def __init__(self, module: LightningModule) -> None:
        refuse(module)
        self.module, self.logs = module, Logs()
        self.context = LoopContext(self.logs)
        module._trainer = self.context  # type: ignore[assignment]
        module.log = self.logs.log  # type: ignore[method-assign, assignment]
        module.log_dict = self.logs.log_dict  # type: ignore[method-assign]
        for name in NOT_IN_LOOP:
            setattr(module, name, _refusal(type(module).__name__, name))
        self.calls = {hook: getattr(module, hook) for hook in CALLED if overrides(module, hook)}

    def __call__(self, hook: str, *args: Any) -> Any:
        return self.calls[hook](*args) if hook in self.calls else None

    def begin(self, plan: list[list[Tensor]]) -> None:
        """Forgets what another client logged."""
        self.context.begin(plan)
        self.logs.clear()
        self.reset_metrics()

    def reset_metrics(self) -> None:
        """Forgets what the module's metric objects have seen."""
        for child in self.module.modules():
            if isinstance(child, Metric):
                child.reset()

    def transfer(self, batch: Any, device: Any) -> Any:
        """The batch after the transfer hooks; fedbench's batches are on the device already."""
        return batch_after_transfer(self.module, batch, device)


def batch_after_transfer(module: LightningModule, batch: Any, device: Any) -> Any:
    """The batch after a module's own transfer hooks."""
    for hook in TRANSFER:
        if overrides(module, hook):
            given = (device,) if hook == "transfer_batch_to_device" else ()
            batch = getattr(module, hook)(batch, *given, 0)
    return batch


@contextmanager
def as_in_testing(module: LightningModule, context: LoopContext) -> Iterator[None]:
    """A block in which the module's trainer says that it tests."""
    trainer = module._trainer
    module._trainer = context  # type: ignore[assignment]
    context.update(training=False, testing=True)
    try:
        yield
    finally:
        context.update(training=True, testing=False)
        module._trainer = trainer


def refuse(module: LightningModule) -> None:
    """Refuses modules that are known to be unsupported before they run."""
    name = type(module).__name__
    if not module.automatic_optimization:
        raise ConfigError(
            f"{name} optimises manually (automatic_optimization = False), which the fast loop cannot: {USE_TRAINER}"
        )
    for refused in NEED_TRAINER:
        if overrides(module, refused):
            raise ConfigError(f"{name} overrides {refused}, which the fast loop does not call: {USE_TRAINER}")
    if is_param_in_hook_signature(module.training_step, "dataloader_iter", explicit=True):
        raise ConfigError(
            f"{name}.training_step takes dataloader_iter, which is not supported: take (batch, batch_idx)"
        )


def overrides(module: LightningModule, hook: str) -> bool:
    return getattr(type(module), hook, None) is not getattr(LightningModule, hook, None)


def misspelt_hooks(module: LightningModule) -> Iterator[str]:
    """Warnings about names that are probably misspelt hooks."""
    kind = type(module)
    for _, name, meant in misspelt_names(kind, LightningModule, [*READ, *CALLED, *NEED_TRAINER]):
        yield f"model {kind.__name__}: nothing calls {name}: did you mean {meant}?"


def takes_index(module: LightningModule, step: str = "training_step") -> bool:
    """Whether a step takes (batch, batch_idx) rather than the batch alone."""
    return _takes_index(getattr(type(module), step))


def tested_by(module: LightningModule) -> str | None:
    """The step in which the module says how it is evaluated: test_step, else validation_step, if it has one."""
    return next((step for step in ("test_step", "validation_step") if overrides(module, step)), None)


@cache
def _takes_index(step: Callable[..., Any]) -> bool:
    return is_param_in_hook_signature(step, "batch_idx", min_args=2)


def _refusal(module_name: str, name: str) -> Any:
    def refuse_call(*_: Any, **__: Any) -> NoReturn:
        raise ConfigError(f"{module_name} calls self.{name}(), which the fast loop does not have: {USE_TRAINER}")

    return refuse_call
