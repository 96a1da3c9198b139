"""A gradient step as a list of tensor operations: traced once, and done again without the Python that led to them.

The operations are those that PyTorch makes of the module's own code and its gradient, for one client or, by vmap, for
several at once. They read tensors that lie where they are put: a client's numbers are rows of one matrix, and buffers
and what a loss writes to are changed in place.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.func import functional_call, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from fedbench.engine.fit import Loss
from fedbench.errors import ConfigError, first_line
from fedbench.module.hooks import takes_index


class UntraceableError(Exception):
    """Why a step cannot be traced, in one line."""


class Unknown:
    """Stands for what is another one in every step: a trace would hold it for good, so whoever asks is refused."""

    def __init__(self, what: str) -> None:
        self._what = what

    def _refused(self, *_: Any) -> NoReturn:
        raise UntraceableError(f"it asks for {self._what}")

    __getattr__ = __bool__ = __int__ = __index__ = __float__ = __hash__ = _refused
    __str__ = __repr__ = __format__ = _refused
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _refused
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refused


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


class TracedStep:
    """The traced step: `step(moving, resting, buffers, batch, needs)`, each a list of tensors.

    Returns the loss, the gradients of the moving parameters and what the module logs; in a stack every tensor has the
    client as its first dimension.
    """

    def __init__(
        self, module: LightningModule, loss: Loss | None, shape: Shape, example: Sequence[list[Tensor]]
    ) -> None:
        twin = copied(module)
        kept, drawn = attributes(twin), streams()
        (graph, record), (again, _) = (traced(twin, loss, shape, example) for _ in range(2))
        seeded = torch.Tag.nondeterministic_seeded
        own = {tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers()) if tensor.numel()}
        if own.intersection(constant.data_ptr() for constant in constants(graph).values()):
            raise UntraceableError("one of its attributes is a function that holds on to the module")
        if attributes(twin) != kept:
            raise UntraceableError("it changes attributes of the module that are no buffers")
        if streams() != drawn or any(seeded in getattr(node.target, "tags", ()) for node in graph.graph.nodes):
            raise UntraceableError("it draws random numbers")
        if not is_same(graph, again):
            raise UntraceableError("it does something else in every step")
        self.logged, self._graph, self._moving = record.calls, graph, len(shape.moving)

    def __call__(self, *groups: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        with torch.no_grad():
            loss, *rest = self._graph(*(tensor for group in groups for tensor in group))
        return loss, rest[: self._moving], rest[self._moving :]


def copied(module: LightningModule) -> LightningModule:
    """A twin to be traced: whatever tracing does to it leaves the module alone. Raises UntraceableError."""
    memo = {id(module._trainer): Unknown("self.trainer")} if module._trainer is not None else {}
    try:
        twin = deepcopy(module, memo)
    except Exception as error:
        raise UntraceableError(f"the module cannot be copied ({type(error).__name__}: {error})") from error
    twin._trainer = Unknown("self.trainer")  # type: ignore[assignment]
    return twin


def traced(
    module: LightningModule, loss: Loss | None, shape: Shape, example: Sequence[list[Tensor]]
) -> tuple[GraphModule, Record]:
    """The operations of a step, and what is logged in it. Raises UntraceableError.

    Tensors hold no numbers meanwhile: whoever asks for one, which would be the example's for good, is refused.
    """
    record, copies = Record(), [as_it_lies(tensor) for group in example for tensor in group]
    module.log, module.log_dict = record.log, record.log_dict  # type: ignore[method-assign]
    function = traceable(Called(module, loss), shape, [len(group) for group in example], record)
    try:
        with torch.enable_grad():
            return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*copies), record
    except (UntraceableError, ConfigError):
        raise
    except (GuardOnDataDependentSymNode, DynamicOutputShapeException, DataDependentOutputException) as error:
        raise UntraceableError("it asks for a number that only a step has") from error
    except (Exception, SystemExit) as error:
        raise UntraceableError(f"{type(error).__name__}: {first_line(error)}") from error


def is_same(graph: GraphModule, other: GraphModule) -> bool:
    """Whether two traces do the same operations with the same constants."""
    own, others = constants(graph), constants(other)
    same = own.keys() == others.keys() and all(torch.equal(value, others[key]) for key, value in own.items())
    return same and graph.code == other.code


def constants(graph: GraphModule) -> dict[str, Tensor]:
    """Tensors that a trace holds for good."""
    plain = {name: value for name, value in vars(graph).items() if isinstance(value, Tensor)}
    return {**plain, **dict(graph.named_parameters()), **dict(graph.named_buffers())}


def traceable(net: "Called", shape: Shape, sizes: Sequence[int], record: Record) -> Callable[..., list[Tensor]]:
    """The step as a function of all its tensors, so many of each group: loss, gradients, and what is logged."""

    def one(moving: Any, resting: Any, buffers: Any, batch: Any, needs: Any) -> tuple[Tensor, list[Tensor]]:
        names = (*shape.moving, *shape.resting, *shape.buffers)
        tensors = dict(zip((f"net.{name}" for name in names), (*moving, *resting, *buffers), strict=True))
        state = SimpleNamespace(**dict(zip(shape.needs, needs, strict=True)), **shape.constants)
        seen = ((batch[0], batch[1]), (batch[2], batch[3])) if shape.paired else tuple(batch)
        value = functional_call(net, tensors, (seen, state))
        return value.reshape(()), record.values

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
        before = [id(buffer) for buffer in self.net.buffers()]
        value = self._value(batch, state)
        if [id(buffer) for buffer in self.net.buffers()] != before:
            raise UntraceableError("it puts other tensors in its buffers' places")
        return value

    def _value(self, batch: Any, state: Any) -> Tensor:
        own = self.net.training_step
        if self.loss is not None:
            found: Any = self.loss.function(self.net, batch, state)
        else:
            found = own(batch, Unknown("the number of the batch")) if takes_index(self.net) else own(batch)
        value = found.get("loss") if isinstance(found, dict) and self.loss is None else found
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


def attributes(module: nn.Module) -> list[tuple[Any, ...]]:
    """What the attributes of a module and of all inside it hold, buffers and parameters aside.

    Of numbers and texts the value, of containers the length, of tensors which one and how often it was written to.
    """
    found: list[tuple[Any, ...]] = []
    for name, own in module.named_modules():
        for key, value in vars(own).items():
            if isinstance(value, Tensor):
                found.append((name, key, id(value), value._version))
            elif isinstance(value, list | dict | set):
                found.append((name, key, len(value)))
            elif isinstance(value, bool | int | float | str | None):
                found.append((name, key, value))
    return found


def streams() -> tuple[Any, ...]:
    """Where the global random streams of Python and NumPy are."""
    _, state, place, *_ = np.random.get_state()
    return random.getstate(), np.asarray(state).tobytes(), place
