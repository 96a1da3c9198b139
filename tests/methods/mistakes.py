"""Mistakes that authors of methods make: in every class the line that is to be named ends with `# NAME`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedbench.engine.fit import Loss, Step
from fedbench.methods.base import Method
from fedbench.methods.client import Predictor, PrivateState
from fedbench.methods.messages import Upload
from fedbench.methods.server import ServerState


def short(net: Any, batch: Any, s: Any) -> Tensor:
    x, y = batch
    return F.cross_entropy(net(x), y[:-1])  # LossInTorch


class LossInTorch(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train, loss=Loss(short)))


class TypoInAggregate(Method):
    def aggregate(self, server, uploads):
        server.parms += 1  # TypoInAggregate


class ResultOfAggregate(Method):
    def aggregate(self, server, uploads):  # ResultOfAggregate
        return uploads[0].params


class WeightsInServer(Method):
    def aggregate(self, server, uploads):  # WeightsInServer
        server.params = uploads[0]


class UndeclaredAtServer(Method):
    def aggregate(self, server, uploads):
        super().aggregate(server, uploads)
        server.momentum = server.params  # UndeclaredAtServer


class SetAtServer(Method):
    @dataclass  # SetAtServer
    class Server(ServerState):
        seen: Any = None

    def aggregate(self, server, uploads):
        super().aggregate(server, uploads)
        server.seen = {upload.client for upload in uploads}


class NoMessage(Method):
    def send(self, server, client):  # NoMessage
        return server.params


class NoStart(Method):
    def start(self, initial):  # NoStart
        return initial


class ForgottenReturn(Method):
    def train(self, client, received):  # ForgottenReturn
        self.upload(client, client.fit(received, client.train))


class WeightsForUpload(Method):
    def train(self, client, received):  # WeightsForUpload
        return client.fit(received, client.train)


class UploadWithoutModel(Method):
    def train(self, client, received):  # UploadWithoutModel
        trained = client.fit(received, client.train)
        return Upload(client.id, client.samples, params=trained.params)


class TensorsTraced(Method):
    def train(self, client, received):  # TensorsTraced
        trained = client.fit(received, client.train)
        return self.upload(client, trained, traces={"norm": trained.params.norm()})


class TensorForPersonal(Method):
    def personal(self, client, model, point):  # TensorForPersonal
        return model.params


class HalfAModel(Method):
    def personal(self, client, model, point):  # HalfAModel
        return model.replace(params=model.params[:10])


class TensorForReceived(Method):
    def receive(self, client):  # TensorForReceived
        return client.message.params


class SetInState(Method):
    @dataclass  # SetInState
    class State(PrivateState):
        seen: set | None = None

    def train(self, client, received):
        client.state.seen = {1, 2}
        return super().train(client, received)


class SetDeepInState(Method):
    @dataclass  # SetDeepInState
    class State(PrivateState):
        seen: Any = None

    def train(self, client, received):
        client.state.seen = {"classes": [1, {2}]}
        return super().train(client, received)


class OtherState(Method):
    def train(self, client, received):  # OtherState
        upload = super().train(client, received)
        client.state = {"count": 1}
        return upload


class Undeclared(Method):
    def train(self, client, received):
        client.state.previous = received.params  # Undeclared
        return super().train(client, received)


class HalfDeclared(Method):
    @dataclass
    class State(PrivateState):
        known: int = 0

    def train(self, client, received):
        client.state.known += 1
        client.state.count = client.state.known  # HalfDeclared
        return super().train(client, received)


class KeptAtTheClient(Method):
    def train(self, client, received):
        client.count = 1  # KeptAtTheClient
        return super().train(client, received)


class UndeclaredInPersonal(Method):
    def personal(self, client, model, point):
        client.state.count = 1  # UndeclaredInPersonal


class CountsInPersonal(Method):
    @dataclass
    class State(PrivateState):
        looks: int = 0

    def personal(self, client, model, point):  # CountsInPersonal
        client.state.looks += 1
        return model


class CollectsInPersonal(Method):
    @dataclass
    class State(PrivateState):
        seen: Any = None

    def begin(self, client):
        client.state.seen = {"points": []}

    def personal(self, client, model, point):  # CollectsInPersonal
        client.state.seen["points"].append(point)
        return model


class CountsInScores(Method):
    @dataclass
    class State(PrivateState):
        looks: int = 0

    def personal(self, client, model, point):  # CountsInScores
        def scores(data):
            client.state.looks += 1
            return client.learner.logits(model, data)

        return Predictor(scores)


class WritesToModel(Method):
    def personal(self, client, model, point):  # WritesToModel
        model.params.mul_(0.5)
        return model


class WritesToReceived(Method):
    def train(self, client, received):  # WritesToReceived
        received.params.add_(1.0)
        return super().train(client, received)


class WritesToView(Method):
    def train(self, client, received):  # WritesToView
        received.params[:3] = 0
        return super().train(client, received)


class WritesToMessage(Method):
    def receive(self, client):  # WritesToMessage
        client.message.params.clamp_(-1, 1)
        return super().receive(client)


class WritesToStart(Method):
    def train(self, client, received):  # WritesToStart
        client.initial.params.zero_()
        return super().train(client, received)


class WritesPastCounting(Method):
    def personal(self, client, model, point):  # WritesPastCounting
        model.params.data.mul_(0.5)
        return model


class KeptInMethod(Method):
    def train(self, client, received):  # KeptInMethod
        self.count = client.samples
        return super().train(client, received)


class KeptInListOfMethod(Method):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.seen = []

    def aggregate(self, server, uploads):  # KeptInListOfMethod
        self.seen.append(len(uploads))
        super().aggregate(server, uploads)


class FitsOnTests(Method):
    def personal(self, client, model, point):
        return client.fit(model, client.test)  # FitsOnTests


class ChoosesOnValidation(Method):
    def train(self, client, received):
        models = [client.fit(received, client.train), received]
        losses = [client.learner.loss(model, client.val) for model in models]  # ChoosesOnValidation
        return self.upload(client, models[losses.index(min(losses))])


class FitsInScores(Method):
    def personal(self, client, model, point):
        def scores(data):
            return client.learner.logits(client.fit(model, data), data)  # FitsInScores

        return Predictor(scores)


class KeptInClass(Method):
    seen: ClassVar[dict] = {}

    def train(self, client, received):  # KeptInClass
        self.seen[client.id] = received.params
        return super().train(client, received)


class KeptInBase(KeptInClass):
    def train(self, client, received):  # KeptInBase
        KeptInClass.seen.setdefault("rounds", []).append(client.round)
        return Method.train(self, client, received)


class KeptInStateClass(Method):
    @dataclass
    class State(PrivateState):
        looks = 0

    def receive(self, client):  # KeptInStateClass
        type(client.state).looks += 1
        return super().receive(client)


LAST_SEEN = {"models": []}
MEAN_OF_ALL = torch.zeros(3)
CALLS = 0
DRAWS = np.random.default_rng(0)


class KeptInGlobal(Method):
    def train(self, client, received):  # KeptInGlobal
        LAST_SEEN["models"].append(received)
        return super().train(client, received)


class KeptInGlobalTensor(Method):
    def train(self, client, received):  # KeptInGlobalTensor
        MEAN_OF_ALL.add_(received.params[:3])
        return super().train(client, received)


def count_calls() -> None:
    global CALLS
    CALLS += 1


class CountsInGlobal(Method):
    def aggregate(self, server, uploads):  # CountsInGlobal
        count_calls()
        super().aggregate(server, uploads)


class DrawsFromGlobal(Method):
    def train(self, client, received):  # DrawsFromGlobal
        noise = DRAWS.normal()
        return self.upload(client, client.fit(received, client.train), traces={"noise": noise})


class KeptInDefault(Method):
    def train(self, client, received, seen={}):  # noqa: B006  # KeptInDefault
        seen[client.id] = received.params
        return super().train(client, received)


class KeptInFunction(Method):
    def train(self, client, received):  # KeptInFunction
        short.last = received
        return super().train(client, received)


class CollectsTests(Method):
    def personal(self, client, model, point):  # CollectsTests
        def scores(data):
            LAST_SEEN["models"].append(data.batch(torch.arange(len(data)))[0])
            return client.learner.logits(model, data)

        return Predictor(scores)


def with_count() -> type[Method]:
    count = 0

    class Around(Method):
        def train(self, client, received):  # KeptAround
            nonlocal count
            count += 1
            return super().train(client, received)

    return Around


KeptAround = with_count()


class OneWeight(Method):
    def weights(self, uploads):  # OneWeight
        return [1.0]


class NoWeights(Method):
    def weights(self, uploads):  # NoWeights
        return None


class WeightsOfNothing(Method):
    def weights(self, uploads):  # WeightsOfNothing
        return [0.0 for _ in uploads]


class WeightsThatAreNone(Method):
    def weights(self, uploads):  # WeightsThatAreNone
        return [float("nan") for _ in uploads]


class WholeNumbersAtServer(Method):
    def aggregate(self, server, uploads):  # WholeNumbersAtServer
        server.params = server.params.round().long()


class PartAtServer(Method):
    def aggregate(self, server, uploads):  # PartAtServer
        server.params = server.params[:10]


class NoNumbersAtServer(Method):
    def aggregate(self, server, uploads):  # NoNumbersAtServer
        server.params = server.params / 0


class ArrayInState(Method):
    @dataclass  # ArrayInState
    class State(PrivateState):
        a: Any = field(default_factory=lambda: np.zeros(3))

    def train(self, client, received):
        client.state.a = client.state.a + 1
        return super().train(client, received)


class FunctionForLoss(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train, loss=short))  # FunctionForLoss


class TensorForStart(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received.params, client.train))  # TensorForStart


class FunctionForStep(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train, step=pull))  # FunctionForStep


def pull(g: Tensor, w: Tensor, s: Any) -> Tensor:  # NewGradient
    return g + 0.1 * w


class NewGradient(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train, step=Step(pull)))


def forgotten(net: Any, batch: Any, s: Any) -> None:  # NoLoss
    F.cross_entropy(net(batch[0]), batch[1])


class NoLoss(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train, loss=Loss(forgotten)))  # type: ignore[arg-type]


def each(net: Any, batch: Any, s: Any) -> Tensor:  # LossPerSample
    return F.cross_entropy(net(batch[0]), batch[1], reduction="none")


class LossPerSample(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train, loss=Loss(each)))


class NumberInMessage(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train), tau=3)  # NumberInMessage


# Seen before the first round:


class ForeignState(Method):
    @dataclass  # ForeignState
    class State:
        count: int = 0


class StateWithoutDataclass(Method):
    class State(PrivateState):  # StateWithoutDataclass
        count: int = 0


class StateWithoutDefault(Method):
    @dataclass(kw_only=True)  # StateWithoutDefault
    class State(PrivateState):
        h: torch.Tensor


class ServerWithoutDataclass(Method):
    class Server(ServerState):  # ServerWithoutDataclass
        momentum: torch.Tensor | None = None


class ForeignOptions(Method):
    class Options:  # ForeignOptions
        mu: float = 0.1


class TooFew(Method):
    def train(self, client):  # TooFew
        return super().train(client, client.initial)


class NoClassMethod(Method):
    def steps(self, options, train, samples, public):  # NoClassMethod
        return 1


class UnknownDefault(Method):  # UnknownDefault
    train_defaults = {"learning_rate": 0.1}  # noqa: RUF012


class UnknownTrainers(Method):
    @classmethod  # UnknownTrainers
    def trainers(cls, options):
        return "some"


class UnknownOptimizer(Method):  # UnknownOptimizer
    optimizer = "mine"


class TraceWithoutWords(Method):  # TraceWithoutWords
    traces = ("overlap",)


class UnknownNeed(Method):  # UnknownNeed
    needs = frozenset({"labels"})


class MisspeltHook(Method):
    def agregate(self, server, uploads):  # MisspeltHook
        server.params = uploads[0].params


class MisspeltTrait(Method):  # MisspeltTrait
    optimiser = "own"


class MisspeltSpace(Method):  # MisspeltSpace
    SPACES: ClassVar = {"train.lr": [0.1]}


class NoExtraPass(Method):  # NoExtraPass
    def answer(self, client):
        return self.send(None, 0)


class NoMasks(Method):
    def private(self, layout):  # NoMasks
        return layout.mask("body")


class FailsInCheck(Method):
    def check(self):
        yield self.options.mu  # FailsInCheck


class ForgetsSuper(Method):
    def __init__(self, options, context):  # ForgetsSuper
        self.options = options


class TextOfCheck(Method):
    def check(self):  # TextOfCheck
        return "mind this"


class NothingOfCheck(Method):
    def check(self):  # NothingOfCheck
        return None


class FailsInBegin(Method):
    def begin(self, client):
        client.state.params = client.samples / 0  # FailsInBegin
