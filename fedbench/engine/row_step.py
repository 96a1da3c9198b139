"""A gradient step on rows: the module's own code on given tensors, for one client or, by vmap, for all."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.func import vmap

from fedbench.engine.fit import Loss
from fedbench.engine.losses import outputs_of
from fedbench.errors import ConfigError, first_line
from fedbench.module import seeds
from fedbench.module.attributes import Attributes
from fedbench.module.copies import named_tensors
from fedbench.module.hooks import takes_index
from fedbench.module.inputs import batch_for

Tensors = Sequence[Tensor]


class UnsupportedFitError(Exception):
    """Says in one line why an engine of rows cannot run a fit."""


class Varying:
    """Replaces a value that differs between the clients of a step. Raises UnsupportedFitError when used."""

    def __init__(self, what: str) -> None:
        self._what = what

    def _refuse(self, *_: Any) -> NoReturn:
        raise UnsupportedFitError(f"it uses {self._what}")

    __getattr__ = __bool__ = __int__ = __index__ = __float__ = __hash__ = _refuse
    __str__ = __repr__ = __format__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse


class LogCalls:
    """Logs of a module in one step: the values with names and options."""

    def __init__(self) -> None:
        self.values: list[Tensor] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def clear(self) -> None:
        self.values, self.calls = [], []

    def log(self, name: str, value: Any, *args: Any, **options: Any) -> None:
        if args or not isinstance(value, Tensor | int | float):
            raise UnsupportedFitError(f"it logs '{name}', which is not a number")
        self.values.append(torch.as_tensor(value).detach())
        self.calls.append((name, options))

    def log_dict(self, dictionary: Mapping[str, Any], *args: Any, **options: Any) -> None:
        for name, value in dictionary.items():
            self.log(name, value, *args, **options)


class RowStep:
    """`step([moving, others, batch, needs])`, each a list of tensors; stacked: the client is their first dimension.

    Returns the loss, the gradients of the moving parameters, and the module's logs. Buffers, and tensors that the loss
    writes to, change in place. shares: of the samples in the loss `[K, b]`, where a loss is the mean of its samples'
    losses; without them the module decides. names: of the moving and the other tensors of the module; needs: names of
    further inputs of the loss; constants: inputs that are no tensors.
    """

    def __init__(
        self,
        module: LightningModule,
        loss: Loss | None,
        names: Sequence[str],
        needs: Sequence[str],
        constants: Mapping[str, Any],
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        randomness: str = "error",
    ) -> None:
        self.module, self.loss, self.names, self.needs, self.constants = module, loss, names, needs, constants
        self.autocast, self._randomness = autocast, randomness
        self._places, self.logs = places_of(module, names), LogCalls()

    def __call__(
        self, tensors: Sequence[Tensors], stacked: bool, shares: Tensor | None = None
    ) -> tuple[Tensor, Tensors, Tensors]:
        self.logs.clear()
        moving, others, batch, needs = tensors
        with torch.enable_grad(), self.autocast():
            if shares is not None:
                loss, logged = vmap(self._step_by_samples)([*moving, *others], batch, needs, shares)
            else:
                one = vmap(self._step_one, randomness=self._randomness) if stacked else self._step_one
                loss, logged = one([*moving, *others], batch, needs)
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss.sum(), moving, allow_unused=True, materialize_grads=True)
        return loss.detach(), gradients, logged

    def _step_one(self, tensors: Tensors, batch: Tensors, needs: Tensors) -> tuple[Tensor, Tensors]:
        state = SimpleNamespace(**dict(zip(self.needs, needs, strict=True)), **self.constants)
        seen = ((batch[0], batch[1]), (batch[2], batch[3])) if len(batch) == 4 else tuple(batch)
        with self._holding(tensors):
            output: Any
            if self.loss is not None:
                output = self.loss.function(self.module, seen, state)
            elif takes_index(self.module):
                output = self.module.training_step(batch_for(self.module, seen), Varying("the number of the batch"))
            else:
                output = self.module.training_step(batch_for(self.module, seen))
        loss = output.get("loss") if isinstance(output, dict) and self.loss is None else output
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise UnsupportedFitError("its training_step returns no loss")
        return loss.reshape(()), self.logs.values

    def _step_by_samples(
        self, tensors: Tensors, batch: Tensors, needs: Tensors, shares: Tensor
    ) -> tuple[Tensor, Tensors]:
        """The sum of the losses of single samples by their shares `[b]`, and of the logs."""

        def one(parts: Tensors, number: Tensor) -> tuple[Tensor, Tensors]:
            return self._step_one(tensors, [part.unsqueeze(0) for part in parts], [*needs[:-1], number.unsqueeze(0)])

        losses, logged = vmap(one)(batch, needs[-1])
        return (losses * shares).sum(), [(value * shares).sum() for value in logged]

    @contextmanager
    def _holding(self, tensors: Tensors) -> Iterator[None]:
        """The module with these tensors; `functional_call` would add half the time of a small model."""
        kept = [held[name] for held, name, _ in self._places]
        for held, name, number in self._places:
            held[name] = tensors[number]
        try:
            yield
            if any(held[name] is not tensors[number] for held, name, number in self._places):
                raise UnsupportedFitError("it puts other tensors in its buffers' places")
        finally:
            for (held, name, _), tensor in zip(self._places, kept, strict=True):
                held[name] = tensor

    @contextmanager
    def active(self) -> Iterator[None]:
        """The module logs to this step, and access to its trainer is refused."""
        attributes = self.module.__dict__
        given = dict(log=self.logs.log, log_dict=self.logs.log_dict, _trainer=Varying("self.trainer"))
        kept = {name: attributes.get(name) for name in given}
        attributes.update(given)
        try:
            yield
        finally:
            attributes.update(kept)


def places_of(module: nn.Module, names: Sequence[str]) -> list[tuple[dict[str, Any], str, int]]:
    """The places of the named tensors in a module, each with its number; tied tensors have several."""
    places = []
    tensors = named_tensors(module, remove_duplicate=False)
    numbers = {id(tensor): names.index(name) for name, tensor in tensors if name in names}
    for name, tensor in tensors:
        if id(tensor) in numbers:
            path, _, key = name.rpartition(".")
            owner = module.get_submodule(path)
            held: Any = owner._parameters if key in owner._parameters else owner._buffers
            places.append((held, key, numbers[id(tensor)]))
    return places


def twin_of(step: RowStep, precise: bool = False) -> RowStep:
    """The step of a copy of the module, whose random draws are free. precise: in double precision, without autocast.

    Raises UnsupportedFitError.
    """
    module = step.module
    memo = {id(module._trainer): None} if module._trainer is not None else {}
    try:
        twin = deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedFitError(f"the module cannot be copied ({type(error).__name__}: {error})") from error
    autocast = nullcontext if precise else step.autocast
    twin = twin.double() if precise else twin
    return RowStep(twin, step.loss, step.names, step.needs, step.constants, autocast, randomness="different")


def check_step(step: RowStep, example: Sequence[Tensors], stacked: bool) -> None:
    """Tries a step twice on copies. Raises UnsupportedFitError. example: the tensors of one client's step."""
    trial = twin_of(step)
    attributes = Attributes(trial.module)
    with seeds.preserved_streams(), trial.active():
        drawn = _random_states()
        losses = [_try(trial, example, stacked) for _ in range(2)]
        if _random_states() != drawn:
            raise UnsupportedFitError("it draws random numbers")
    if attributes.changed():
        raise UnsupportedFitError("it changes attributes of the module that are no buffers")
    if not torch.equal(losses[0].nan_to_num(), losses[1].nan_to_num()):
        raise UnsupportedFitError("it does something else in every step")


def _try(step: RowStep, example: Sequence[Tensors], stacked: bool) -> Tensor:
    def copy_of(tensor: Tensor) -> Tensor:
        return torch.stack([tensor.detach()] * 2) if stacked else tensor.detach().clone()

    moving, *others = ([copy_of(tensor) for tensor in tensors] for tensors in example)
    try:
        return step([[tensor.requires_grad_() for tensor in moving], *others], stacked)[0]
    except (UnsupportedFitError, ConfigError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise UnsupportedFitError(f"{type(error).__name__}: {first_line(error)}") from error


def is_mean_of_samples(step: RowStep, example: Sequence[Tensors]) -> bool:
    """Whether the loss of a batch is the mean of its samples' losses, and so are the logs.

    Tried in double precision on batches of noise of the example's shapes, so that the answer does not depend on whose
    data the example is. example: the tensors of one client's step.
    """
    moving, others, batch, needs = example
    if len(batch) != 2 or not batch[0].is_floating_point():
        return False
    try:
        trial = twin_of(step, precise=True)
        tensors = [[in_double(tensor) for tensor in part] for part in (moving, others, batch, needs)]
        with seeds.preserved_streams(), trial.active():
            return all(_is_mean(trial, [*tensors[:2], *noise]) for noise in _noise_batches(trial, tensors))
    except (Exception, SystemExit):
        return False


def reads_all_of(step: RowStep, example: Sequence[Tensors], need: int, size: int) -> bool:
    """Whether a loss reads more than the first `size` rows of one of its inputs, of this number."""
    moving, others, batch, needs = example
    values = needs[need].clone()
    values[size:] = torch.nan if values.is_floating_point() else 1
    trial, losses = twin_of(step), []
    with seeds.preserved_streams(), trial.active():
        for tensor in (needs[need], values):
            given = [moving, others, batch, [*needs[:need], tensor, *needs[need + 1 :]]]
            losses.append(_try(trial, given, stacked=True))
    return not torch.equal(*losses)


def in_double(tensor: Tensor) -> Tensor:
    """A copy, of fractions in double precision."""
    return tensor.detach().clone().double() if tensor.is_floating_point() else tensor.detach().clone()


def _noise_batches(step: RowStep, tensors: Sequence[Tensors]) -> Iterator[tuple[Tensors, Tensors]]:
    """Batches of several sizes, and the inputs of the loss with their places; targets take all classes in turn."""
    moving, others, (x, y), (*needs, places) = tensors
    stream = torch.Generator().manual_seed(0)
    for size in (2, 3, max(4, len(x))):
        draws = torch.randn((size, *x.shape[1:]), dtype=x.dtype, generator=stream).to(x.device)
        kinds = _classes_of(step, [*moving, *others], draws)
        targets = torch.arange(size * y[:1].numel(), device=y.device).view(size, *y.shape[1:]) % kinds
        yield (
            [draws, targets.to(y.dtype)],
            [*(need.clone() for need in needs), torch.arange(size, device=places.device) % (1 + places.max())],
        )


def _classes_of(step: RowStep, tensors: Tensors, x: Tensor) -> int:
    """The width of the outputs, at least two."""
    with torch.no_grad(), step._holding(tensors):
        outputs = outputs_of(step.module(x))
    return max(2, outputs.shape[-1]) if isinstance(outputs, Tensor) and outputs.dim() > 1 else 2


def _is_mean(step: RowStep, tensors: Sequence[Tensors]) -> bool:
    moving, others, batch, needs = ([tensor.unsqueeze(0) for tensor in part] for part in tensors)
    size = batch[0].shape[1]
    shares = torch.full((1, size), 1 / size, dtype=torch.float64, device=batch[0].device)
    results = []
    for given in (None, shares):
        parameters = [tensor.clone().requires_grad_() for tensor in moving]
        rest = ([tensor.clone() for tensor in part] for part in (others, batch, needs))
        loss, gradients, logged = step([parameters, *rest], True, given)
        results.append([loss, *gradients, *logged])
    return all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(*results, strict=True))


def _random_states() -> tuple[Any, ...]:
    """The state of the global random streams."""
    _, state, position, *_ = np.random.get_state()
    on_cpu, on_gpus = seeds.torch_states()
    return random.getstate(), np.asarray(state).tobytes(), position, [one.tolist() for one in (on_cpu, *on_gpus)]
