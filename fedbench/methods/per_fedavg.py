"""Per-FedAvg (Fallah, Mokhtari, Ozdaglar; NeurIPS 2020): a shared model that is good after one step of adaptation.

Private: nothing; the personal model is a throwaway adaptation of the shared one. Up and down: the whole meta-model.
A meta-step takes a step with one batch, looks at the gradient there with a second one, and applies it where it began;
`hf` and `exact` correct it by the Hessian on a third batch, as a difference of gradients or differentiated twice.

Where we decide:
- The mean is uniform, as in the paper's objective. The batches of a meta-step are consecutive ones of one stream.
- Adaptation (A_i) is a step with the full gradient of the client's training images, in stored order: deterministic, and
  never on test images. Popular code adapted on a batch, at times on a labelled test batch.
- alpha 0.01 and beta = lr suit the harness; delta 1e-3 is the paper's. Smaller ones drown in float32.
- The passes for the Hessian leave running statistics alone, and those at w + delta g and w - delta g have the same
  dropout masks. `exact` is ours, for tests and small models.
- Popular code applied the meta-step to the adapted model; one port differences two equal gradients, which is `fo`.
"""

from collections.abc import Callable
from functools import cached_property, partial
from math import ceil
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.learner import seeds
from fedbench.learner.learner import Batches
from fedbench.learner.loop import OwnSteps
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Predictor, Upload


class PerFedAvg(Method):
    """Federated MAML: the mean of models that were trained to be adapted."""

    class Options(Method.Options):
        variant: Literal["fo", "hf", "exact"] = Field(
            "fo", description="Hessian term: none, by a difference of gradients, or exact, sec. 5"
        )
        alpha: float = Field(0.01, ge=0, description="rate of the inner step and of the adaptation, eq. 4")
        beta: float | None = Field(None, gt=0, description="rate of the meta-step; none: train.lr")
        delta: float = Field(1e-3, gt=0, description="reach of the difference of variant=hf")
        adapt_steps: int = Field(1, ge=0, description="steps of adaptation before a model is evaluated")
        weighting: Literal["uniform", "samples"] = Field(
            "uniform", description="weight of a client in the mean: the same (Algorithm 1), or its training images"
        )

    train_defaults: ClassVar[dict[str, Any]] = {"momentum": 0.0, "weight_decay": 0.0}
    own_steps = True

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        learner, options = client.learner, self.options
        rates = {
            "alpha": options.alpha * learner.lr_factor,
            "beta": (options.beta or self.context.train.lr) * learner.lr_factor,
        }
        hessian = {"fo": None, "hf": partial(difference, delta=options.delta), "exact": exact}[options.variant]
        trained = learner.fit(
            received,
            client.train,
            steps=self.meta_steps(client.samples),
            batches=self.batches,
            step=partial(meta_step, hessian=hessian, **rates),
        )
        upload = self.upload(client, trained)
        client.fitted = self.adapted(client, trained)
        return upload

    @property
    def batches(self) -> int:
        """Batches of a meta-step."""
        return 2 if self.options.variant == "fo" else 3

    def meta_steps(self, samples: int) -> int:
        """How many meta-steps a client of so many training images makes in a round."""
        train = self.context.train
        size = samples if train.batch_size == "full" else int(train.batch_size)
        return train.steps or train.epochs * max(1, ceil(samples / size) // self.batches)

    def adapted(self, client: Client, weights: Weights) -> Predictor:
        """A_i of these weights, computed when it is asked for."""
        if not (self.options.adapt_steps and self.options.alpha):
            return weights
        return Adapted(client, weights, self.options.adapt_steps, self.options.alpha * client.learner.lr_factor)

    def untrained(self, client: Client) -> Predictor:
        return self.adapted(client, client.initial)

    def personal(self, client: Client, download: Message) -> Predictor:
        return self.adapted(client, self.receive(client, download))


class Adapted:
    """Class scores of a model after `steps` steps with the full gradient of the client's training images."""

    def __init__(self, client: Client, weights: Weights, steps: int, rate: float) -> None:
        self.client, self.start, self.steps, self.rate = client, weights, steps, rate

    @cached_property
    def weights(self) -> Weights:
        step = partial(full_step, rate=self.rate)
        return self.client.learner.fit(
            self.start, self.client.train, purpose="adapt", epochs=self.steps, batches=None, shuffle=False, step=step
        )

    def __call__(self, data: Batches) -> Tensor:
        return self.client.learner.logits(self.weights, data)


Hessian = Callable[[OwnSteps, Tensor, Tensor], Tensor]
"""(passes, w, g) -> the Hessian at `w` on a step's third batch, times `g` `[N]`."""


def meta_step(passes: OwnSteps, w: Tensor, s: Any, *, alpha: float, beta: float, hessian: Hessian | None) -> None:
    """One step of Algorithm 1 on `w` `[N]`."""
    start = w.clone()
    w.sub_(passes.gradient(0), alpha=alpha)
    g = passes.gradient(1)
    w.copy_(start)
    if hessian is not None:
        g = g.clone()
        g.sub_(hessian(passes, w, g), alpha=alpha)
    w.sub_(g, alpha=beta)


def difference(passes: OwnSteps, w: Tensor, g: Tensor, *, delta: float) -> Tensor:
    """[grad f(w + delta g) - grad f(w - delta g)] / (2 delta)."""
    start = w.clone()
    with passes.kept_buffers():
        w.add_(g, alpha=delta)
        with seeds.preserved_torch_stream():
            ahead = passes.gradient(2).clone()
        torch.sub(start, g, alpha=delta, out=w)
        behind = passes.gradient(2)
    w.copy_(start)
    return ahead.sub_(behind).div_(2 * delta)


def exact(passes: OwnSteps, w: Tensor, g: Tensor) -> Tensor:
    """The product by differentiating twice."""
    with passes.kept_buffers():
        return passes.hessian_product(g, 2)


def full_step(passes: OwnSteps, w: Tensor, s: Any, *, rate: float) -> None:
    """A step with the mean gradient of all images of the batches, each at the same `w` `[N]`."""
    images, mean = sum(passes.sizes), torch.zeros_like(w)
    for number, size in enumerate(passes.sizes):
        mean.add_(passes.gradient(number), alpha=size / images)
    w.sub_(mean, alpha=rate)
