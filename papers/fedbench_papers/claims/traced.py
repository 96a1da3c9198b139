"""Methods with traces or a change for a claim.

All but `LeaveOneOut`, which runs CO-PFL without one client, have the results of the methods that they extend.
"""

from collections.abc import Iterator
from itertools import combinations

import torch
from pydantic import Field
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.methods.client import Client
from fedbench.methods.co_pfl import CoPFL
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.fedcac import FedCAC, sensitivity
from fedbench.methods.fedobp import FedOBP
from fedbench.methods.local import Local
from fedbench.methods.messages import Upload
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights
from fedbench.results.trace import Trace


class UpdateAngles(FedAvg):
    """FedAvg that traces the mean angle between the updates of two clients of a round, in degrees."""

    def aggregate(self, server: ServerState, uploads: list[Upload]) -> None:
        if server.traced and len(uploads) > 1:
            updates = [upload.params - server.params for upload in uploads]
            angles = [angle(one, other) for one, other in combinations(updates, 2)]
            server.trace("update_angle", sum(angles) / len(angles))
        super().aggregate(server, uploads)


class HeadSensitivity(Local):
    """Local training that traces the mean sensitivity (eq. 5 of FedCAC) of every class's classifier row."""

    needs = frozenset({"head"})
    traces = (
        Trace(
            "head_sensitivity",
            "Sensitivity of the classifier's rows, % of the highest",
            "class",
            "relative",
            chart="sensitivity",
        ),
    )

    def train(self, client: Client, received: Weights) -> Upload:
        upload = super().train(client, received)
        assert upload.trained is not None
        scores = sensitivity(received.params, upload.trained.params)
        slot = next(slot for slot in self.context.layout.params if slot.head and len(slot.shape) == 2)
        rows = slot.view(scores).mean(1)  # [classes]
        for label, value in enumerate(rows.tolist()):
            upload.traces[f"head_sensitivity/{label}"] = value
        return upload


class LeaveOneOut(CoPFL):
    """CO-PFL whose server ignores the uploads of one client, which gets models as before but changes nobody's.

    Traces the number of every other client's training images.
    """

    class Options(CoPFL.Options):
        without: int | None = Field(None, ge=0, description="the client whose uploads are ignored; none: nobody's")

    options: Options

    def check(self) -> Iterator[str]:
        without, clients = self.options.without, self.context.clients
        if without is not None and clients <= max(1, without):
            raise ConfigError(f"method.without = {without}: needs this client and another one; there are {clients}")
        yield from super().check()

    def start(self, initial: Weights) -> CoPFL.Server:
        server = super().start(initial)
        others = [client for client in server.alphas if client != self.options.without]
        server.alphas = dict.fromkeys(others, 1 / max(1, len(others)))
        return server

    def aggregate(self, server: CoPFL.Server, uploads: list[Upload]) -> None:
        taken = [upload for upload in uploads if upload.client != self.options.without]
        if taken:
            super().aggregate(server, taken)
        for upload in taken:
            server.trace("images", upload.samples, upload.client)


class ClassShares(FedCAC):
    """FedCAC that traces the share of every class among a client's training images."""

    needs = frozenset({"classes"})

    def train(self, client: Client, received: Weights) -> Upload:
        upload = super().train(client, received)
        counts = client.train.labels.bincount(minlength=self.context.classes)
        for label, count in enumerate(counts.tolist()):
            upload.traces[f"class_share/{label}"] = count / len(client.train)
        return upload


class LossRises(FedOBP):
    """FedOBP that traces, in the last round, what its score of a parameter stands for.

    For `sampled` parameters, evenly spread over the ranks of the score, and for as many with the highest scores
    (`top_`): the score, by how much the client's training loss rises when this parameter of its own model is replaced
    by the received global one, and the size of the first-order term of that (eq. 16, `taylor`).
    """

    class Options(FedOBP.Options):
        sampled: int = Field(200, ge=2, description="parameters of each sample")

    options: Options

    def train(self, client: Client[FedOBP.State], received: Weights) -> Upload:
        local, traces = client.state.local, dict[str, float]()
        if local is not None and self.context.is_last(client.round):
            shared = super(FedOBP, self).receive(client)
            scores = self._raw_scores(client, local, shared)
            for name, places in spread_and_top(scores, self.options.sampled).items():
                traces |= self._traces(client, shared.replace(params=local), shared.params, scores, name, places)
        upload = super().train(client, received)
        upload.traces.update(traces)
        return upload

    def _traces(
        self, client: Client[FedOBP.State], local: Weights, shared: Tensor, scores: Tensor, name: str, places: Tensor
    ) -> dict[str, float]:
        """The traces of the parameters at some places."""
        slope = client.learner.full_gradient(local, client.train)
        taylor = (slope * (local.params - shared)).abs()
        base, traces = client.learner.loss(local, client.train), dict[str, float]()
        for number, index in enumerate(places.tolist()):
            params = local.params.clone()
            params[index] = shared[index]
            rise = client.learner.loss(local.replace(params=params), client.train) - base
            values = {"score": float(scores[index]), "rise": rise, "taylor": float(taylor[index])}
            traces |= {f"{name}{key}/{number}": value for key, value in values.items()}
        return traces


def spread_and_top(scores: Tensor, count: int) -> dict[str, Tensor]:
    """Places of scores by the prefix of their traces: the middles of `count` equal parts of their order, and the top.

    Of equal scores the lower place comes first.
    """
    order = scores.argsort(stable=True)
    middles = ((torch.arange(count) + 0.5) * len(order) / count).long()
    return {"": order[middles], "top_": order[-count:]}


def angle(one: Tensor, other: Tensor) -> float:
    """Angle between two vectors, in degrees."""
    one, other = one.double(), other.double()
    cosine = torch.dot(one, other) / (one.norm() * other.norm())
    return float(torch.rad2deg(torch.arccos(cosine.clamp(-1, 1))))
