"""FedRep: a shared representation under private heads (Collins, Hassani, Mokhtari, Shakkottai; ICML 2021).

Private: the declared head. Up and down: the body with its running statistics. A round trains the head on the received
body, then the body under the new head; training both in every step is FedPer.

Where we decide:
- Each phase has an optimiser and a random stream of its own. The authors' code has one optimiser and zeroed gradients,
  so that momentum and weight decay keep moving what is frozen.
- BatchNorm layers of the body run in evaluation mode while the head is trained; the code leaves them in train mode.
- Bodies are averaged uniformly (Algorithm 1); the code weights by images. Its last round, in which all clients train
  their heads only, is not done. Its weight decay of 1e-4 spares biases; ours defaults to 0 and acts on all.
- A tensor that head and body share counts as body.
"""

from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedbench.learner.layout import Layout
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Upload


class FedRep(Method):
    """Every client keeps its own head, and trains it before it trains the body."""

    class Options(Method.Options):
        weighting: Literal["uniform", "samples"] = Field(
            "uniform", description="weight of a client in the mean: the same for all, or its training images"
        )
        head_epochs: int = Field(10, ge=0, description="epochs of the head phase, Algorithm 1")
        body_epochs: int = Field(1, ge=0, description="epochs of the body phase, Algorithm 1")
        head_lr: float | None = Field(None, gt=0, description="learning rate of the head phase; none: the run's")
        order: Literal["head_first", "body_first"] = Field("head_first", description="which phase comes first")

    train_defaults: ClassVar[dict[str, Any]] = {"weight_decay": 0.0}
    needs_head = True
    own_epochs = True

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        return layout.mask("head") & ~layout.mask("tied"), layout.buffer_mask("head") & ~layout.buffer_mask("tied")

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        phases = [
            partial(self._train, client, "head", self.own.mask, self.options.head_epochs, self.options.head_lr),
            partial(self._train, client, "body", self.shared.mask, self.options.body_epochs, None),
        ]
        trained = received
        for train in phases if self.options.order == "head_first" else reversed(phases):
            trained = train(trained)
        return self.upload(client, trained)

    def _train(
        self, client: Client, phase: str, trainable: Tensor, epochs: int, lr: float | None, start: Weights
    ) -> Weights:
        return client.learner.fit(
            start,
            client.train,
            purpose=phase,
            epochs=epochs,
            lr=lr,
            train_only=trainable,
            freeze_norm=True,
            memory=client.memory(phase),
        )
