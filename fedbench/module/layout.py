"""The layout of a module's flat vectors: names, shapes, positions and roles."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from fedbench.errors import ConfigError, nearest
from fedbench.models.compiled import unwrap, unwrapped_name
from fedbench.module.copies import is_under, named_tensors, with_originals
from fedbench.module.masks import Masks, holds_one

Role = Literal["body", "head", "norm", "any_norm", "tied"]
NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
"""The types of normalisation layers: `norm` is the first, `any_norm` all."""


@dataclass(frozen=True)
class Slot:
    """One tensor's position in a flat vector, elements `start` to `stop`, and its roles (see `Layout`)."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    head: bool = False
    norm: bool = False
    any_norm: bool = False
    tied: bool = False
    linear: bool = False

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def owner(self) -> str:
        """The dotted name of the submodule that has it."""
        return self.name.rpartition(".")[0]

    @property
    def place(self) -> slice:
        """Its elements in a flat vector."""
        return slice(self.start, self.stop)

    def view(self, vectors: Tensor) -> Tensor:
        """The tensor in vectors `[..., N]`, as a view `[..., *shape]`."""
        part = vectors[..., self.place]
        return part.view((*part.shape[:-1], *self.shape))


@dataclass(frozen=True)
class Layout:
    """Slots of the trainable parameters, float buffers and integer buffers, each in registration order.

    Copies of the model inside the model are the last float buffers, and have the roles of their originals.

    `head` is the declared classifier, `norm` the BatchNorm modules, `any_norm` those and all other normalisation
    layers, `linear` the Linear layers, `body` everything but the head. A tied parameter counts once, under its first
    name, and is head if any of its owners is; `tied` marks those shared by head and body. `groups` numbers the layers
    that belong together, by tensor: each module with parameters starts a group, and normalisation layers join the
    previous one; a model's attribute `layer_groups`, a list of dotted names or lists of them, overrides this.
    """

    params: tuple[Slot, ...]
    buffers: tuple[Slot, ...]
    counters: tuple[Slot, ...]
    head_name: str | None = None
    has_batchnorm: bool = False
    groups: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, module: nn.Module, head: str | None = None, copies: Mapping[str, str | None] = MappingProxyType({})
    ) -> "Layout":
        """The layout of `module`, whose classifier is the submodule `head` (default: its attribute `head`).

        copies: of parts of the module (`copies_in`). Parts wrapped by torch.compile are unwrapped first (see `unwrap`)
        and keep their uncompiled names.
        """
        unwrap(module)
        head = unwrapped_name(head or ("head" if isinstance(getattr(module, "head", None), nn.Module) else "")) or None
        roles = {
            "head": _members(module, [head] if head else []),
            "norm": _members(module, _of_type(module, _BatchNorm)),
            "any_norm": _members(module, _of_type(module, *NORMS)),
        }
        roles["tied"] = roles["head"] & _tensors_outside(module, head)
        params = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        linear = set(_of_type(module, nn.Linear))
        roles["linear"] = {id(p) for n, p in params if n.rpartition(".")[0] in linear}
        for copy, original in with_originals(module, copies):
            for members in roles.values():
                members |= {id(copy)} if id(original) in members else set()
        buffers: list[tuple[str, Tensor]] = list(module.named_buffers())
        buffers += [(n, p) for n, p in module.named_parameters() if any(is_under(n, copy) for copy in copies)]
        return cls(
            params=_slots(params, roles),
            buffers=_slots([(n, b) for n, b in buffers if b.is_floating_point()], roles),
            counters=_slots([(n, b) for n, b in buffers if not b.is_floating_point()], roles),
            head_name=head,
            has_batchnorm=bool(_of_type(module, _BatchNorm)),
            groups=_groups(module),
        )

    @property
    def size(self) -> int:
        """N, the number of trainable parameters."""
        return _length(self.params)

    @property
    def buffer_size(self) -> int:
        """M, the number of floats in buffers."""
        return _length(self.buffers)

    @property
    def counter_size(self) -> int:
        return _length(self.counters)

    def mask(self, role: Role) -> Tensor:
        """Marks the parameters of this role, bool `[N]`. Raises ConfigError if no head is declared."""
        return self.masks(role).params

    def masks(self, role: Role) -> Masks:
        """The entries of this role."""
        return self._masks_where(self._of_role(role))

    def under(self, prefixes: Iterable[str]) -> Masks:
        """The entries whose name starts with one of these dotted prefixes."""
        prefixes = tuple(map(unwrapped_name, prefixes))
        names = {slot.name for slot in self.params + self.buffers}
        for prefix in prefixes:
            if not any(is_under(name, prefix) for name in names):
                raise ConfigError(f"no parameter of the model is under '{prefix}': {nearest(prefix, names)}")
        return self._masks_where(lambda slot: any(is_under(slot.name, prefix) for prefix in prefixes))

    def nothing(self) -> Masks:
        return self._masks_where(lambda slot: False)

    def everything(self) -> Masks:
        return self._masks_where(lambda slot: True)

    def _masks_where(self, inside: Callable[[Slot], bool]) -> Masks:
        return Masks(_mark(self.params, inside), _mark(self.buffers, inside))

    def counters_beside(self, buffers: Tensor) -> Tensor:
        """Marks integer buffers whose module has a float buffer in the mask `[M]`, bool `[c]`.

        For a module without float buffers, all float buffers decide.
        """
        owners = {slot.owner for slot in self.buffers}
        chosen = {slot.owner for slot in self.buffers if buffers[slot.place].any()}
        every = bool(buffers.all())
        return _mark(self.counters, lambda slot: slot.owner in chosen if slot.owner in owners else every)

    def linear_head(self) -> tuple[Slot, Slot | None]:
        """Weight `[C, d]` and bias `[C]` (if any) of the classifier. Raises ConfigError unless it is one Linear."""
        self.mask("head")
        head = sorted((s for s in self.params if s.head), key=lambda s: -len(s.shape))
        shapes = [s.shape for s in head]
        if shapes and len(shapes[0]) == 2 and shapes[1:] in ([], [shapes[0][:1]]):
            return head[0], head[1] if head[1:] else None
        raise ConfigError(
            f"this method needs a classifier that is one linear layer: '{self.head_name}' has parameters of shape "
            f"{', '.join(str(list(shape)) for shape in shapes) or 'none'}"
        )

    def _of_role(self, role: Role) -> Callable[[Slot], bool]:
        if role not in (roles := get_args(Role)):
            raise ConfigError(
                f"'{role}' is no role of parameters, which are {', '.join(roles)}; layout.under(['{role}']) marks what "
                "has this name or is under it"
            )
        if role not in ("norm", "any_norm") and self.head_name is None:
            last = self.params[-1].owner if self.params else ""
            raise ConfigError(
                "this method needs to know the model's classifier: name it with --model.head NAME "
                f"(the last layer is '{last}') or give the module an attribute `head`"
            )
        return (lambda s: not s.head) if role == "body" else attrgetter(role)


def _length(slots: Sequence[Slot]) -> int:
    """The length of the flat vector of these slots."""
    return slots[-1].stop if slots else 0


def _mark(slots: Sequence[Slot], inside: Callable[[Slot], bool]) -> Tensor:
    mask = torch.zeros(_length(slots), dtype=torch.bool)
    for slot in slots:
        if inside(slot):
            mask[slot.place] = True
    return mask


def _of_type(module: nn.Module, *types: type[nn.Module]) -> list[str]:
    return [name for name, child in module.named_modules() if isinstance(child, types)]


def _groups(module: nn.Module) -> dict[str, int]:
    """The group number of every tensor; a declaration omits tensors that it does not name."""
    names = [name for name, _ in named_tensors(module)]
    declared = getattr(module, "layer_groups", None)
    if isinstance(declared, list | tuple):
        groups = [tuple(map(unwrapped_name, [item] if isinstance(item, str) else item)) for item in declared]
        numbers = {n: [i for i, prefixes in enumerate(groups) if any(is_under(n, p) for p in prefixes)] for n in names}
        return {name: group[0] for name, group in numbers.items() if group}
    owners, count = {}, 0
    for owner, child in module.named_modules():
        trains = any(p.requires_grad for p in child.parameters(recurse=False))
        count += trains and (count == 0 or not isinstance(child, NORMS))
        owners[owner] = max(0, count - 1)
    return {name: owners[name.rpartition(".")[0]] for name in names}


def _members(module: nn.Module, names: list[str]) -> set[int]:
    """Identities of all tensors below these submodules."""
    members: set[int] = set()
    for name in names:
        try:
            child = module.get_submodule(name)
        except AttributeError:
            known = [n for n, _ in module.named_modules() if n]
            raise ConfigError(
                f"model.head = '{name}': the model has no such submodule; {nearest(name, known)}"
            ) from None
        members |= {id(tensor) for _, tensor in named_tensors(child)}
    return members


def _tensors_outside(module: nn.Module, head: str | None) -> set[int]:
    """Identities of all tensors with a name outside the head."""
    tensors = named_tensors(module, remove_duplicate=False)
    return {id(tensor) for name, tensor in tensors if not (head and is_under(name, head))}


def _slots(tensors: Sequence[tuple[str, Tensor]], roles: dict[str, set[int]]) -> tuple[Slot, ...]:
    slots, start = [], 0
    for name, tensor in tensors:
        stop = start + prod(tensor.shape)
        owned = {role: id(tensor) in members for role, members in roles.items()}
        slots.append(Slot(name, tuple(tensor.shape), start, stop, **owned))
        start = stop
    return tuple(slots)


def shares_by_tensor(name: str, slots: Iterable[Slot], ones: Tensor | np.ndarray, masks: int = 1) -> dict[str, float]:
    """`NAME/TENSOR`: the share of ones in every tensor. ones: of `masks` masks together `[N]`, bool or counts."""
    return {f"{name}/{s.name}": float(ones[s.place].sum()) / (s.size * masks) for s in slots}


def slots_with_one(mask: Tensor | None, slots: Sequence[Slot]) -> tuple[bool, ...]:
    """Whether a mask has a one in each of these parts of the vector; None has ones everywhere."""
    if mask is None:
        return (True,) * len(slots)
    parts = [mask[slot.place].view(torch.int8) for slot in slots]
    if mask.device.type == "cpu" or not all(part.numel() for part in parts):
        return tuple(map(holds_one, parts))
    return tuple(map(bool, torch.stack([part.amax() for part in parts]).tolist()))  # the GPU is waited for once
