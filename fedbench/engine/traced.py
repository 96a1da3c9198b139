"""A gradient step as a list of tensor operations: traced once, and done again without the Python that led to them.

The operations are those that PyTorch makes of the module's own code and its gradient, for one client or, by vmap, for
several at once. They read tensors that lie where they are put: a client's numbers are rows of one matrix, and buffers
and what a loss writes to are changed in place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from fedbench.engine.fit import Loss
from fedbench.errors import ConfigError
from fedbench.module.hooks import takes_index


class UntraceableError(Exception):
    """Why a step cannot be traced, in one line."""


@dataclass
class Record:
    """What a module logs in a step, and how; the values are outputs of the trace."""

    values: list[Tensor] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def log(self, name: str, value: Any, *args: Any, **options: Any) -> None:
        if args or not isinstance(value, Tensor):
            raise UntraceableError(f"it logs '{name}', which is not a tensor")
        self.values.append(value.detach())
        self.calls.append((name, options))

    def log_dict(self, dictionary: Mapping[str, Any], *args: Any, **options: Any) -> None:
        for name, value in dictionary.items():
            self.log(name, value, *args, **options)


@dataclass(frozen=True)
class Shape:
    """What the tensors of a step are called, in their order: moving and resting parameters, buffers, needs.

    constants: needs that are no tensors. paired: whether a batch is two of them. width: of the stack; none: one client.
    """

    moving: tuple[str, ...]
    resting: tuple[str, ...]
    buffers: tuple[str, ...]
    needs: tuple[str, ...]
    constants: Mapping[str, Any]
    paired: bool
    width: int | None


class Step:
    """The traced step: `step(moving, resting, buffers, batch, needs)`, each a list of tensors.

    Returns the loss, the gradients of the moving parameters and what the module logs; in a stack every tensor has the
    client as its first dimension.
    """

    def __init__(
        self, module: LightningModule, loss: Loss | None, shape: Shape, example: Sequence[list[Tensor]]
    ) -> None:
        self.shape, self.record = shape, Record()
        self._sizes = [len(group) for group in example]
        copies = [[as_it_lies(tensor) for tensor in group] for group in example]
        before = plain(module)
        with logging_to(module, self.record):
            try:
                with torch.enable_grad():
                    graph = make_fx(self._function(module, loss))(*(t for group in copies for t in group))
            except (UntraceableError, ConfigError):
                raise
            except (Exception, SystemExit) as error:
                text = str(error).strip().splitlines()
                raise UntraceableError(f"{type(error).__name__}: {text[0] if text else ''}") from error
        if plain(module) != before:
            raise UntraceableError("it changes attributes of the module that are no tensors")
        for node in graph.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise UntraceableError("it draws random numbers")
        self.logged, self._graph = self.record.calls, graph

    def __call__(self, *groups: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        with torch.no_grad():
            loss, *rest = self._graph(*(tensor for group in groups for tensor in group))
        moving = len(self.shape.moving)
        return loss, rest[:moving], rest[moving:]

    def _function(self, module: LightningModule, loss: Loss | None) -> Callable[..., list[Tensor]]:
        shape, sizes, record = self.shape, self._sizes, self.record
        net = Called(module, loss)

        def one(moving: Any, resting: Any, buffers: Any, batch: Any, needs: Any) -> tuple[Tensor, list[Tensor]]:
            names = (*shape.moving, *shape.resting, *shape.buffers)
            tensors = dict(zip((f"net.{name}" for name in names), (*moving, *resting, *buffers), strict=True))
            state = SimpleNamespace(**dict(zip(shape.needs, needs, strict=True)), **shape.constants)
            seen = ((batch[0], batch[1]), (batch[2], batch[3])) if shape.paired else tuple(batch)
            record.values.clear()
            record.calls.clear()
            value = functional_call(net, tensors, (seen, state))
            return value.reshape(()), list(record.values)

        def whole(*flat: Tensor) -> list[Tensor]:
            moving, *others = parted(flat, sizes)
            moving = [tensor.detach().requires_grad_() for tensor in moving]
            step = one if shape.width is None else vmap(one, randomness="different")
            value, logged = step(moving, *others)
            grads = torch.autograd.grad(value.sum(), moving, allow_unused=True, materialize_grads=True)
            return [value.detach(), *grads, *logged]

        return whole


class Called(nn.Module):
    """A loss as the forward pass of a module, so that all that is inside gets the tensors of the call."""

    def __init__(self, net: LightningModule, loss: Loss | None) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, batch: Any, state: Any) -> Tensor:
        if self.loss is not None:
            return self.loss.function(self.net, batch, state)
        own = self.net.training_step
        found = own(batch, 0) if takes_index(self.net) else own(batch)
        value = found.get("loss") if isinstance(found, dict) else found
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise UntraceableError("its training_step returns no loss")
        return value


def as_it_lies(tensor: Tensor) -> Tensor:
    """A copy with the same strides, by which PyTorch chooses operations."""
    twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return twin.copy_(tensor)


def parted(flat: Sequence[Tensor], sizes: Sequence[int]) -> list[list[Tensor]]:
    """So many of them in each part."""
    stream = iter(flat)
    return [[next(stream) for _ in range(size)] for size in sizes]


def plain(module: nn.Module) -> list[tuple[str, str, Any]]:
    """Attributes of a module and all inside it that are numbers, texts and the like."""
    kinds = (bool, int, float, str, type(None))
    return [
        (name, key, value)
        for name, own in module.named_modules()
        for key, value in vars(own).items()
        if isinstance(value, kinds)
    ]


@contextmanager
def logging_to(module: LightningModule, record: Record) -> Iterator[None]:
    """`self.log` of the module writes to a record for a while."""
    before = module.log, module.log_dict
    module.log, module.log_dict = record.log, record.log_dict  # type: ignore[method-assign]
    try:
        yield
    finally:
        module.log, module.log_dict = before  # type: ignore[method-assign]
