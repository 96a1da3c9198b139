"""FedRep: a shared representation under private heads (Collins, Hassani, Mokhtari, Shakkottai; ICML 2021).

Private: the declared head. Up and down: the body with its running statistics. A round trains the head on the received
body, then the body under the new head; training both in every step is FedPer.

Where we decide:
- Each phase has its own optimiser and random stream. The authors' code has one optimiser and zeroed gradients, so
  momentum and weight decay keep moving frozen entries.
- BatchNorm layers of the body run in evaluation mode while the head is trained; the code leaves them in train mode.
- Bodies are averaged uniformly (Algorithm 1); the code weights by images. Its last round, in which all clients train
  their heads only, is not done. Its weight decay of 1e-4 spares biases; ours defaults to 0 and acts on all.
- A tensor that head and body share counts as body.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Move, Step
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights


class FedRep(Method["FedRep.Options"]):
    """Every client keeps its own head, and trains it before it trains the body."""

    about = About(
        "private heads are trained for many epochs before the shared body",
        "parameter decoupling",
        "Collins et al., ICML",
        2021,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedbabu:ft_epochs=0,weighting=uniform": {
            "method.head_epochs": 0,
            "model": "mlp",
            "train.batch_size": "full",
            "train.shuffle": False,
        }
    }

    class Options(Method.UniformOptions):
        head_epochs: int = Field(10, ge=0, description="epochs of the head phase, Algorithm 1")
        body_epochs: int = Field(1, ge=0, description="epochs of the body phase, Algorithm 1")
        head_lr: float | None = Field(
            None,
            gt=0,
            description="learning rate of the head phase; none: the run's",
            json_schema_extra={"rate": "run"},
        )
        order: Literal["head_first", "body_first"] = Field("head_first", description="which phase comes first")

    train_defaults: ClassVar[dict[str, Any]] = {"weight_decay": 0.0}
    needs = frozenset({"head", "epochs"})

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return Amount(epochs=options.head_epochs + options.body_epochs).steps_on(samples, train)

    def private(self, layout: Layout) -> Masks:
        return layout.masks("head") & ~layout.masks("tied")

    def train(self, client: Client, received: Weights) -> Upload:
        epochs = self.options.head_epochs
        if self.options.order == "head_first":
            return self.upload(client, self.fit_body(client, self.fit_head(client, received, epochs)))
        return self.upload(client, self.fit_head(client, self.fit_body(client, received), epochs))

    def fit_head(self, client: Client, model: Weights, epochs: int | None) -> Weights:
        move, step = Move(self.private_params.mask, frozen="norm_eval"), Step(lr=self.options.head_lr)
        return client.fit(model, client.train, "head", Amount(epochs=epochs), move, step=step)

    def fit_body(self, client: Client, model: Weights) -> Weights:
        move = Move(self.shared_params.mask, frozen="norm_eval")
        return client.fit(model, client.train, "body", Amount(epochs=self.options.body_epochs), move)

    def join(self, client: Client, received: Weights) -> Weights:
        """Only the head is trained, under the common body."""
        return self.fit_head(client, received, client.epochs)
