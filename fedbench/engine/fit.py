"""A local training as a value, the input of an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal, Protocol

from lightning import LightningModule
from torch import Tensor, zeros_like
from torch.optim import Optimizer

from fedbench.config import TrainConfig
from fedbench.errors import RunError, place_of_code
from fedbench.module.seeds import Key
from fedbench.module.weights import Weights

Edit = Callable[[Tensor, Tensor, Any], None]
LossFunction = Callable[[LightningModule, Any, Any], Tensor]
Rule = Callable[..., Optimizer]


class Batches(Protocol):
    """Data of a client: `len(data)` samples, indexed by places; key: names random streams."""

    @property
    def key(self) -> Key: ...

    def __len__(self) -> int: ...

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs `[b, ...]` and labels `[b]` at places `[b]`."""
        ...


@dataclass
class OneBatch:
    """A batch as data. x: `[b, ...]`; y: `[b]`."""

    x: Tensor
    y: Tensor
    key: Key

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class Unlabelled:
    """Data whose targets are hidden: zeros of their shape."""

    def __init__(self, data: Batches) -> None:
        self._data = data

    @property
    def key(self) -> Key:
        return self._data.key

    def __len__(self) -> int:
        return len(self._data)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self._data.batch(index)
        return x, zeros_like(y)


@dataclass
class PairedBatches:
    """Paired data: every step gets a batch of the first and one of `size` samples of the second.

    The first sets the steps of an epoch and is augmented; stream: names the order of the second.
    """

    first: Batches
    second: Batches
    size: int
    stream: str = "public"

    @property
    def key(self) -> Key:
        return self.first.key

    def __len__(self) -> int:
        return len(self.first)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.first.batch(index)


@dataclass(frozen=True)
class Amount:
    """Length of a fit. epochs, steps: steps take precedence; if both are None, `train.*` applies.

    after: epochs (or steps) of this stream already done; the fit continues after them. shuffle: None:
    `train.shuffle`. min_batch: smaller batches are dropped. trial: whether it ends after its first step, though the
    module is told of all of them.
    """

    epochs: int | None = None
    steps: int | None = None
    after: int = 0
    shuffle: bool | None = None
    min_batch: int = 1
    trial: bool = False

    def length(self, train: TrainConfig) -> tuple[int, int | None]:
        """Epochs and steps; the epochs count if the steps are None."""
        if self.epochs is None and self.steps is None:
            return train.epochs, train.steps
        return self.epochs or 0, self.steps

    def steps_on(self, samples: int, train: TrainConfig) -> int:
        """Gradient steps on `samples` samples."""
        epochs, steps = self.length(train)
        if steps is not None:
            return steps
        size = samples if train.batch_size == "full" else int(train.batch_size)
        whole, rest = divmod(samples, size)
        return epochs * (whole + (rest >= self.min_batch))

    def part(self, share: float, samples: int, train: TrainConfig) -> "Amount":
        """The first share of its steps on `samples` samples, rounded, at least one of any."""
        whole = self.steps_on(samples, train)
        if share == 1 or whole <= 1:
            return self
        by_epochs = self.length(train)[1] is None
        after = replace(self, epochs=self.after, steps=None).steps_on(samples, train) if by_epochs else self.after
        return replace(self, epochs=None, steps=max(1, int(share * whole + 0.5)), after=after)


AMOUNT = Amount()
"""As `train.*` sets it."""


@dataclass(frozen=True)
class Move:
    """The entries that may move, bool `[N]`; the others never do, by gradient, decay or momentum.

    frozen: mode of wholly frozen modules: as in training, normalisation layers as in evaluation, or all of them as in
    evaluation, Dropout too.
    """

    mask: Tensor
    frozen: Literal["train", "norm_eval", "eval"] = "train"


class Loss:
    """A module-level loss `function(net, batch, s) -> scalar`, and its further inputs as attributes of `s`.

    `s.index` are the batch's places in the data. The function may write to the tensors of `s`. Numbers become tensors.
    """

    def __init__(self, function: LossFunction, **needs: Any) -> None:
        self.function, self.needs = function, needs

    def of(self, net: LightningModule, batch: Any, s: Any) -> Tensor:
        """The loss of a batch. Raises RunError if the function returns no loss."""
        loss = self.function(net, batch, s)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            name = getattr(self.function, "__name__", "function")
            raise RunError(
                f"the loss {name} must return a tensor, one number that depends on the parameters; it returned {got}",
                place_of_code(self.function),
            )
        return loss


@dataclass(frozen=True)
class Part:
    """Entries, bool `[N]` in a few ranges, with steps of their own: what is None is as for the others."""

    mask: Tensor
    lr: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None

    def settings(self, decay: float) -> dict[str, float]:
        """What differs, by the names of torch.optim; decay: factor of the learning rate."""
        settings = {"lr": self.lr, "momentum": self.momentum, "weight_decay": self.weight_decay}
        return {name: value * decay if name == "lr" else value for name, value in settings.items() if value is not None}


class Step:
    """How a gradient becomes a step.

    edit: a module-level function `(g, w, s)` that changes the gradient `[N]` in place before decay and momentum,
    elementwise over the last dimension; `s` has its further inputs as attributes, numbers as tensors. lr: learning
    rate; None: `train.lr`. decay: factor of every learning rate in this round. rule: a class of torch.optim, with
    settings by `functools.partial`, that steps on the edited g, regardless of the run's optimiser, momentum and decay.
    memory: stores the optimiser's state for later fits; a name: at the client, with `train.keep_optimizer`; None: by
    the name of the stream. parts: of the model, with rates, momentum or decay of their own.
    """

    def __init__(
        self,
        edit: Edit | None = None,
        *,
        lr: float | None = None,
        decay: float = 1.0,
        rule: Rule | None = None,
        memory: dict[str, Any] | str | None = None,
        parts: Sequence[Part] = (),
        **needs: Any,
    ) -> None:
        self.edit, self.lr, self.decay, self.rule, self.memory, self.needs = edit, lr, decay, rule, memory, needs
        self.parts = parts

    def change(self, g: Tensor, w: Tensor, s: Any) -> None:
        """Edits the gradient. Raises RunError if the edit returns a value, which would be ignored."""
        assert self.edit is not None
        result = self.edit(g, w, s)
        if result is not None and result is not g:
            raise RunError(
                f"the edit {getattr(self.edit, '__name__', '')} of a step must change g in place and return nothing; "
                f"it returned a {type(result).__name__}",
                place_of_code(self.edit),
            )

    def of(self, decay: float, memory: dict[str, Any] | None) -> "Step":
        """A copy with this factor of learning rates and this memory."""
        return Step(self.edit, lr=self.lr, decay=decay, rule=self.rule, memory=memory, parts=self.parts, **self.needs)


@dataclass
class Fit:
    """One local training. start is not changed; stream: names the random stream of this training.

    loss: None: the result of the module's training_step.
    """

    start: Weights
    data: Batches
    stream: str = "fit"
    amount: Amount = AMOUNT
    move: Move | None = None
    loss: Loss | None = None
    step: Step = field(default_factory=Step)

    @property
    def memory(self) -> dict[str, Any] | None:
        """Storage of the optimiser's state, or None."""
        return self.step.memory if isinstance(self.step.memory, dict) else None

    @property
    def has_single_sample(self) -> bool:
        """Whether a data set holds one sample only, from which BatchNorm learns no variance."""
        sets = (self.data.first, self.data.second) if isinstance(self.data, PairedBatches) else (self.data,)
        return any(len(data) == 1 for data in sets)

    @property
    def inputs(self) -> dict[str, Any]:
        """Inputs of edit and loss, as the method gives them."""
        return {**self.step.needs, **(self.loss.needs if self.loss else {})}

    def needs(self, like: Tensor) -> SimpleNamespace:
        """Inputs of edit and loss; numbers as tensors `[]` of the parameters' type."""
        given = self.inputs.items()
        return SimpleNamespace(**{k: like.new_tensor(v) if isinstance(v, int | float) else v for k, v in given})
