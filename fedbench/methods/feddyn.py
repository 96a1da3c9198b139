"""FedDyn: federated learning with dynamic regularisation (Acar, Zhao, Matas, Mattina, Whatmough, Saligrama; ICLR 2021).

Private: the drift, the sum of the client's moves in all its rounds. Up and down: the model, as in FedAvg. A client's
loss has a pull to the received model minus its drift; the server adds the mean drift of all clients to the mean model.

Where we decide:
- Written with drifts instead of the paper's stored gradients, which are -alpha times as large: the same numbers.
- Means are uniform. With `weighting=samples`, as in the authors' code, a client's alpha is divided by its share of the
  images, so that the fixed point is that of FedAvg's objective; `uniform` is the paper's Algorithm 1.
- The minimiser of the paper is a local training. Then the server's drift acts like a momentum without damping until
  alpha times rate times steps is no longer small: the model may swing for many rounds before it settles.
- Evaluated is the model that the clients receive next; `evaluate=active` evaluates the mean of the participants. The
  authors plot the mean of all clients' last models, which is not here.
- Running statistics are averaged and never extrapolated. Gradients are not clipped (the code does so at norm 10).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.engine.fit import Step
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.fedprox import proximal_pull
from fedbench.methods.messages import Message, Upload, zero_bytes
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.weights import Weights


class FedDyn(Method["FedDyn.Options", "FedDyn.State", "FedDyn.Server"]):
    """Clients and server remember how far they have moved, so that all settle at the minimum of the common loss."""

    about = About("a regulariser that remembers all earlier moves", "global", "Acar et al., ICLR", 2021)
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedprox:mu=0.3,weighting=uniform": {
            "method.alpha": 0.3,
            "method.evaluate": "active",
            "method.weighting": "uniform",
            "rounds": 1,
        },
    }

    class Options(Method.Options):
        weighting: Literal["samples", "uniform"] = Field(
            "samples", description="alpha of a client: divided by its share of the samples, or the same for all"
        )
        alpha: float = Field(0.01, gt=0, description="weight of the pull, Algorithm 1")
        evaluate: Literal["server", "active"] = Field(
            "server", description="evaluated: the model that is sent next, or the mean of the participants' models"
        )

    @dataclass
    class State(PrivateState):
        """drift: d `[N]`, the sum of all moves."""

        drift: Tensor | None = None

    @dataclass
    class Server(ServerState):
        """drift: H `[N]`, the mean of all clients' drifts; mean: of the participants' models."""

        drift: Tensor | None = None
        mean: Tensor = UNSET

    def alpha(self, samples: int) -> float:
        """The weight of the pull of a client with so many images."""
        sizes = self.context.sizes
        scale = sum(sizes) / len(sizes) / samples if self.options.weighting == "samples" else 1.0
        return self.options.alpha * scale

    def train(self, client: Client[State], received: Weights) -> Upload:
        drift = client.state.drift
        anchor = received.params if drift is None else received.params - drift
        step = Step(proximal_pull, anchor=anchor, mu=self.alpha(client.samples))
        trained = client.fit(received, client.train, step=step)
        move = trained.params - received.params
        client.state.drift = move if drift is None else drift + move
        return self.upload(client, trained)

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights:
        active = self.options.evaluate == "active" and point == "after_agg"
        return model.replace(params=client.message.mean) if active else model

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.mean = server.params
        return server

    def send(self, server: Server, client: int) -> Message:
        message = super().send(server, client)
        return message.add(mean=zero_bytes(server.mean)) if self.options.evaluate == "active" else message

    @mean_suffices
    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        return [1 / len(uploads)] * len(uploads)

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        received, share = server.params, len(uploads) / self.context.clients
        super().aggregate(server, uploads)
        server.mean = server.params
        step = (server.mean - received) * share
        server.drift = step if server.drift is None else server.drift + step
        server.params = server.mean + server.drift

    def global_model(self, server: Server, initial: Weights) -> Weights | None:
        model = super().global_model(server, initial)
        return model.replace(params=server.mean) if model and self.options.evaluate == "active" else model
