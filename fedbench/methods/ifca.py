"""IFCA: iterative federated clustering (Ghosh, Chung, Yin, Ramchandran; NeurIPS 2020).

Private: nothing but the data. Down: all models, or one body and all heads; up: the trained model and the number of its
cluster. A client takes the model of the lowest loss on its training images, every time anew.

Where we decide:
- Evaluation chooses by training loss too. The authors' MNIST and CIFAR-10 programs choose by the loss on labelled test
  images.
- Averages in a cluster are uniform (Algorithm 1); the FEMNIST program weights by images.
- `average=gradients` divides by all participants (the paper's 1/m), so that small clusters take small steps. The step
  is made at the client: what it sends is the model after it, from which the server takes the move.
- Losses are those of all training images in evaluation mode. Starts are drawn once; restarts are runs with other seeds.
- If one model is the best for everybody at the start, IFCA is FedAvg from then on.
- Running statistics are averaged like the parameters. The soft variant of the synthetic program is not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import ceil, log2
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.means import weighted_mean
from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Step
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, encoded, number_models, weights_of
from fedbench.methods.server import ServerState
from fedbench.module.masks import Entries
from fedbench.module.weights import Weights
from fedbench.results.trace import CLUSTER


@dataclass(eq=False)
class ChosenModel(Weights):
    """The model of the lowest loss, and its number."""

    cluster: int


class IFCA(Method["IFCA.Options", PrivateState, "IFCA.Server"]):
    """Every client trains that one of several models which fits its data best."""

    about = About("clients choose the best of several global models", "clustering", "Ghosh et al., NeurIPS", 2020)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.clusters": 1, "method.weighting": "samples"}}
    traces = (CLUSTER,)

    also_sends = "the number of their cluster"

    class Options(Method.UniformOptions):
        buffers: ClassVar[Any] = None  # type: ignore[misc] # no option: a client has no model of its own
        clusters: int = Field(3, ge=1, description="models, k")
        average: Literal["models", "gradients"] = Field(
            "models", description="averaged: models after a local training (option II), or one gradient each (option I)"
        )
        divisor: Literal["participants", "cluster"] = Field(
            "participants", description="gradients are divided by the weight of all participants, or of the cluster"
        )
        shared: Literal["none", "body"] = Field("none", description="one for all clusters: nothing, or the body")
        init: Literal["random", "jitter"] = Field(
            "random", description="first models: each drawn anew, or the run's with noise"
        )
        init_scale: float = Field(0.1, ge=0, description="standard deviation of that noise")

    @dataclass
    class Server(ServerState):
        """models: of all clusters."""

        models: list[Weights] = field(default_factory=list)

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return 1 if options.average == "gradients" else super().steps(options, train, samples, public)

    @cached_property
    def part(self) -> Entries:
        """The parameters in which clusters differ."""
        layout = self.context.layout
        return Entries(layout.mask("head") if self.options.shared == "body" else layout.everything().params)

    def start(self, initial: Weights) -> Server:
        server, options = super().start(initial), self.options
        jitter = options.init_scale if options.init == "jitter" else None
        server.models = self.context.start_models(initial, options.clusters, jitter, self.part)
        return server

    def send(self, server: Server, client: int) -> Message:
        message, others = super().send(server, client), server.models[1:]
        if self.options.shared == "none":
            return message.add(**number_models("other", others))
        return message.add(**{f"head{number}": self.part.take(model.params) for number, model in enumerate(others)})

    def models(self, client: Client) -> list[Weights]:
        """All received models."""
        return self.models_in(client.message, super().receive(client))

    def models_in(self, message: Message, first: Weights) -> list[Weights]:
        """All models of a message, of which the first is given."""
        if self.options.shared == "none":
            return [first, *message.models("other")]
        heads = [getattr(message, f"head{number}") for number in range(self.options.clusters - 1)]
        return [first, *(first.replace(params=self.part.put(first.params, head)) for head in heads)]

    def receive(self, client: Client) -> ChosenModel:
        models, cluster = self.models(client), 0
        if len(models) > 1:
            losses = [client.learner.loss(model, client.train) for model in models]
            cluster = losses.index(min(losses))
        return ChosenModel(**vars(models[cluster]), cluster=cluster)

    def train(self, client: Client, received: Weights) -> Upload:
        assert isinstance(received, ChosenModel)
        if self.options.average == "models":
            trained = client.fit(received, client.train)
        else:
            rule = partial(torch.optim.SGD, weight_decay=self.context.train.weight_decay)
            trained = client.fit(received, client.train, amount=Amount(steps=1), step=Step(rule=rule))
        number = encoded(torch.tensor(received.cluster), bits=ceil(log2(self.options.clusters)))
        return self.upload(client, trained, cluster=number, traces={"cluster": float(received.cluster + 1)})

    def reference(self, message: Message, upload: Upload) -> Tensor:
        """The parameters of the model that the client has trained."""
        return self.models_in(message, weights_of(message))[int(upload.cluster)].params

    def join(self, client: Client, received: Weights) -> Weights:
        """The model of its cluster, trained as with `average=models`."""
        return client.fit(received, client.train)

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        weights, whole = self.checked_weights(uploads), self.mean_model(uploads)
        slow = self.options.average == "gradients" and self.options.divisor == "participants"
        for number, before in enumerate(server.models):
            group = [index for index, u in enumerate(uploads) if int(u.cluster) == number]
            model = self.mean_model([uploads[index] for index in group]) if group else before
            if group and slow:
                params = move_towards(before.params, [uploads[i].params for i in group], [weights[i] for i in group])
                model = model.replace(params=params)
            if self.options.shared == "body":
                model = whole.replace(params=self.part.put(whole.params, self.part.take(model.params)))
            server.models[number] = model
            server.trace(f"cluster_size/{number + 1}", len(group))
        server.set_model(server.models[0])

    def global_model(self, server: Server, initial: Weights) -> Weights | None:
        """The only model, if there is one."""
        return super().global_model(server, initial) if self.options.clusters == 1 else None


def move_towards(before: Tensor, trained: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """A vector plus the weighted sum of its moves to others; the weights sum to 1 at most."""
    return weighted_mean([before, *trained], [1 - sum(weights), *weights])
