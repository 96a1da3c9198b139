"""One model on the pooled training data of all clients: the upper reference, deliberately without privacy.

No traffic is counted: the raw data are pooled. The optimiser is kept between rounds, because this is one run cut into
rounds. With `ft_epochs`, after_agg is a throwaway fine-tuned copy for each client.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.engine.fit import Amount
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client
from fedbench.methods.messages import Message, Upload, zero_bytes
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights


class Centralized(Method["Centralized.Options"]):
    """SGD on the union of the data; ignores participation."""

    about = About("one model on all clients' data pooled", "baseline")
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "local": {"partition.clients": 1, "model": "mlp", "train.batch_size": "full", "train.shuffle": False}
    }

    class Options(Method.Options):
        weighting: ClassVar[Any] = None  # type: ignore[misc] # no option: nothing is averaged
        buffers: ClassVar[Any] = None  # type: ignore[misc] # no option: there is one model
        ft_epochs: int = Field(0, ge=0, description="epochs of throwaway fine-tuning per client before evaluation")

    train_defaults: ClassVar[dict[str, Any]] = {"keep_optimizer": True}
    after_fit = "global"

    @classmethod
    def trainers(cls, options: Options) -> Literal["pooled"]:
        return "pooled"

    def personal(self, client: Client, model: Weights, point: Point) -> Weights:
        if not self.options.ft_epochs:
            return model
        return client.fit(model, client.train, "ft", Amount(epochs=self.options.ft_epochs))

    def join(self, client: Client, received: Weights) -> Weights:
        """The model, fine-tuned as with `ft_epochs`."""
        return client.fit(received, client.train, "ft")

    def send(self, server: ServerState, client: int) -> Message:
        return uncount(super().send(server, client))

    @mean_suffices
    def aggregate(self, server: ServerState, uploads: list[Upload]) -> None:
        """Takes the only model, without an aggregator."""
        super().aggregate(server, uploads)

    def train(self, client: Client, received: Weights) -> Upload:
        upload = super().train(client, received)
        uncount(upload)
        return upload


def uncount(message: Message) -> Message:
    """The message, none of which is ever sent."""
    return message.add(**{name: zero_bytes(tensor) for name, tensor in message.tensors.items()})
