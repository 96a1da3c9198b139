"""Methods that are wrong in a way that their runs do not show, each with the check that finds it."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedbench.methods.base import Method, uses_aggregator
from fedbench.methods.client import PrivateState
from fedbench.methods.messages import encoded, weights_of, zero_bytes
from fedbench.methods.server import ServerState
from fedbench.module.masks import Masks

SEEN: dict[int, int] = {}


class ForgetsWeights(Method):
    """A plain mean, whatever `method.weighting` says."""

    found_by, words = "weights", "is the plain mean of the uploads"

    @uses_aggregator
    def aggregate(self, server, uploads):
        server.params = torch.stack([upload.params for upload in uploads]).mean(0)
        server.buffers = torch.stack([upload.buffers for upload in uploads]).mean(0)


class WeighsInReverse(Method):
    """The weight of each upload is that of another one."""

    found_by, words = "weights", "weighs each upload by the samples of another client"

    def weights(self, uploads):
        return super().weights(uploads)[::-1]


class WeighsByAll(Method):
    """Divides by the samples of all clients, also of those that sit out."""

    found_by, words = "weights", "of the uploads in the shared model sum to 0."

    @uses_aggregator
    def aggregate(self, server, uploads):
        total = sum(self.context.sizes)
        server.params = sum(upload.params * (upload.samples / total) for upload in uploads)


class StateInSelf(Method):
    """Counts rounds in self."""

    found_by, words = "kept", "writes to self.count"

    def __init__(self, options, context):
        super().__init__(options, context)
        self.count = 0

    def train(self, client, received):
        self.count += 1
        return super().train(client, received)


class MaskOffByOne(Method):
    """The head is private, but for its first number."""

    found_by, words = "masks", "has only the first of 768 entries of body.1.weight: a mask that is moved by one?"

    def private(self, layout):
        head = layout.masks("head")
        return Masks(head.params.roll(1), head.buffers)


class SendsPrivate(Method):
    """The head is private, and sent under another name."""

    found_by, words = "private", "are in the field last of its upload"

    def private(self, layout):
        return layout.masks("head")

    def train(self, client, received):
        trained = client.fit(received, client.train, move=self.moves)
        return self.upload(client, trained, last=self.private_params.take(trained.params))


class NeverReadsPrivate(Method):
    """The head is private, and every round begins with that of the start model."""

    found_by, words = "read", "are kept and never read"

    def private(self, layout):
        return layout.masks("head")

    def receive(self, client):
        received = super().receive(client)
        first = self.private_params.take(client.initial.params)
        return received.replace(params=self.private_params.put(received.params, first))


class MovesFrozen(Method):
    """The head is frozen, and fits move it."""

    found_by, words = "frozen", "frozen entries of client"

    def frozen(self, layout):
        return layout.masks("head")

    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train))


class ForgetsStatistics(Method):
    """Parameters are averaged, and running statistics stay those of the start model."""

    found_by, words = "statistics", "the running statistics of the start model"

    def aggregate(self, server, uploads):
        weights = self.checked_weights(uploads)
        server.params = sum(upload.params * weight for upload, weight in zip(uploads, weights, strict=True))


class StaleModel(Method):
    """Sends the model of the round before."""

    found_by, words = "fresh", "round 2 sends the numbers of round 1"

    @dataclass
    class Server(ServerState):
        before: Any = None

    def send(self, server, client):
        message = super().send(server, client)
        return message.add(params=message.params if server.before is None else server.before)

    def aggregate(self, server, uploads):
        server.before = server.params.clone()
        super().aggregate(server, uploads)


class OptionUnread(Method):
    """The option mu does nothing."""

    found_by, words = "options", "no code reads method.mu"

    class Options(Method.Options):
        mu: float = Field(0.1, ge=0, description="weight of a pull")


class StoreInModule(Method):
    """Counts the fits of clients in a dict of the module."""

    found_by, words = "kept", "writes to SEEN, a global of module"

    def train(self, client, received):
        SEEN[client.id] = SEEN.get(client.id, 0) + 1
        return super().train(client, received)


@cache
def momentum_of(size: int) -> Tensor:
    return torch.zeros(size)


class SharedMomentum(Method):
    """The momentum of one client's update moves the next one's."""

    found_by, words = "order", "something is kept in a cache"

    def train(self, client, received):
        trained = client.fit(received, client.train)
        momentum = momentum_of(len(trained.params))
        momentum.mul_(0.5).add_(trained.params - received.params)
        return self.upload(client, trained.replace(params=received.params + momentum))


class EvaluationTrainsBatchNorm(Method):
    """Evaluates with statistics that one more pass has moved."""

    found_by, words = "evaluation", "personal gives client"

    def personal(self, client, model, point):
        module = client.learner.module
        module.train()
        with torch.no_grad():
            module(client.train.batch(torch.arange(2))[0])
        return model.replace(buffers=torch.cat([b.flatten() for b in module.buffers() if b.is_floating_point()]))


class BytesThatLie(Method):
    """Counts one bit for each number, and sends all of them."""

    found_by, words = "bytes", "the field params (up) counts"

    def train(self, client, received):
        trained = client.fit(received, client.train)
        upload = self.upload(client, trained)
        return upload.add(params=encoded(upload.params, bits=1))


class ResumeForgets(Method):
    """The server's momentum is no part of what a checkpoint keeps."""

    found_by, words = "resume", "and resumed has other numbers"

    @dataclass
    class Server(ServerState):
        momentum: Any = field(default=None, init=False)

    def aggregate(self, server, uploads):
        before = server.params
        super().aggregate(server, uploads)
        step = server.params - before
        server.momentum = step if server.momentum is None else 0.9 * server.momentum + step
        server.params = before + server.momentum


class MaskAsFloats(Method):
    """Sends a mask as float32, and counts whose entries coincide."""

    found_by, words = "masks", "holds only 0 and 1 as float32"

    @dataclass
    class State(PrivateState):
        mask: Any = None

    def train(self, client, received):
        trained = client.fit(received, client.train)
        mask = (trained.params - received.params).abs() > 0.01
        return self.upload(client, trained, mask=mask.float())


class WrongReduction(Method):
    """Says that it is FedAvg, and begins every round from half of the model."""

    found_by, words = "degenerate", "with its defaults it is not fedavg: the first other number is the"

    REDUCES_TO: ClassVar = {"fedavg": {}}

    def receive(self, client):
        received = super().receive(client)
        return received.replace(params=received.params * 0.5)


class DeafClient(Method):
    """Trains from the start model, whatever it is sent."""

    found_by, words = "fresh", "trains the same whatever it is sent"

    def receive(self, client):
        return client.initial


class SendsDifference(Method):
    """Sends how far a client moved, which compression takes for a model."""

    found_by, words = "compression", "changes nothing sends what is far from the parameters it received"

    def train(self, client, received):
        upload = super().train(client, received)
        return upload.add(params=0.01 * (upload.params - client.message.params))

    def aggregate(self, server, uploads):
        server.params = server.params + self.mean_model(uploads).params


class Right(Method):
    """FedAvg with a step of the server, which reads its option."""

    REDUCES_TO: ClassVar = {"fedavg": {"method.rate": 1.0}}

    class Options(Method.Options):
        rate: float = Field(0.5, gt=0, le=1, description="share of the step to the mean")

    def aggregate(self, server, uploads):
        if self.options.rate == 1:
            super().aggregate(server, uploads)
            return
        mean = self.mean_model(uploads, [weights_of(upload) for upload in uploads])
        rate = self.options.rate
        server.params = server.params + rate * (mean.params - server.params)
        server.buffers, server.counters = mean.buffers, mean.counters

    def send(self, server, client):
        return super().send(server, client).add(rate=zero_bytes(self.options.rate))


class DrawsByHash(Method):
    """The seed of its noise is the hash of a text, which is another one in every process."""

    found_by, words = "process", "another process has other numbers, first in round"

    def train(self, client, received):
        upload = super().train(client, received)
        noise = torch.Generator().manual_seed(hash(f"noise {client.id}") % 2**31)
        upload.params.add_(0.1 * torch.randn(upload.params.shape, generator=noise))
        return upload


class SetsACopy(Method):
    """Keeps the trained model in a copy of its state, which is lost."""

    @dataclass
    class State(PrivateState):
        last: Any = None

    def train(self, client, received):
        upload = super().train(client, received)
        replace(client.state).last = upload.trained
        return upload


WRONG = [
    *(ForgetsWeights, StateInSelf, MaskOffByOne, SendsPrivate, StaleModel, OptionUnread, StoreInModule),
    *(SharedMomentum, EvaluationTrainsBatchNorm, BytesThatLie, ResumeForgets, MaskAsFloats),
    *(WrongReduction, DeafClient, NeverReadsPrivate, MovesFrozen, ForgetsStatistics, DrawsByHash),
    SendsDifference,
]
