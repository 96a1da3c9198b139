"""CFL: clustered federated learning (Sattler, Mueller, Samek; IEEE TNNLS 2020).

Private: nothing but the data. Up and down: the model of the client's cluster, as in FedAvg. The server keeps every
client's last update. A cluster whose mean stands still while single members do not is cut in two, by the cosines of the
members' updates.

Where we decide:
- The cut solves the paper's problem exactly, by single linkage; the authors' code and its descendants use complete
  linkage, which gives more even halves.
- One weighting for means and norms, uniform as in the authors' code; the paper's test weights by images.
- With partial participation, norms are those of the participants and cosines those of the last updates; no cluster is
  cut before every member has one. With everybody in every round this is the paper's rule.
- eps1 and eps2 are those of the authors' notebook and fit its model: choose them by the norms that are traced.
- A cluster's model is the mean of its members' models, and halves average their own members' of the same round.
- Updates are parameters only. The tree of models for later clients and the private variant are not here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.means import dot_products, normalise, weighted_mean
from fedbench.methods.base import About, Method
from fedbench.methods.client import PrivateState
from fedbench.methods.messages import Message, Upload, model_message, weights_of
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights


class CFL(Method["CFL.Options", PrivateState, "CFL.Server"]):
    """Clusters of clients are cut in two where their updates point in different directions."""

    about = About("clusters are cut in two by the cosines of updates", "clustering", "Sattler et al., TNNLS", 2020)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.eps1": 0, "method.weighting": "samples"}}

    class Options(Method.UniformOptions):
        eps1: float = Field(0.4, ge=0, description="a cluster is cut if the norm of its mean update is below")
        eps2: float = Field(1.6, ge=0, description="and if the norm of a member's update is above")
        start_round: int = Field(20, ge=0, description="last round before the first cut")
        min_cluster_size: int = Field(2, ge=1, description="only larger clusters are cut")
        gamma_max: float | None = Field(
            None, ge=0, le=1, description="cut only if the halves' largest cosine is below 1 - 2 gamma_max^2; none"
        )
        linkage: Literal["single", "complete"] = Field("single", description="how two halves are found")

    @dataclass
    class Server(ServerState):
        """clusters: their members, ascending; models: of the clusters; updates: every client's last `[N]`."""

        clusters: list[list[int]] = field(default_factory=list)
        models: list[Weights] = field(default_factory=list)
        updates: dict[int, Tensor] = field(default_factory=dict)

    def check(self) -> Iterable[str]:
        self.refuse_newcomers("clusters are found by the updates of all clients")
        if self.options.eps1 >= self.options.eps2:
            yield (
                f"cfl: method.eps1 = {self.options.eps1:g} is not below method.eps2 = {self.options.eps2:g}: clusters "
                "that still move as a whole may be cut"
            )

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.clusters, server.models = [[*range(self.context.clients)]], [weights_of(server)]
        return server

    def send(self, server: Server, client: int) -> Message:
        cluster = next(number for number, members in enumerate(server.clusters) if client in members)
        return model_message(**vars(server.models[cluster]))

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        by_client, clusters, models = {u.client: u for u in uploads}, list[list[int]](), list[Weights]()
        for members, model in zip(server.clusters, server.models, strict=True):
            cluster_uploads = [by_client[i] for i in members if i in by_client]
            server.updates.update({u.client: u.params - model.params for u in cluster_uploads})
            for half in self.halves(server, members, cluster_uploads) if cluster_uploads else [members]:
                present = [u for u in cluster_uploads if u.client in half]
                clusters.append(half)
                models.append(self.mean_model(present) if present else model)
        order = sorted(range(len(clusters)), key=lambda number: clusters[number][0])
        server.clusters, server.models = [clusters[i] for i in order], [models[i] for i in order]
        server.set_model(server.models[0])
        server.trace("clusters", len(clusters))

    def halves(self, server: Server, members: list[int], uploads: list[Upload]) -> list[list[int]]:
        """The two halves of a cluster that is cut, or the cluster."""
        options, updates = self.options, [server.updates[u.client] for u in uploads]
        mean, largest = update_norms(updates, self.checked_weights(uploads))
        server.trace(f"mean_norm/{members[0]}", mean)
        server.trace(f"largest_norm/{members[0]}", largest)
        due = server.round > options.start_round and len(members) > options.min_cluster_size
        known = all(i in server.updates for i in members)
        if not (due and known and mean < options.eps1 and largest > options.eps2):
            return [members]
        cosines = cosines_of([server.updates[i] for i in members])
        *halves, across = split_in_two(cosines, options.linkage)
        server.trace(f"cosine_across/{members[0]}", across)
        if options.gamma_max is not None and not across < 1 - 2 * options.gamma_max**2:
            return [members]
        return [[members[index] for index in half] for half in halves]

    def global_model(self, server: Server, initial: Weights) -> None:
        """None: every cluster has its own."""


def update_norms(updates: Sequence[Tensor], weights: Sequence[float]) -> tuple[float, float]:
    """The norm of the weighted mean of updates, and the largest norm of one."""
    return norm(weighted_mean(updates, normalise(weights))), max(map(norm, updates))


def norm(vector: Tensor) -> float:
    """In float64, by NumPy: the order of a torch sum depends on the number of threads."""
    return float(np.sqrt(np.square(vector.double().cpu().numpy()).sum()))


def cosines_of(updates: Sequence[Tensor]) -> np.ndarray:
    """Cosines `[n, n]` of updates; 0 where one has no length."""
    products = dot_products(updates).numpy()
    lengths = np.sqrt(products.diagonal().clip(min=0))
    cosines: np.ndarray = products / np.maximum(np.outer(lengths, lengths), 1e-12)
    return cosines


def split_in_two(cosines: np.ndarray, linkage: str) -> tuple[list[int], list[int], float]:
    """Two groups of places, the one with the lowest first, and the largest cosine across.

    Groups with the largest cosine between them are merged until two are left: the largest of their members' (single),
    or the smallest (complete). Ties: the groups with the lowest members.
    """
    groups = [[index] for index in range(len(cosines))]
    between = cosines.astype(np.float64)
    np.fill_diagonal(between, -np.inf)
    join = np.maximum if linkage == "single" else np.minimum
    while len(groups) > 2:
        one, other = sorted(divmod(int(between.argmax()), len(groups)))
        row = join(between[one], between[other])
        between[one], between[:, one] = row, row
        between[one, one] = -np.inf
        between = np.delete(np.delete(between, other, 0), other, 1)
        groups[one] = sorted(groups[one] + groups.pop(other))
    return groups[0], groups[1], float(cosines[np.ix_(groups[0], groups[1])].max())
