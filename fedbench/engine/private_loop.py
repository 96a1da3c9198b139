"""DP-SGD: steps along clipped gradients of single samples, with noise (Abadi et al., CCS 2016, Algorithm 1).

A batch is a Poisson sample: every training sample is in it with the same probability, batch size / number of samples,
by itself. Each gradient, of the loss of a batch that holds this sample alone, is shortened to at most `clip`; their sum
gets Gaussian noise of standard deviation noise * clip, and is divided by the expected batch size. What is made of this
gradient, such as momentum, weight decay or a pull, costs no privacy. Gradients of single samples come from torch.func,
which needs no wrapper around the module's layers and writes into the flat vector.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedbench.engine.engine import BatchPlan
from fedbench.engine.fit import AMOUNT, Amount, Batches, Fit, PairedBatches
from fedbench.engine.loop import At, Loop, Training
from fedbench.engine.losses import trained_loss
from fedbench.errors import ConfigError
from fedbench.module import seeds
from fedbench.module.hooks import CHANGE_BATCHES, overrides

HELD = 2**25
"""Numbers in the gradients of single samples that are held at a time."""
SEE_LOSS = ("on_before_backward", "on_after_backward")


@dataclass(frozen=True)
class PrivateSteps:
    """clip: largest norm of a sample's gradient; noise: in multiples of it; method: its name, for error messages."""

    clip: float
    noise: float
    method: str


class PrivateLoop(Loop):
    """The loop with private steps. Raises ConfigError for modules and fits whose steps would not be private."""

    def __init__(self, *given: Any, private: PrivateSteps, **more: Any) -> None:
        super().__init__(*given, **more)
        self.private = private
        for hook in (*CHANGE_BATCHES, *SEE_LOSS):
            if overrides(self.flat.module, hook):
                raise ConfigError(
                    f"privacy.level = sample: {type(self.flat.module).__name__} overrides {hook}, which could mix "
                    "samples; remove it, or set privacy.level = client"
                )

    def run(self, fit: Fit, plan: BatchPlan) -> None:
        if fit.loss is not None or isinstance(fit.data, PairedBatches):
            refuse_method(self.private.method, "trains by a loss of its own")
        training = PrivateTraining(self, fit, plan)
        for batch in training:
            training.step(batch)
        training.finish()

    def training(self, fit: Fit) -> NoReturn:
        refuse_method(self.private.method, "makes gradient steps of its own")

    def expected_batch_size(self, count: int, batch_size: int | str | None = None) -> int:
        """The expected number of samples in a batch of `count` samples."""
        size = self.train.batch_size if batch_size is None else batch_size
        return count if size == "full" else min(count, int(size))

    def orders(
        self,
        data: Batches,
        stream: str,
        batch_size: int | str,
        amount: Amount = AMOUNT,
        device: torch.device | None = None,
    ) -> Iterator[list[Tensor]]:
        """Endless epochs of Poisson samples, which may be empty; as many in an epoch as it has usual batches."""
        count, size = len(data), self.expected_batch_size(len(data), batch_size)
        draw = seeds.generator(*data.key, stream, "poisson", self.ledger.steps)
        while True:
            drawn = (torch.rand(ceil(count / size), count, generator=draw, dtype=torch.float64) < size / count).unbind()
            yield [row.nonzero().flatten().to(device or self.flat.device) for row in drawn]


class PrivateTraining(Training):
    """A running fit with private steps."""

    engine: PrivateLoop

    def __init__(self, engine: PrivateLoop, fit: Fit, plan: BatchPlan) -> None:
        super().__init__(engine, fit, plan)
        flat, mask = engine.flat, None if fit.move is None else fit.move.mask.to(engine.flat.device)
        trainable = [(s, p) for s, p in zip(flat.layout.params, flat.parameters, strict=True) if p.requires_grad]
        self._slots = [slot for slot, _ in trainable]
        self._parameters = {f"module.{slot.name}": parameter.detach() for slot, parameter in trainable}
        self._moving = None if mask is None else torch.cat([mask[s.place] for s in self._slots])
        self._model = OneSample(flat.module, self)
        self._expected = engine.expected_batch_size(len(fit.data))
        # Two fits of a client in a round, even of one stream, have noise of their own.
        self._noise = seeds.generator(*fit.data.key, fit.stream, "noise", engine.ledger.steps)

    def step(self, batch: Any, at: At | None = None) -> None:
        self.stepper.step(lambda: self._closure(batch, at))
        if self.loss is None:
            self.engine.ledger.steps += 1  # an empty batch: a step of noise
        else:
            self.engine.ledger.add(self.loss)

    def _closure(self, batch: Any, at: At | None) -> Tensor:
        """The private gradient of a batch in the flat vector, and the loss of the batch."""
        hooks, stepper, flat, privacy = self.hooks, self.stepper, self.engine.flat, self.engine.private
        hooks("on_before_zero_grad", stepper.optimizer)
        stepper.zero_grad()
        stepper.gather()
        with torch.no_grad():
            total, losses = self._clipped_sum(batch)
            self.loss = losses.mean() if len(losses) else None
            if privacy.noise:
                noise = torch.randn(len(total), generator=self._noise, dtype=total.dtype).to(total.device)
                total.add_(noise, alpha=privacy.noise * privacy.clip)
            parts = total.div_(self._expected).split([slot.size for slot in self._slots])
            for slot, part in zip(self._slots, parts, strict=True):
                flat.g[slot.place] = part
            if self.fit.step.edit is not None:
                self.fit.step.change(flat.g, flat.w, self.needs)
        hooks("on_before_optimizer_step", stepper.optimizer)
        return flat.g.new_zeros(()) if self.loss is None else self.loss

    def _clipped_sum(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The sum of the shortened gradients, of the entries that may move, and the losses `[b]`."""
        flat, (x, y) = self.engine.flat, batch
        total, losses = flat.g.new_zeros(sum(slot.size for slot in self._slots)), [flat.g.new_zeros(0)]
        each = vmap(grad_and_value(partial(functional_call, self._model)), in_dims=(None, 0), randomness="different")
        size = max(1, HELD // max(1, len(total)))
        for some in zip(x.split(size), y.split(size), strict=True) if len(x) else ():
            with self.hooks.logs.silence(), torch.enable_grad():
                gradients, values = each(self._parameters, some)
            rows = torch.cat([g.flatten(1) for g in gradients.values()], 1)  # [samples, entries]
            total += clipped_sum(rows if self._moving is None else rows * self._moving, self.engine.private.clip)
            losses.append(values.detach().to(total.dtype))
        return total, torch.cat(losses)

    def loss_of_one(self, x: Tensor, y: Tensor) -> Tensor:
        """The module's loss of a batch of one sample."""
        with self._autocast:
            loss = trained_loss(self._forward((x[None], y[None])), self.engine.flat.module)
        if loss is None:
            raise ConfigError(
                f"{type(self.engine.flat.module).__name__}.training_step returned None, which privacy.level = sample "
                "cannot use"
            )
        return loss.reshape(())


class OneSample(nn.Module):
    """The training step on one sample (x, y) as a forward pass, for `functional_call`."""

    def __init__(self, module: nn.Module, training: PrivateTraining) -> None:
        super().__init__()
        self.module, self._training = module, training

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self._training.loss_of_one(x, y)


def clipped_sum(rows: Tensor, clip: float) -> Tensor:
    """The sum of gradients `[samples, N]`, each shortened to a norm of at most `clip`."""
    norms = torch.linalg.vector_norm(rows, dim=1).clamp(min=torch.finfo(rows.dtype).tiny)
    return (clip / norms).clamp(max=1.0) @ rows


def refuse_method(name: str, what: str) -> NoReturn:
    """Raises ConfigError for a method whose steps are not the common ones."""
    raise ConfigError(
        f"privacy.level = sample: {name} {what}, which is not made private; leave it out, or set privacy.level = client"
    )
