"""Per-FedAvg (Fallah, Mokhtari, Ozdaglar; NeurIPS 2020): a shared model that is good after one step of adaptation.

Private: nothing; the personal model is a throwaway adaptation of the shared one. Up and down: the whole meta-model.
A meta-step steps with one batch, computes the gradient there with a second one, and applies it at its start; `hf` and
`exact` correct it by the Hessian on a third batch, as a difference of gradients or by differentiating twice.

Where we decide:
- The mean is uniform, as in the paper's objective. The batches of a meta-step are consecutive ones of one stream.
- Adaptation (A_i) is a step with the full gradient of the client's training images, in stored order: deterministic, and
  never on test images. Popular code adapted on a batch, at times on a labelled test batch.
- alpha 0.01 and beta = lr suit the harness; delta 1e-3 is the paper's. Smaller ones drown in float32.
- The passes for the Hessian leave running statistics alone, and those at w + delta g and w - delta g have the same
  dropout masks. `exact` is ours, for tests and small models.
- Popular code applied the meta-step to the adapted model; one port differences two equal gradients, which is `fo`.
"""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Step
from fedbench.engine.loop import Training
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.module import seeds
from fedbench.module.weights import Weights

PLAIN_SGD = Step(rule=torch.optim.SGD)
BATCHES = {"fo": 2, "hf": 3, "exact": 3}
GRADIENTS = {"fo": 2, "hf": 4, "exact": 3}
"""Batches of a meta-step, by variant."""


class PerFedAvg(Method["PerFedAvg.Options"]):
    """Federated MAML: the mean of models trained for adaptation."""

    about = About(
        "a shared model that is good after one step of adaptation", "meta-learning", "Fallah et al., NeurIPS", 2020
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedavg": [
            {
                "method.alpha": 0,
                "method.variant": variant,
                "method.weighting": "samples",
                "model": "mlp",
                "train.batch_size": "full",
                "train.shuffle": False,
            }
            for variant in ("fo", "hf", "exact")
        ]
    }

    class Options(Method.UniformOptions):
        variant: Literal["fo", "hf", "exact"] = Field(
            "fo", description="Hessian term: none, by a difference of gradients, or exact, sec. 5"
        )
        alpha: float = Field(
            0.01,
            ge=0,
            description="rate of the inner step and of the adaptation, eq. 4",
            json_schema_extra={"rate": "own"},
        )
        beta: float | None = Field(
            None, gt=0, description="rate of the meta-step; none: train.lr", json_schema_extra={"rate": "own"}
        )
        delta: float = Field(1e-3, gt=0, description="reach of the difference of variant=hf")
        adapt_steps: int = Field(1, ge=0, description="steps of adaptation before a model is evaluated")

    train_defaults: ClassVar[dict[str, Any]] = {"momentum": 0.0, "weight_decay": 0.0}
    optimizer = "plain"

    @classmethod
    def makes_steps(cls, options: Options) -> bool:
        return True

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return meta_steps(train, samples, BATCHES[options.variant]) * GRADIENTS[options.variant]

    def train(self, client: Client, received: Weights) -> Upload:
        batches = BATCHES[self.options.variant]
        amount = Amount(steps=batches * meta_steps(self.context.train, client.samples, batches))
        with client.training(received, client.train, amount=amount, step=PLAIN_SGD) as training:
            for places in training.groups(batches):
                self.meta_step(training, places, client)
        return self.upload(client, training.weights)

    def meta_step(self, training: Training, places: list[Tensor], client: Client) -> None:
        """One step of Algorithm 1 on w `[N]`, with the batches at these places."""
        w, alpha, start = training.w, client.rate(self.options.alpha), training.w.clone()
        w.sub_(training.gradient(training.fetch(places[0])), alpha=alpha)
        g = training.gradient(training.fetch(places[1]))
        w.copy_(start)
        if self.options.variant != "fo":
            g = g.clone()
            g.sub_(self.hessian_product(training, training.fetch(places[2]), g), alpha=alpha)
        w.sub_(g, alpha=client.rate(self.options.beta))

    def hessian_product(self, training: Training, batch: Any, g: Tensor) -> Tensor:
        """The Hessian at w on a batch, times g `[N]`; hf: [grad f(w + delta g) - grad f(w - delta g)] / (2 delta)."""
        w, delta = training.w, self.options.delta
        with training.kept_buffers():
            if self.options.variant == "exact":
                return training.hessian_product(batch, g)
            start = w.clone()
            w.add_(g, alpha=delta)
            with seeds.preserved_torch_stream():
                ahead = training.gradient(batch).clone()
            torch.sub(start, g, alpha=delta, out=w)
            behind = training.gradient(batch)
        w.copy_(start)
        return ahead.sub_(behind).div_(2 * delta)

    def personal(self, client: Client, model: Weights, point: Point) -> Weights:
        return self.adapt(client, model, self.options.adapt_steps)

    def join(self, client: Client, received: Weights) -> Weights:
        """The received model after as many steps of adaptation as epochs."""
        return self.adapt(client, received, client.epochs or 0)

    def adapt(self, client: Client, model: Weights, steps: int) -> Weights:
        """A_i: the model after steps with the full gradient of the client's training images."""
        rate = client.rate(self.options.alpha)
        if not (steps and self.options.alpha):
            return model
        amount = Amount(epochs=steps, shuffle=False)
        with client.training(model, client.train, "adapt", amount, step=PLAIN_SGD) as training:
            for places in training.groups(None):
                mean = torch.zeros_like(training.w)
                for index in places:  # each at the same w
                    mean.add_(training.gradient(training.fetch(index)), alpha=len(index) / sum(map(len, places)))
                training.w.sub_(mean, alpha=rate)
        return training.weights


def meta_steps(train: TrainConfig, samples: int, batches: int) -> int:
    """Meta-steps per round of a client, by batches per meta-step and training images."""
    return train.steps or train.epochs * max(1, Amount(epochs=1).steps_on(samples, train) // batches)
