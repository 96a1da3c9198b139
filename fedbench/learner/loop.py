"""The default engine: the training loop of a LightningModule without a Trainer."""

import inspect
from typing import TYPE_CHECKING, Any

import torch
from lightning import LightningModule
from torch import Tensor
from torchmetrics import Metric

from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.learner.learner import Job, Learner

CALLED = (
    "on_fit_start on_train_start on_train_epoch_start on_train_batch_start on_before_zero_grad on_before_backward "
    "on_after_backward on_before_optimizer_step on_train_batch_end on_train_epoch_end on_train_end on_fit_end "
    "on_before_batch_transfer on_after_batch_transfer"
).split()
NEED_TRAINER = "optimizer_step optimizer_zero_grad configure_gradient_clipping lr_scheduler_step backward".split()
USE_TRAINER = "use --train.engine trainer, which runs it through lightning.Trainer"


class LoopContext:
    """What a module may ask of `self.trainer` in fedbench's own loop; anything else is refused with a clear line."""

    global_rank = local_rank = node_rank = 0
    world_size = num_nodes = num_devices = 1
    is_global_zero = training = True
    sanity_checking = validating = testing = predicting = False
    logger = None
    loggers: list[Any] = []
    accumulate_grad_batches = 1

    def __init__(self) -> None:
        self.current_epoch = self.global_step = 0
        self.begin([])

    def begin(self, plan: list[list[Tensor]]) -> None:
        self.current_epoch = self.global_step = 0
        self.max_epochs, self.max_steps = len(plan), -1
        self.estimated_stepping_batches = sum(map(len, plan))
        self.num_training_batches = len(plan[0]) if plan else 0

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(f"the model uses self.trainer.{name}, which the fast loop does not have: {USE_TRAINER}")


class Hooks:
    """A module's fit hooks, those it overrides only, and the values that it logs."""

    def __init__(self, module: LightningModule) -> None:
        name = type(module).__name__
        if not module.automatic_optimization:
            raise ConfigError(f"{name} sets automatic_optimization = False: manual optimisation cannot be federated here")
        for refused in NEED_TRAINER:
            if _overrides(module, refused):
                raise ConfigError(f"{name} overrides {refused}, which the fast loop does not call: {USE_TRAINER}")
        self.module, self.context = module, LoopContext()
        self.calls = {hook: getattr(module, hook) for hook in CALLED if _overrides(module, hook)}
        self.takes_index = _takes_index(module)
        self.values: dict[str, Any] = {}
        self.metrics: dict[str, Metric] = {}
        module._trainer = self.context  # type: ignore[assignment]
        module.log = self.log  # type: ignore[method-assign, assignment]
        module.log_dict = self.log_dict  # type: ignore[method-assign, assignment]

    def __call__(self, hook: str, *args: Any) -> Any:
        return self.calls[hook](*args) if hook in self.calls else None

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """Stands for LightningModule.log: keep the sum and count of a value, or the metric object."""
        if isinstance(value, Metric):
            self.metrics[name] = value
            return
        value = value.detach() if isinstance(value, Tensor) else torch.tensor(float(value))
        total, count = self.values.get(name, (0.0, 0))
        self.values[name] = (total + value, count + 1)

    def log_dict(self, dictionary: Any, *_: Any, **__: Any) -> None:
        for name, value in dictionary.items():
            self.log(name, value)

    def begin(self, plan: list[list[Tensor]]) -> None:
        """Forget what another client logged."""
        self.context.begin(plan)
        self.values.clear()
        for child in self.module.modules():
            if isinstance(child, Metric):
                child.reset()

    def end_epoch(self) -> dict[str, float]:
        """Means of the values logged in this epoch, and the metrics, which are reset."""
        means = {name: float(total / count) for name, (total, count) in self.values.items()}
        for name, metric in self.metrics.items():
            value = metric.compute()
            if isinstance(value, Tensor) and value.numel() == 1:
                means[name] = float(value)
            metric.reset()
        self.values.clear()
        self.metrics.clear()
        return means


def run(learner: "Learner", job: "Job") -> None:
    """Run a job: every epoch and batch, in Lightning's order of hooks."""
    hooks, stepper = learner.hooks, job.stepper
    assert hooks is not None
    hooks.begin(job.epochs)
    total, steps = torch.zeros((), device=learner.device, dtype=learner.dtype), 0
    hooks("on_fit_start")
    hooks("on_train_start")
    for epoch, batches in enumerate(job.epochs):
        hooks.context.current_epoch = epoch
        if job.before_epoch:
            _ask_before_epoch(learner, job, epoch)
        hooks("on_train_epoch_start")
        for position, index in enumerate(batches):
            loss = _step(learner, job, index, position)
            if loss is not None:
                total += loss
                steps += 1
                hooks.context.global_step += 1
                if stepper.schedulers:
                    stepper.advance("step", hooks.context.global_step, {n: t / c for n, (t, c) in hooks.values.items()})
        hooks("on_train_epoch_end")
        learner.ledger.logged.update(logged := hooks.end_epoch())
        if stepper.schedulers:
            stepper.advance("epoch", epoch + 1, logged)
    hooks("on_train_end")
    hooks("on_fit_end")
    learner.ledger.steps += steps
    learner.ledger.loss_sum += float(total)


def _step(learner: "Learner", job: "Job", index: Tensor, position: int) -> Tensor | None:
    """One gradient step; returns the detached loss, or None where the module skipped the batch."""
    hooks = learner.hooks
    assert hooks is not None
    batch: Any = _transferred(hooks, job.data.batch(index))
    if job.second is not None:
        batch = (batch, next(job.second))
    if hooks("on_train_batch_start", batch, position) == -1:
        return None
    kept: list[Any] = []

    def closure() -> Tensor | None:
        kept[:] = _backward(learner, job, batch, position)
        return kept[0]

    if learner.optimizer == "module":
        job.stepper.step(closure)
    elif closure() is not None:
        job.stepper.step()
    hooks("on_train_batch_end", kept[1], batch, position)
    return None if kept[0] is None else kept[0].detach()


def _backward(learner: "Learner", job: "Job", batch: Any, position: int) -> tuple[Tensor | None, Any]:
    """Loss and gradient of a batch, into the learner's flat gradient; returns (loss, training_step's output)."""
    hooks = learner.hooks
    assert hooks is not None
    with learner.autocast():
        if job.loss is not None:
            output: Any = job.loss(learner.module, batch, job.state)
        else:
            output = learner.module.training_step(*((batch, position) if hooks.takes_index else (batch,)))
        loss = loss_of(output, learner.module)
    if loss is None:
        return None, None
    hooks("on_before_zero_grad", job.stepper.optimizer)
    learner.g.zero_()
    hooks("on_before_backward", loss)
    loss.backward()
    hooks("on_after_backward")
    if job.gradient is not None:
        with torch.no_grad():
            job.gradient(learner.g, learner.w, job.state)
    hooks("on_before_optimizer_step", job.stepper.optimizer)
    return loss, output


def loss_of(output: Any, module: LightningModule) -> Tensor | None:
    """The scalar in what training_step returned: a tensor, a dict with 'loss', or None to skip the batch."""
    loss = output.get("loss") if isinstance(output, dict) else output
    if output is None or (isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad):
        return loss
    raise ConfigError(
        f"{type(module).__name__}.training_step must return a scalar loss, a dict with 'loss', or None; "
        f"it returned {type(output).__name__}"
    )


def task_loss(net: LightningModule, batch: Any) -> Tensor:
    """The module's own loss of a batch, for methods that add terms to it."""
    hooks = getattr(net.log, "__self__", None)
    takes_index = hooks.takes_index if isinstance(hooks, Hooks) else _takes_index(net)
    loss = loss_of(net.training_step(*((batch, 0) if takes_index else (batch,))), net)
    if loss is None:
        raise ConfigError(f"{type(net).__name__}.training_step returned None, which this method cannot use")
    return loss


def _ask_before_epoch(learner: "Learner", job: "Job", epoch: int) -> None:
    """Let a method look at the weights between epochs; whatever it evaluates, training goes on unchanged."""
    kept = learner.weights()
    modes = [(m, m.training) for m in learner.module.modules()]
    assert job.before_epoch is not None
    job.before_epoch(epoch, kept, job.state)
    learner.load(kept)
    for module, mode in modes:
        module.training = mode


def _transferred(hooks: Hooks, batch: Any) -> Any:
    for hook in ("on_before_batch_transfer", "on_after_batch_transfer"):
        if hook in hooks.calls:
            batch = hooks.calls[hook](batch, 0)
    return batch


def _overrides(module: LightningModule, hook: str) -> bool:
    return getattr(type(module), hook, None) is not getattr(LightningModule, hook, None)


def _takes_index(module: LightningModule) -> bool:
    names = list(inspect.signature(module.training_step).parameters)
    if "dataloader_iter" in names:
        raise ConfigError(f"{type(module).__name__}.training_step takes dataloader_iter, which is not supported")
    return len(names) > 1
