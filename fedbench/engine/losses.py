"""Losses of a batch: the result of training_step, to which methods add terms."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightning import LightningModule
from torch import Tensor, nn

from fedbench.engine.fit import LossFunction
from fedbench.errors import ConfigError
from fedbench.models.compiled import without_compiler
from fedbench.module.hooks import takes_index
from fedbench.module.inputs import batch_for
from fedbench.tasks import Task


def loss_of(output: Any, module: LightningModule) -> Tensor | None:
    """The scalar in training_step's result: a tensor, a dict with 'loss', or None to skip the batch."""
    loss = output.get("loss") if isinstance(output, dict) else output
    if output is None or (isinstance(loss, Tensor) and loss.numel() == 1):
        return loss
    got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(output).__name__
    raise ConfigError(
        f"{type(module).__name__}.training_step must return a scalar loss, a dict with 'loss', or None; it returned "
        f"{got}"
    )


def trained_loss(output: Any, module: LightningModule) -> Tensor | None:
    """The same. Raises ConfigError without a gradient."""
    loss = loss_of(output, module)
    if loss is not None and not loss.requires_grad:
        raise ConfigError(
            f"{type(module).__name__}.training_step returned a loss that depends on no trainable parameter"
        )
    return loss


def needed_loss(loss: Tensor | None, module: LightningModule) -> Tensor:
    """The loss of a batch. Raises ConfigError if training_step skips it."""
    if loss is None:
        raise ConfigError(f"{type(module).__name__}.training_step returned None, which this method cannot use")
    return loss


def result_of(output: Any, loss: Tensor | None) -> dict[str, Any]:
    """The outputs that Lightning passes to on_train_batch_end."""
    if loss is None:
        return {}
    return {**(output if isinstance(output, dict) else {}), "loss": loss.detach()}


def outputs_of(output: Any) -> Any:
    """The task's outputs in forward's result: a tensor, `logits` of a dict or an object, the first of a tuple."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        return output.get("logits", output)
    parts = output_parts(output)
    return parts[0] if parts else getattr(output, "logits", output)


def output_parts(output: Any) -> tuple[Any, ...]:
    """The results of a forward that returns several unnamed values; empty otherwise."""
    return tuple(output) if isinstance(output, tuple | list) and not hasattr(output, "logits") else ()


def task_loss(net: LightningModule, batch: Any, s: Any = None) -> Tensor:
    """The module's own loss of a batch, for methods that add terms to it."""
    own_step, seen = type(net).training_step, batch_for(net, batch)
    output = own_step(net, seen, 0) if takes_index(net) else own_step(net, seen)
    return needed_loss(loss_of(output, net), net)


@contextmanager
def calls_of(module: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Input and output of every call of a submodule within the context."""
    calls: list[tuple[Tensor, Tensor]] = []
    handle = module.register_forward_hook(lambda _, args, output: calls.append((args[0], output)))
    try:
        with without_compiler():
            yield calls
    finally:
        handle.remove()


def task_loss_through(net: LightningModule, batch: Any, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """The module's own loss of a batch, and the inputs and outputs of a submodule (or '': `net`) in that pass."""
    module = net.get_submodule(name)
    with calls_of(module) as calls:
        loss = task_loss(net, batch)
    if not calls:
        whole, part = type(net).__name__, type(module).__name__
        raise ConfigError(f"{whole}.training_step never calls its {part} as a function, whose inputs this method reads")
    return loss, *calls[0]


def prediction_loss(task: Task) -> LossFunction:
    """The task's mean loss of a network's outputs on a batch, regardless of its training_step."""

    def loss(net: nn.Module, batch: tuple[Tensor, Tensor], s: Any = None) -> Tensor:
        x, y = batch
        return task.loss(outputs_of(net(x)), y)

    return loss
