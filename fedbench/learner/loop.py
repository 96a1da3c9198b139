"""The default engine: the training loop of a LightningModule without a Trainer."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.errors import ConfigError
from fedbench.learner import seeds
from fedbench.learner.hooks import takes_index
from fedbench.learner.optimizers import Stepper, advance, make_stepper

if TYPE_CHECKING:
    from fedbench.learner.learner import Job, Learner


def run(learner: "Learner", job: "Job") -> None:
    """Run a job: every epoch and batch, in Lightning's order of hooks."""
    hooks = learner.hooks
    assert hooks is not None
    hooks.begin(job.epochs)
    loop = (Loop if job.step is None else OwnSteps)(learner, job, make_stepper(learner, job))
    hooks("on_fit_start")
    hooks("on_train_start")
    for epoch, batches in enumerate(job.epochs):
        loop.epoch(epoch, batches)
    hooks.context.update(current_epoch=len(job.epochs))
    hooks("on_train_end")
    hooks("on_fit_end")
    learner.ledger.add(loop.losses)
    if job.memory is not None:
        job.memory["optimizer"] = loop.stepper.state()


class Loop:
    """One fit under way. What is the same for every batch is looked up once."""

    def __init__(self, learner: "Learner", job: "Job", stepper: Stepper) -> None:
        assert learner.hooks is not None
        self.learner, self.job, self.stepper, self.hooks = learner, job, stepper, learner.hooks
        self.autocast = learner.autocast()
        self.with_index = takes_index(learner.module)
        self.transfers = any("transfer" in hook for hook in self.hooks.calls)
        self.losses: list[Tensor] = []
        self.batch: Any = None
        self.position = 0
        self.loss: Tensor | None = None
        self.output: Any = None

    def epoch(self, epoch: int, batches: list[Tensor]) -> None:
        hooks, logs = self.hooks, self.hooks.logs
        hooks.context.update(current_epoch=epoch)
        if self.job.before_epoch:
            ask_before_epoch(self.learner, self.job, epoch)
        hooks("on_train_epoch_start")
        for position, index in enumerate(batches):
            logs.in_step = True
            if not self.step(index, position, last=position + 1 == len(batches)):
                break
        logs.in_step = False
        hooks("on_train_epoch_end")
        self.advance("epoch", epoch + 1, plateau=True)
        self.learner.ledger.logged.update(logs.end_epoch())

    def step(self, index: Any, position: int, last: bool) -> bool:
        """One gradient step. False where on_train_batch_start asks to skip the rest of the epoch."""
        hooks, context = self.hooks, self.hooks.context
        self.batch, self.position = self.fetch(index), position
        go_on = hooks("on_train_batch_start", self.batch, position) != -1
        if go_on:
            if self.job.before_step is not None:
                self.job.before_step(self.batch, self.stepper.optimizer, self.job.state)
            self.stepper.step(self.closure)
            if self.job.after_step is not None:
                self.job.after_step(self.batch, self.stepper.optimizer, self.job.state)
            context.update(global_step=context.global_step + 1)
            if self.loss is not None:
                self.losses.append(self.loss.detach())
        if self.stepper.schedulers:
            self.advance("step", position + 1, plateau=False)
            if last or not go_on:
                self.advance("epoch", context.current_epoch + 1, plateau=False)
        if go_on:
            if "on_train_batch_end" in hooks.calls:
                hooks("on_train_batch_end", result_of(self.output, self.loss), self.batch, position)
            self.advance("step", position + 1, plateau=True)
        return go_on

    def fetch(self, index: Tensor) -> Any:
        self.hooks.logs.batch_size = len(index)
        self.job.state.index = index
        batch = self.job.batch(index)
        return self.hooks.transferred(batch, self.learner.device) if self.transfers else batch

    def closure(self) -> Tensor | None:
        """Loss and gradient of the batch."""
        hooks, stepper, job = self.hooks, self.stepper, self.job
        with torch.enable_grad(), self.autocast:
            self.output = self.forward()
            self.loss = loss = loss_of(self.output, self.learner.module)
        hooks("on_before_zero_grad", stepper.optimizer)
        stepper.zero_grad()
        if loss is not None:
            hooks("on_before_backward", loss)
            loss.backward()
            hooks("on_after_backward")
            if job.gradient is not None:
                stepper.gather()
                with torch.no_grad():
                    job.gradient(self.learner.g, self.learner.w, job.state)
        hooks("on_before_optimizer_step", stepper.optimizer)
        return loss

    def forward(self) -> Any:
        module = self.learner.module
        if self.job.loss is not None:
            return self.job.loss(module, self.batch, self.job.state)
        return module.training_step(self.batch, self.position) if self.with_index else module.training_step(self.batch)

    def advance(self, interval: str, count: int, plateau: bool) -> None:
        if self.stepper.schedulers:
            advance(self.stepper.schedulers, interval, count, plateau, self.hooks.logs.callback_metrics)


class OwnSteps(Loop):
    """Steps that a method makes itself: what its `step` asks for gradients, as often and wherever in `w` it likes.

    group: index tensors of the batches of this step. Every pass is one in train mode, counts as a gradient step and
    calls the module's hooks around a gradient; those around a batch are called once for a step.
    """

    def step(self, index: Any, position: int, last: bool) -> bool:
        hooks, context, own = self.hooks, self.hooks.context, self.job.step
        assert own is not None
        self.group: Sequence[Tensor] = index
        self.fetched, self.position = -1, position
        self._choose(0)
        if hooks("on_train_batch_start", self.batch, position) == -1:
            return False
        with torch.no_grad():
            own(self, self.learner.w, self.job.state)
        context.update(global_step=context.global_step + 1)
        if "on_train_batch_end" in hooks.calls:
            hooks("on_train_batch_end", result_of(self.output, self.loss), self.batch, position)
        return True

    @property
    def sizes(self) -> list[int]:
        """Images of each batch of this step."""
        return [len(index) for index in self.group]

    def gradient(self, number: int = 0) -> Tensor:
        """Gradient `[N]` of a batch of this step at the present `w`; the next pass writes over it."""
        self._choose(number)
        self._counted(self.closure())
        self.stepper.gather()
        return self.learner.g

    def hessian_product(self, vector: Tensor, number: int = 0) -> Tensor:
        """The Hessian of a batch's loss at the present `w`, times `vector` `[N]`, by differentiating twice."""
        self._choose(number)
        parameters, slots = self.learner.parameters, self.learner.layout.params
        with torch.enable_grad(), self.autocast:
            self.output = self.forward()
            self.loss = loss = self._counted(loss_of(self.output, self.learner.module))
            first = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True, materialize_grads=True)
            along = [(g * vector[s.start : s.stop].view(s.shape)).sum() for g, s in zip(first, slots, strict=True)]
            slope = torch.stack(along).sum()
            if not slope.requires_grad:
                return torch.zeros_like(vector)
            second = torch.autograd.grad(slope, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in second])

    def kept_buffers(self) -> AbstractContextManager[None]:
        """For passes that leave running statistics as they were."""
        return self.learner.kept_buffers()

    def _choose(self, number: int) -> None:
        if number != self.fetched:
            self.batch, self.fetched = self.fetch(self.group[number]), number

    def _counted(self, loss: Tensor | None) -> Tensor:
        if loss is None:
            name = type(self.learner.module).__name__
            raise ConfigError(f"{name}.training_step returned None, which this method cannot use")
        self.losses.append(loss.detach())
        return loss


def grouped(plan: list[list[Tensor]], batches: int | None) -> list[list[Sequence[Tensor]]]:
    """The plan as steps of so many batches, which may lie in two epochs; none: of an epoch's."""
    if batches is None:
        return [[epoch] for epoch in plan]
    if batches == 1:
        return [[[index] for index in epoch] for epoch in plan]
    stream = list(chain.from_iterable(plan))
    return [[stream[i : i + batches] for i in range(0, len(stream) - batches + 1, batches)]]


def loss_of(output: Any, module: LightningModule) -> Tensor | None:
    """The scalar in what training_step returned: a tensor, a dict with 'loss', or None to skip the batch."""
    loss = output.get("loss") if isinstance(output, dict) else output
    if output is None or (isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad):
        return loss
    name = f"{type(module).__name__}.training_step"
    if isinstance(loss, Tensor) and loss.numel() == 1:
        raise ConfigError(f"{name} returned a loss that depends on no trainable parameter")
    got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(output).__name__
    raise ConfigError(f"{name} must return a scalar loss, a dict with 'loss', or None; it returned {got}")


def result_of(output: Any, loss: Tensor | None) -> dict[str, Any]:
    """What Lightning hands to on_train_batch_end."""
    if loss is None:
        return {}
    return {**(output if isinstance(output, dict) else {}), "loss": loss.detach()}


def task_loss(net: LightningModule, batch: Any) -> Tensor:
    """The module's own loss of a batch, for methods that add terms to it."""
    own_step = type(net).training_step
    output = own_step(net, batch, 0) if takes_index(net) else own_step(net, batch)
    loss = loss_of(output, net)
    if loss is None:
        raise ConfigError(f"{type(net).__name__}.training_step returned None, which this method cannot use")
    return loss


@contextmanager
def calls_of(module: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Input and output of every call of a submodule while the context lasts."""
    calls: list[tuple[Tensor, Tensor]] = []
    handle = module.register_forward_hook(lambda _, args, output: calls.append((args[0], output)))
    try:
        yield calls
    finally:
        handle.remove()


def task_loss_through(net: LightningModule, batch: Any, module: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """The module's own loss of a batch, and what went into a submodule (or `net`) and came out of it on the way."""
    with calls_of(module) as calls:
        loss = task_loss(net, batch)
    if not calls:
        whole, part = type(net).__name__, type(module).__name__
        raise ConfigError(f"{whole}.training_step never calls its {part} as a function, which this method looks into")
    return loss, *calls[0]


def ask_before_epoch(learner: "Learner", job: "Job", epoch: int) -> None:
    """Let a method look at the weights between epochs; whatever it evaluates, training goes on unchanged."""
    kept = learner.weights()
    assert job.before_epoch is not None
    with seeds.preserved_streams():
        job.alone = job.before_epoch(epoch, kept, job.state) is False
    learner.load(kept)
