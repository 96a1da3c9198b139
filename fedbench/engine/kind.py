"""Which fits can be stepped together: kinds of fits, and why a fit cannot be done in rows."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit, PairedBatches
from fedbench.engine.module_optimizer import own_optimizer
from fedbench.engine.optimizers import rate_of
from fedbench.engine.row_optimizers import RowOptimizer
from fedbench.engine.row_step import UnsupportedFitError
from fedbench.module.layout import Slot, slots_with_one
from fedbench.tasks import Task

Need = tuple[str, tuple[int, ...], torch.dtype]
LEAST_ROOM = 32
"""Rows that an input of a loss with a row for every sample has at least."""
CONSTANT_TYPES = (str, bool, int, float, type(None), FunctionType, Task)
AFTER = "_post_accumulate_grad_hooks"


@dataclass(frozen=True)
class Kind:
    """Common properties of fits stepped together, batches aside.

    needs, edit_needs: names and shapes of the inputs of the loss, and of further inputs of the edit. paired: samples in
    a batch of the second data set, 0 without one. widened: inputs of the loss with a row for every sample or step, with
    room for more than this client has.
    """

    function: Any
    constants: tuple[tuple[str, Any], ...]
    needs: tuple[Need, ...]
    edit_needs: tuple[Need, ...]
    moving: tuple[bool, ...]
    masked: bool
    frozen: str
    single_sample: bool
    paired: int
    edit: Any
    optimizer: RowOptimizer
    widened: tuple[str, ...]
    rate: float

    @property
    def step_key(self) -> tuple[Any, ...]:
        """The properties that determine the code of a step."""
        return self.function, self.constants, self.needs, self.moving, self.frozen, self.single_sample, self.paired


def engine_refusal(engine: Engine) -> str | None:
    """Why no fit of this engine can be done in rows, if so."""
    assert engine.hooks is not None
    is_full = engine.train.batch_size == "full"
    return _first_reason(
        {
            f"train.accumulate = {engine.train.accumulate}": engine.train.accumulate > 1,
            "train.batch_size = full: batches of several clients have no size in common": is_full,
            f"the model overrides {', '.join(engine.hooks.calls)}": bool(engine.hooks.calls),
            "the model has hooks on gradients": has_gradient_hooks(engine.flat.module),
        }
    )


def fit_kind(engine: Any, fit: Fit) -> Kind:
    """Raises UnsupportedFitError for a fit that cannot be done in rows. engine: a `RowEngine`."""
    optimizer = RowOptimizer.of(engine, fit) if fit.step.rule is None or engine.takes_rules else None
    refusal = _first_reason(
        {
            "the model's own optimiser makes the steps": own_optimizer(engine, fit),
            "the method sets the optimiser": optimizer is None
            or (fit.step.rule is not None and not engine.takes_rules),
            "the method steps parts of the model by settings of their own": bool(fit.step.parts),
            f"train.optimizer = {engine.optimizer}": engine.optimizer not in engine.optimizers,
        }
    )
    if refusal is not None or optimizer is None:
        raise UnsupportedFitError(refusal or "")
    needs = vars(fit.needs(engine.flat.w))
    tensors = {name: value for name, value in needs.items() if isinstance(value, Tensor)}
    constants = {name: value for name, value in needs.items() if name not in tensors}
    for name, value in constants.items():
        if not is_constant(value):
            raise UnsupportedFitError(f"a loss or an edit of the method needs {name}, which is not a tensor")
    mask = None if fit.move is None else fit.move.mask
    loss_needs = fit.loss.needs if fit.loss else {}
    if engine.widens:
        _refuse_places(engine, tensors.keys() - loss_needs.keys(), tensors)
    widened = per_sample(engine, fit, {name: tensors[name] for name in loss_needs if name in tensors})
    shapes = [(name, widened.get(name) or tuple(value.shape), value.dtype) for name, value in sorted(tensors.items())]
    return Kind(
        function=fit.loss and identity_of(fit.loss.function, "loss"),
        constants=tuple(sorted(constants.items())),
        needs=tuple(need for need in shapes if need[0] in loss_needs),
        edit_needs=tuple(need for need in shapes if need[0] not in loss_needs),
        moving=slots_with_one(mask, engine.flat.layout.params),
        masked=mask is not None,
        frozen="train" if fit.move is None else fit.move.frozen,
        single_sample=fit.has_single_sample,
        paired=fit.data.size if isinstance(fit.data, PairedBatches) else 0,
        edit=fit.step.edit and identity_of(fit.step.edit, "edit"),
        optimizer=optimizer,
        widened=tuple(sorted(widened)),
        rate=rate_of(engine, fit),
    )


def per_sample(engine: Any, fit: Fit, tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The inputs of a loss with a row for every sample or step of a client, in a shape that others have too.

    A power of two, so that it depends on the client alone.
    """
    if not engine.widens:
        return {}
    samples = len(fit.data)
    steps = fit.amount.steps_on(samples, engine.train)
    counts = {samples, steps, steps * int(engine.train.batch_size)} - {0, 1}
    return {
        name: (max(LEAST_ROOM, 1 << (len(value) - 1).bit_length()), *value.shape[1:])
        for name, value in tensors.items()
        if value.dim() and len(value) in counts
    }


def _refuse_places(engine: Any, names: Set[str], tensors: Mapping[str, Tensor]) -> None:
    """Raises UnsupportedFitError for inputs of an edit whose size is that of no vector, and so a client's own."""
    size = engine.flat.layout.size
    misfits = [name for name in sorted(names) if tuple(tensors[name].shape) not in ((), (size,))]
    if misfits:
        raise UnsupportedFitError(f"an edit of the method needs {misfits[0]}, whose size is a client's own")


def _first_reason(reasons: dict[str, bool]) -> str | None:
    return next((reason for reason, holds in reasons.items() if holds), None)


def has_gradient_hooks(module: nn.Module) -> bool:
    """Whether hooks are called in the backward pass, which tensors of rows do not support."""
    hooks = [getattr(m, name) for m in module.modules() for name in ("_backward_hooks", "_backward_pre_hooks")]
    tensors = [getattr(p, name) for p in module.parameters() for name in ("_backward_hooks", AFTER)]
    return any(hooks) or any(tensors)


def identity_of(function: Any, what: str) -> Any:
    """A key, equal for the same loss or edit of another fit. Raises UnsupportedFitError if it contains tensors."""
    if isinstance(function, partial):
        parts = (function.func, *function.args, *(part for pair in sorted(function.keywords.items()) for part in pair))
        return tuple(identity_of(part, what) for part in parts)
    if is_constant(function):
        return function
    raise UnsupportedFitError(f"the {what} of the method refers to more than constants")


def is_constant(value: Any) -> bool:
    """Whether equal values mean the same for all clients: they contain no client's tensors."""
    if isinstance(value, tuple):
        return all(isinstance(item, Slot) or is_constant(item) for item in value)
    return isinstance(value, CONSTANT_TYPES) and not getattr(value, "__closure__", None)
