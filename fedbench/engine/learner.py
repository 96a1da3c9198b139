"""The learner: one LightningModule on flat vectors, and the engine that trains it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from fedbench import processor
from fedbench.config import TrainConfig
from fedbench.engine import loop, trainer
from fedbench.engine.fit import AMOUNT, Amount, Batches, Fit
from fedbench.engine.lane import Asked
from fedbench.engine.losses import outputs_of, parts_of
from fedbench.engine.module_optimizer import module_optimizer
from fedbench.engine.stack import Stack
from fedbench.engine.trainee import Trainee
from fedbench.errors import ConfigError, RunError
from fedbench.module import seeds
from fedbench.module.hooks import LoopContext
from fedbench.module.logs import Logs
from fedbench.module.masks import holds_one
from fedbench.module.weights import Weights


class Learner(Trainee):
    """Trains the module of a host. Raises ConfigError for what cannot be honoured.

    schedules: the types of the module's schedulers. looks_again: whether its optimiser asks several times for the loss
    of a batch.
    """

    def __init__(self, module: LightningModule, train: TrainConfig, **more: Any) -> None:
        super().__init__(module, train, **more)
        self.stack = Stack(self, train.width, self._alone) if train.engine == "stack" else None
        self.together: Callable[[Fit], Weights] = self._at_once
        self.schedules, self.looks_again = list[str](), False
        if self.optimizer == "module":
            self._try_optimizers()

    def _try_optimizers(self) -> None:
        """Look at what configure_optimizers makes, and find what is wrong with it before anything is trained."""
        module, context = self.module, self.hooks.context if self.hooks else LoopContext(Logs())
        context.begin([[torch.zeros(0)] * 100] * max(1, self.train.epochs))
        if self.hooks:
            with told(f"{type(module).__name__}.configure_optimizers fails"):
                _, optimizer, schedulers = module_optimizer(module)
        else:
            module._trainer = context  # type: ignore[assignment]
            try:
                _, optimizer, schedulers = module_optimizer(module)
            except Exception:  # what needs a Trainer is tried with one, by `probe`
                return
            finally:
                module._trainer = None
        self.schedules = [type(config.scheduler).__name__ for config in schedulers]
        self.looks_again = isinstance(optimizer, torch.optim.LBFGS)

    def fit(self, fit: Fit) -> Weights:
        """The trained weights."""
        if fit.move is not None and not holds_one(fit.move.mask):
            return fit.start.clone()
        if self.stack is not None:
            return self.together(fit)
        return self._trained(fit)

    def _trained(self, fit: Fit) -> Weights:
        run = trainer.run if self.train.engine == "trainer" else loop.run
        with self.prepared(fit) as plan:
            run(self, fit, plan)
        self.check()
        return self.weights()

    def _alone(self, asked: Asked) -> Weights:
        """One fit of several, as if there were no other."""
        before, self.ledger = self.ledger, asked.ledger
        try:
            return self._trained(asked.fit)
        finally:
            self.ledger = before

    def _at_once(self, fit: Fit) -> Weights:
        """A fit that waits for no other one. Others may: `together` is how fits of clients that take turns are met."""
        assert self.stack is not None
        (found,) = self.stack.train([Asked(fit, self.ledger)])
        if isinstance(found, BaseException):
            raise found
        return found

    @contextmanager
    def training(self, fit: Fit) -> Iterator[loop.Training]:
        """A fit whose steps the caller makes, batch by batch. The trained weights are its `weights` afterwards."""
        if self.train.engine == "trainer":
            raise ConfigError(
                "train.engine = trainer: this method makes steps of its own, which lightning.Trainer does not know; "
                "leave it out"
            )
        with self.prepared(fit) as plan:
            training = loop.Training(self, fit, plan)
            yield training
            training.finish()
        self.check()
        training.weights = self.weights()

    def probe(self, data: Batches, outputs: int) -> None:
        """A forward pass and a gradient step before round 1. Raises ConfigError for what would fail then."""
        name, x = type(self.module).__name__, data.batch(torch.arange(min(2, len(data)), device=self.device))[0]
        failure = f"model {name} fails on samples of shape {tuple(x.shape[1:])}"
        with told(failure), self._evaluating(self.initial()), torch.no_grad(), self.autocast():
            returned = self.module(x)
        found = outputs_of(returned)
        legal = [(len(x), outputs)] if outputs > 1 or self.task.classes else [(len(x), 1), (len(x),)]
        fitting = [part for part in parts_of(returned) if isinstance(part, Tensor) and tuple(part.shape) in legal]
        if len(fitting) > 1:
            raise ConfigError(
                f"model {name}: forward(x) returns {len(fitting)} tensors of shape {list(fitting[0].shape)}, and each "
                'could be the outputs: return the outputs alone, or {"logits": outputs, ...}'
            )
        if not isinstance(found, Tensor) or tuple(found.shape) not in legal:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            what = "class scores" if self.task.classes else "numbers"
            one = self.task.classes and outputs == 2 and got in ((len(x),), (len(x), 1))
            hint = "; for one logit z return torch.stack([torch.zeros_like(z), z], 1), z [batch]" if one else ""
            raise ConfigError(
                f"model {name}: forward(x) must return {what} of shape [batch, {outputs}], it returned {got} for a "
                f"batch of {len(x)}{hint}"
            )
        with told(f"model {name} fails in training"), seeds.preserved_streams():
            self.fit(Fit(self.initial(), data, "probe", Amount(steps=1)))
        self.ledger.clear()

    def probe_metrics(self, data: Batches) -> None:
        """The metrics that were asked for, tried on a client's samples. Raises ConfigError for one that fails."""
        if self.task.further and len(data):
            with told("evaluate.metrics"):
                self.evaluate(self.initial(), data)

    def warnings(self, sizes: Sequence[int]) -> list[str]:
        """What to say once of clients with so many training images."""
        lines = [
            f"{copy} is a copy of the model inside the model: it counts as buffers, which are sent and averaged with "
            "the model where a method does that (method.buffers = private: they stay at the clients)"
            for copy in self.copies
        ]
        single = sum(size == 1 for size in sizes)
        if single and self._batchnorms:
            lines.append(
                f"{single} client(s) have one training image: their BatchNorm layers train with running statistics, "
                "because one image has no variance"
            )
        if self.train.precision == "bf16-mixed" and self.device.type == "cpu" and processor.has("bf16") is False:
            lines.append(
                "train.precision = bf16-mixed: this processor has no bfloat16 instructions, which makes it many times "
                "slower than 32-true"
            )
        return lines

    def steps_of(self, samples: int) -> int:
        """Gradient steps of one ordinary fit on so many samples."""
        return AMOUNT.steps_on(samples, self.train)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Any error as one line that says what failed, and where in its author's code. Raises ConfigError."""
    try:
        yield
    except RunError as error:
        raise ConfigError(str(RunError.of(error))) from error
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what}: {RunError.of(error)}") from error
