"""A module's trainable parameters as one vector."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedbench.errors import ConfigError
from fedbench.models.compiled import unwrap, unwrapped_name
from fedbench.module import seeds
from fedbench.module.attributes import Attributes
from fedbench.module.copies import copies_in, is_under, named_tensors
from fedbench.module.layout import Layout, Slot
from fedbench.module.masks import holds_one
from fedbench.module.weights import Weights

ROUNDING = 100
"""Means of equal numbers over many rounds differ from them by less than so many units of the last place."""


class FlatModule:
    """A module whose parameters are views of the vector `w`; `g` has the same shape and holds gradients.

    Buffers stay in the module and are read by name, because user code may replace them (`self.center = ...`). Frozen
    parameters and buffers keep a less precise type than `dtype`. precision: `train.precision`; head: dotted name of the
    classifier; adapt: changes the module, given its layout, before its parameters are counted; copies: names of copies
    of the model inside it, with their originals, besides those recognised by their numbers now. Raises ConfigError for
    tensors that cannot be flattened.
    """

    def __init__(
        self,
        module: LightningModule,
        device: torch.device,
        precision: str,
        head: str | None,
        adapt: Callable[[nn.Module, Layout], None] | None = None,
        copies: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        _refuse(module)
        self._published = {unwrapped_name(name): (name, tensor.shape) for name, tensor in module.state_dict().items()}
        unsaved = {unwrapped_name(name): name for name in _unsaved_buffers(module)}
        unwrap(module)
        self.copies = {**copies_in(module), **copies}
        for copy in self.copies:
            module.get_submodule(copy).requires_grad_(False)
        double = torch.float64 if precision == "64-true" else None  # for everything, as in Lightning
        self.module = module.to(device=device, dtype=double)
        self.device, self.precision, self.dtype = device, precision, double or torch.float32
        present = {name for name, _ in module.named_modules()}
        if adapt is not None:
            with default_type(self.dtype):  # what it adds is drawn in the type of the parameters
                adapt(module, Layout.of(module, head, self.copies))
            module.to(device=device, dtype=double)
        self.added = frozenset(name for name, _ in module.named_modules()) - present
        """The dotted names of submodules that `adapt` has added."""
        self._unsaved = {name: unsaved.get(name, name) for name in _unsaved_buffers(module)}
        self.layout = Layout.of(module, head, self.copies)
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._refuse_types()
        frozen = [(n, p) for n, p in module.named_parameters() if not p.requires_grad]
        self._frozen = [(n, p, p.detach().clone()) for n, p in frozen if not any(is_under(n, c) for c in self.copies)]
        self.bind()
        own_train = any(type(part).train is not nn.Module.train for part in module.modules())
        self.in_eval_mode = [] if own_train else [name for name, part in module.named_modules() if not part.training]
        """The dotted names of submodules that were built in evaluation mode, in which they stay in training."""
        self._initial = self.weights()
        self._attributes = Attributes(module)
        self.forgotten: dict[str, None] = {}
        self.loose = self._attributes.loose()
        """The dotted names of attributes that `forget` has restored."""

    @property
    def head(self) -> nn.Module:
        """The module's classifier. Raises ConfigError if none is declared."""
        self.layout.mask("head")
        return self.module.get_submodule(self.layout.head_name or "")

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass in the run's precision."""
        if self.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def bind(self) -> None:
        """Makes the parameters views of one vector and keeps their numbers."""
        self.w = torch.zeros(self.layout.size, dtype=self.dtype, device=self.device)
        self.g = torch.zeros_like(self.w)
        self.gradient_views = [slot.view(self.g) for slot in self.layout.params]
        for slot, parameter in zip(self.layout.params, self.parameters, strict=True):
            parameter.data = slot.view(self.w).copy_(parameter.data)

    def initial(self) -> Weights:
        """The initial weights of the module."""
        return self._initial.clone()

    def weights(self) -> Weights:
        """A copy of the module's current numbers."""
        return Weights(
            params=self.w.clone(),
            buffers=concatenate([self.buffer(s) for s in self.layout.buffers], self.dtype, self.device),
            counters=concatenate([self.buffer(s) for s in self.layout.counters], torch.int64, torch.device("cpu")),
        )

    def load(self, weights: Weights) -> None:
        """Copies weights into the module."""
        self.w.copy_(weights.params)
        for slots, values in ((self.layout.buffers, weights.buffers), (self.layout.counters, weights.counters)):
            values = values.to(self.device)
            for slot in slots:
                self.buffer(slot).copy_(slot.view(values))

    def restore_modes(self) -> None:
        """Train mode, but for the parts that were built in evaluation mode: a Trainer leaves modes as they are.

        A model with a `train` of its own decides by that.
        """
        self.module.train()
        for name in self.in_eval_mode:
            self.module.get_submodule(name).training = False

    def forget(self) -> None:
        """Makes all attributes that are no buffers as they were, so that nothing gets from one client to another."""
        self.forgotten |= dict.fromkeys(self._attributes.restore())

    @contextmanager
    def pointing_to(self, vector: Tensor | None) -> Iterator[None]:
        """Temporarily makes the parameters views of another vector `[N]`; None: of `w`, as usual."""
        if vector is None:
            yield
            return
        self._point_to(vector)
        try:
            yield
        finally:
            self._point_to(self.w)

    def _point_to(self, vector: Tensor) -> None:
        for slot, parameter in zip(self.layout.params, self.parameters, strict=True):
            parameter.data = slot.view(vector)
        torch.clear_autocast_cache()  # of the previous parameters

    @contextmanager
    def kept_buffers(self) -> Iterator[None]:
        """Restores buffers and counters at the end of the block."""
        kept = [(slot, self.buffer(slot).clone()) for slot in (*self.layout.buffers, *self.layout.counters)]
        try:
            yield
        finally:
            for slot, values in kept:
                self.buffer(slot).copy_(values)

    @contextmanager
    def preserve(self) -> Iterator[Weights]:
        """The current numbers, which are restored at the end, as are attributes and the random streams."""
        weights, attributes = self.weights(), Attributes(self.module)
        with seeds.preserved_streams():
            yield weights
        self.load(weights)
        attributes.restore()

    @contextmanager
    def trainable(self, mask: Tensor | None) -> Iterator[None]:
        """Disables gradients of completely frozen tensors; undoes any freezing by user code at the end."""
        if mask is not None:
            for slot, parameter in zip(self.layout.params, self.parameters, strict=True):
                parameter.requires_grad_(holds_one(mask[slot.place]))
        try:
            yield
        finally:
            for parameter in self.parameters:
                parameter.requires_grad_(True)
                parameter.grad = None

    def redraw(self, weights: Weights, name: str, *key: int | str) -> Weights:
        """The weights with a submodule's parameters drawn again by its own method, from a stream with this key."""
        self.load(weights)
        with seeds.preserved_streams(), torch.no_grad():
            seeds.seed_everything(*key)
            for module in self.module.get_submodule(name).modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
        return self.weights()

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies the tensors of such a state dict into the module. Raises ConfigError if one is missing.

        Buffers that PyTorch leaves out (persistent=False) get the numbers of the start model if they are not in it.
        """
        names = {name: self._published.get(name, (name,))[0] for name in self.module.state_dict()}
        for name in names.values():
            if name not in tensors:
                raise ConfigError(f"the state dict lacks '{name}', which the model has; was the model changed since?")
        self.module.load_state_dict({name: tensors[given] for name, given in names.items()})
        for slot, start in self._unsaved_in(self._initial):
            self.buffer(slot).copy_(tensors.get(self._unsaved[slot.name], start))

    def state_dict(self, weights: Weights) -> dict[str, Tensor] | None:
        """The weights as a state dict of the user's module, and of what a method has added to it.

        Without additions plain PyTorch loads it into that module, but for buffers that it leaves out of state dicts
        (persistent=False): those that differ from the start model are here all the same, because scores depend on
        them. None if the method has changed the module itself.
        """
        self.load(weights)
        tensors = {name: tensor.detach().cpu() for name, tensor in self.module.state_dict().items()}
        if any(name not in tensors or tensors[name].shape != shape for name, (_, shape) in self._published.items()):
            return None
        names = {name: self._published.get(name, (name,))[0] for name in tensors}
        for slot in self._moved_and_unsaved(weights):
            tensors[slot.name], names[slot.name] = self.buffer(slot).cpu(), self._unsaved[slot.name]
        return {names[name]: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}

    def trained_state_dict(self, weights: Weights) -> dict[str, Tensor] | None:
        """The same without frozen parameters, which are those of the start model."""
        tensors, frozen = self.state_dict(weights), self.frozen
        return tensors and {name: tensor for name, tensor in tensors.items() if name not in frozen}

    @property
    def unsaved(self) -> list[str]:
        """The names of the buffers that PyTorch leaves out of state dicts."""
        return [self._unsaved[slot.name] for slot, _ in self._unsaved_in(self._initial)]

    def _unsaved_in(self, weights: Weights) -> Iterator[tuple[Slot, Tensor]]:
        """These buffers with their numbers in some weights."""
        for slots, values in ((self.layout.buffers, weights.buffers), (self.layout.counters, weights.counters)):
            yield from ((slot, slot.view(values).cpu()) for slot in slots if slot.name in self._unsaved)

    def _moved_and_unsaved(self, weights: Weights) -> Iterator[Slot]:
        """Those that differ from the start model by more than rounding does, as tables of constants never do."""
        for (slot, now), (_, start) in zip(self._unsaved_in(weights), self._unsaved_in(self._initial), strict=True):
            limit = ROUNDING * torch.finfo(now.dtype).eps if now.is_floating_point() else 0
            if not torch.allclose(now, start, rtol=limit, atol=0, equal_nan=True):
                yield slot

    @property
    def frozen(self) -> frozenset[str]:
        """The names of frozen parameters in a state dict."""
        return frozenset(self._published[name][0] for name, *_ in self._frozen if name in self._published)

    def _refuse_types(self) -> None:
        """Raises ConfigError for trainable tensors of another type, and for buffers that it cannot hold exactly."""
        for slot, parameter in zip(self.layout.params, self.parameters, strict=True):
            if parameter.dtype != self.dtype:
                raise ConfigError(_wrong_type(f"parameter '{slot.name}'", parameter.dtype))
        for slot in self.layout.buffers:
            if self.dtype != torch.float64 == self.buffer(slot).dtype:
                raise ConfigError(_wrong_type(f"buffer '{slot.name}'", torch.float64))

    def buffer(self, slot: Slot) -> Tensor:
        """A buffer's current value, or a parameter of a copy. Raises ConfigError if its shape has changed."""
        path, _, name = slot.name.rpartition(".")
        owner = self.module.get_submodule(path)
        buffer = owner._buffers.get(name, owner._parameters.get(name))
        if buffer is None or tuple(buffer.shape) != slot.shape:
            raise ConfigError(
                f"the model changed the shape of its buffer '{slot.name}' while training (from {list(slot.shape)}): "
                "buffers of the clients are averaged and must keep their shape"
            )
        return buffer.detach()

    def check(self) -> None:
        """Raises ConfigError if user code moved parameters out of the vector, or froze or unfroze some for good."""
        present = [p for p in self.module.parameters() if p.requires_grad]
        if len(present) != len(self.parameters):
            raise ConfigError(
                f"the model has {len(present)} trainable parameter tensors after training and had "
                f"{len(self.parameters)} before: make parameters trainable in its constructor, not while training"
            )
        size = self.w.element_size()
        for slot, parameter, known in zip(self.layout.params, present, self.parameters, strict=True):
            if parameter is not known or parameter.data_ptr() != self.w.data_ptr() + slot.start * size:
                raise ConfigError(
                    f"the model replaced the storage of parameter '{slot.name}' while training (p.data = ..., "
                    "load_state_dict(assign=True), .to(...), a new Parameter): change it in place instead, with copy_"
                )
        for name, parameter, before in self._frozen:
            if not torch.equal(parameter.detach(), before.to(parameter.device)):
                raise ConfigError(
                    f"the model changed its frozen parameter '{name}' while training: what changes must be a trainable "
                    "parameter or a buffer (register_buffer), so that it stays with its client"
                )


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    """A block in which new layers and random numbers have this floating-point type, where they are given none."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def concatenate(tensors: list[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A vector with copies of all numbers of the tensors."""
    flat = [t.reshape(-1).to(dtype) for t in tensors]
    return torch.cat(flat).to(device) if flat else torch.zeros(0, dtype=dtype, device=device)


def _unsaved_buffers(module: nn.Module) -> list[str]:
    """The dotted names of buffers that are in no state dict, under no name."""
    state = module.state_dict(keep_vars=True)
    ids = {id(tensor) for tensor in state.values()}
    return [name for name, buffer in module.named_buffers() if name not in state and id(buffer) not in ids]


def _wrong_type(what: str, dtype: torch.dtype) -> str:
    ways = (
        "choose --train.precision 64-true, or build it with .float()"
        if dtype == torch.float64
        else "build it with .float(), or freeze it; --train.precision bf16-mixed computes in bfloat16"
    )
    return f"the model's {what} is {str(dtype).removeprefix('torch.')}, and this run keeps float32 numbers: {ways}"


def _refuse(module: nn.Module) -> None:
    for name, tensor in named_tensors(module):
        if is_lazy(tensor):
            raise ConfigError(
                f"the model's '{name}' is lazy, its shape is not known yet: run a forward pass in the constructor"
            )
        if tensor.is_meta:
            raise ConfigError(
                f"the model's '{name}' is on the device meta and has no numbers: create it on the CPU, or give it "
                "numbers in the constructor"
            )
        if tensor.is_complex():
            raise ConfigError(
                f"the model's '{name}' holds complex numbers: keep real and imaginary part as two tensors"
            )
    for name, value in module.state_dict().items():
        if not isinstance(value, torch.Tensor) or value.is_quantized:
            what = "a quantised tensor" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
            raise ConfigError(
                f"the model's state '{name}' is {what}, which cannot be averaged: keep numbers in parameters and "
                "buffers of float, and the rest in the constructor"
            )
