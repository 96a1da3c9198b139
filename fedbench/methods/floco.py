"""Floco and Floco+: federated learning over connected modes (Grinwald, Wiesner, Nakajima; NeurIPS 2024).

The classifier's weight becomes a mixture of `endpoints` matrices, all of them trained; its coordinates are drawn anew
for every batch, at first from the whole simplex, from round index `tau` on near a centre of the client's own. Private:
the centre, and in Floco+ (`personal_epochs`) a whole mixture that is trained beside the shared one and evaluated.
Up and down: the model with all endpoints. The projection that finds the centres is one extra pass over all clients.

Where we decide:
- The endpoints are parameters of the model like any other: what is averaged, optimised and counted are all of them.
  The coordinates are a buffer of the model and part of every predictor; they never travel with the statistics.
- The projection takes trained endpoints, as the authors' code; updates, as in the paper, give the same components, and
  a sign rule makes those unique. It happens when the round before is over and evaluated: the personal model of that
  round is still the one at the middle of the simplex.
- Coordinates near a centre may leave the simplex, as in the authors' code; `l1_simplex` stays inside, as in the paper.
- Floco+ pulls by lam (p - g). The authors' code multiplies lam with p alone; their projection in the Flower baseline
  uses updates of the round before instead of a pass of its own.

Longer than other method files because the model, the sampling and the projection are each a piece of their own.
"""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import cached_property
from math import ceil, log
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fedbench.aggregators import use_one_core
from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout, Slot
from fedbench.learner.loop import task_loss
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Predictor, Server, Upload
from fedbench.methods.fedprox import proximal_pull


class Floco(Method):
    """Clients with similar updates share a part of a simplex of classifiers."""

    class Options(Method.Options):
        endpoints: int = Field(10, ge=1, description="matrices that the classifier's weight is mixed of, M")
        tau: int | None = Field(10, ge=0, description="round, counted from 0, that begins with the projection; or none")
        rho: float = Field(0.1, ge=0, description="radius of a client's part of the simplex")
        personal_epochs: int = Field(
            0, ge=0, description="epochs (steps with train.steps) on a private mixture, Floco+; 0: none"
        )
        lam: float = Field(1.0, ge=0, description="pull of the private mixture to the received one, Floco+")
        subregion_sampling: Literal["l1_free", "l1_simplex"] = Field(
            "l1_free", description="coordinates near the centre may leave the simplex, or not"
        )
        alpha_sampling: Literal["random", "center"] = Field(
            "random", description="coordinates of a batch: random, or those of evaluation"
        )
        endpoint_init: Literal["xavier", "jitter"] = Field(
            "xavier", description="first endpoints: drawn anew, or the model's own weight with noise of 0.1"
        )

    needs_head = True
    wire: Mapping[str, float] = {"counters": 0, "centre": 0}

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Any, seed: int) -> None:
        """Make endpoints of every weight of the classifier; biases stay one."""
        places = weights_of_head(module, layout)
        for owner, name in places:
            mixture = Mixture(options.endpoints, getattr(owner, name))
            parametrize.register_parametrization(owner, name, mixture)
        endpoints = [owner.get_parameter(f"parametrizations.{name}.original").data for owner, name in places]
        for number in range(options.endpoints):
            stream = torch.Generator().manual_seed(seed + number)
            for target in endpoints:
                drawn = torch.empty(target.shape[1:], dtype=target.dtype)
                if options.endpoint_init == "xavier":
                    target[number] = nn.init.xavier_normal_(drawn, generator=stream)
                else:
                    target[number] += 0.1 * drawn.normal_(generator=stream)

    def check(self) -> None:
        options, clients = self.options, self.context.clients
        if options.tau is not None and clients < options.endpoints:
            raise ConfigError(
                f"method.endpoints = {options.endpoints}: the projection needs as many clients as endpoints and there "
                f"are {clients}; take at most {clients}, or set method.tau = none"
            )

    def warnings(self) -> list[str]:
        tau, rounds = self.options.tau, self.context.rounds
        if tau is None or tau < rounds:
            return []
        return [f"floco: method.tau = {tau} never comes in {rounds} rounds, so clients are not told apart: lower it"]

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """The coordinates stay at the client."""
        params, buffers = super().private(layout)
        for slot in layout.buffers:
            buffers[slot.start : slot.stop] = of_a_mixture(slot)
        return params, buffers

    @cached_property
    def coordinates(self) -> Tensor:
        """bool `[buffers]`: where coordinates are, once for every weight of the classifier."""
        return self.private(self.context.layout)[1]

    @cached_property
    def endpoints(self) -> Tensor:
        """bool `[N']`: the endpoints."""
        mask = torch.zeros(self.context.layout.size, dtype=torch.bool)
        for slot in self.context.layout.params:
            mask[slot.start : slot.stop] = of_a_mixture(slot)
        return mask

    def at(self, weights: Weights, place: Tensor) -> Weights:
        """The mixture with these coordinates `[M]`."""
        buffers, mask = weights.buffers.clone(), self.coordinates.to(weights.buffers.device)
        buffers[mask] = place.to(buffers).repeat(int(mask.sum()) // len(place))
        return weights.replace(buffers=buffers)

    @property
    def middle(self) -> Tensor:
        """Coordinates of the middle of the simplex `[M]`."""
        return torch.full((self.options.endpoints,), 1 / self.options.endpoints, dtype=torch.float64)

    # -- the client half ----------------------------------------------------------------------------------------------

    def receive(self, client: Client, download: Message) -> Weights:
        return self.at(super().receive(client, download), self._centre(download))

    def _centre(self, download: Message) -> Tensor:
        return download.centre if "centre" in download else self.middle

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        trained = self._train(client, received, download, "fit", "coordinates")
        upload = self.upload(client, trained, traces=centre_traces(download.centre) if "centre" in download else {})
        if self.options.personal_epochs:
            client.fitted = self._train_private(client, received, download)
            client.state["personal"] = dict(vars(client.fitted))
        return upload

    def _train_private(self, client: Client, received: Weights, download: Message) -> Weights:
        """The private mixture after a round, pulled to the received one (Floco+)."""
        amount: dict[str, Any] = {"steps" if self.context.train.steps else "epochs": self.options.personal_epochs}
        anchor, lam = received.params.clone(), self.options.lam
        pull = {"anchor": anchor, "mu": anchor.new_tensor(lam)}
        more: dict[str, Any] = {"gradient": proximal_pull, "pull": pull} if lam else {}
        start = self.at(self._private(client), self._centre(download))
        return self._train(client, start, download, "personal", "coordinates-personal", **amount, **more)

    def _private(self, client: Client) -> Weights:
        return Weights(**client.state["personal"]) if "personal" in client.state else client.initial

    def _train(
        self,
        client: Client,
        start: Weights,
        download: Message,
        purpose: str,
        stream: str,
        pull: dict[str, Tensor] | None = None,
        **more: Any,
    ) -> Weights:
        """A fit with new coordinates in every step; the result has those of evaluation again."""
        centre = self._centre(download)
        if self.options.alpha_sampling == "random":
            steps, draw = self._steps(client, purpose), client.generator(stream)
            path = self._draw(steps, centre.cpu(), draw, "centre" in download)
            step = torch.zeros(1, dtype=torch.int64, device=start.params.device)
            pull, more["loss"] = {**(pull or {}), "path": path.to(start.params), "step": step}, mixed_loss
        # The pass before the projection goes on from the kept optimiser as a round would, and leaves it as it was.
        lent = purpose == "projection"
        memory = deepcopy(client.state.get("optimizer/fit")) if lent else client.memory(purpose)
        trained = client.learner.fit(start, client.train, purpose=purpose, memory=memory, state=pull, **more)
        return self.at(trained, centre)

    def _steps(self, client: Client, purpose: str) -> int:
        """Most gradient steps of a fit."""
        train = self.context.train
        if purpose != "personal":
            return client.learner.steps_of(client.samples)
        if train.steps or train.batch_size == "full":
            return self.options.personal_epochs
        return self.options.personal_epochs * ceil(client.samples / int(train.batch_size))

    def _draw(self, steps: int, centre: Tensor, stream: torch.Generator, projected: bool) -> Tensor:
        """Coordinates `[steps, M]`: anywhere in the simplex, or after the projection near the centre."""
        shape = (steps, self.options.endpoints)
        anywhere = simplex_points(shape, stream)
        if not projected:
            return anywhere
        radii = torch.rand(steps, 1, dtype=torch.float64, generator=stream) * self.options.rho
        if self.options.subregion_sampling == "l1_simplex":
            return towards(centre, anywhere, radii)
        directions = torch.rand(shape, dtype=torch.float64, generator=stream) * 2 - 1
        return away(centre, directions, radii)

    def personal(self, client: Client, download: Message) -> Predictor:
        """The received or private mixture at the centre; the round before the projection knows no centre yet."""
        known = self.options.tau is not None and client.round > self.options.tau
        weights = self._private(client) if self.options.personal_epochs else super().receive(client, download)
        return self.at(weights, self._centre(download) if known else self.middle)

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.centres = None

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        if server.centres is not None:
            message.tensors["centre"] = server.centres.get(client, self.middle)
        return message

    def global_weights(self, server: Server) -> Weights | None:
        """The mixture at the middle of the simplex."""
        if self.options.buffers == "private":
            return None
        buffers = self.shared_buffers.put(server.initial.buffers, server.buffers)
        return self.at(Weights(server.params, buffers, server.counters), self.middle)

    def survey(self, server: Server) -> Message | None:
        """Before round index tau: ask all clients for the endpoints that they would train."""
        tau, rounds = self.options.tau, self.context.rounds
        if tau is None or server.round != tau or tau >= rounds:
            return None
        question = super().download(server, 0)
        question.charge = question.wire_bytes() + 4 * self.options.endpoints  # the centre comes back once
        return question

    def answer(self, client: Client, question: Message) -> Message:
        trained = self._train(client, self.receive(client, question), question, "projection", "coordinates-projection")
        return self.message(endpoints=trained.params[self.endpoints])

    def conclude(self, server: Server, answers: dict[int, Message]) -> None:
        rows = torch.stack([answers[client].endpoints for client in sorted(answers)])
        # In a thread of its own with one core, because bits of a decomposition depend on the number of cores.
        with ThreadPoolExecutor(1, initializer=use_one_core) as pool:
            centres = pool.submit(project, rows, self.options.endpoints).result()
        server.centres = dict(zip(sorted(answers), centres.unbind(), strict=True))


def weights_of_head(module: nn.Module, layout: Layout) -> list[tuple[nn.Module, str]]:
    """Owner and name of every trainable matrix of the classifier. Raises ConfigError where it cannot be mixed."""
    layout.mask("head")
    head = module.get_submodule(layout.head_name or "")
    found = [(m, n, p) for m in head.modules() for n, p in m.named_parameters(recurse=False)]
    matrices = [(m, n, p) for m, n, p in found if p.dim() > 1 and p.requires_grad]
    owners = Counter(id(p) for _, p in module.named_parameters(remove_duplicate=False))
    parametrized = any(parametrize.is_parametrized(part) for part in head.modules())
    if not matrices or parametrized or any(owners[id(p)] > 1 for _, _, p in matrices):
        raise ConfigError(
            f"floco mixes the weight of the classifier '{layout.head_name}': it must have one that is trainable, not "
            "shared with another layer and not parametrized; name another classifier with --model.head"
        )
    return [(owner, name) for owner, name, _ in matrices]


class Mixture(nn.Module):
    """A weight as `sum_m a_m W_m`; `coordinates` holds a `[M]`, the endpoints W `[M, *shape]` are the parameter."""

    coordinates: Tensor

    def __init__(self, count: int, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("coordinates", torch.full((count,), 1 / count, dtype=like.dtype, device=like.device))

    def forward(self, endpoints: Tensor) -> Tensor:
        return (endpoints * self.coordinates.view(-1, *[1] * (endpoints.dim() - 1))).sum(0)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight.expand(len(self.coordinates), *weight.shape).clone()


def of_a_mixture(slot: Slot) -> bool:
    """Whether a tensor of the classifier belongs to a mixture; other parametrizations of it are refused."""
    return slot.head and ".parametrizations." in slot.name


def mixed_loss(net: Any, batch: Any, s: Any) -> Tensor:
    """The task's loss at the next coordinates of `s.path` `[steps, M]`; s.step `[1]` counts."""
    place = s.path.index_select(0, s.step)[0]
    s.step.add_(1).remainder_(len(s.path))  # an optimiser may try several times in a step
    for module in net.modules():
        if isinstance(module, Mixture):
            module.coordinates.copy_(place)
    return task_loss(net, batch)


def simplex_points(shape: tuple[int, int], stream: torch.Generator) -> Tensor:
    """Uniform points of the simplex, float64 `[points, M]`."""
    drawn = torch.empty(shape, dtype=torch.float64).exponential_(generator=stream)
    return drawn / drawn.sum(1, keepdim=True)


def away(centre: Tensor, directions: Tensor, radii: Tensor) -> Tensor:
    """Points `[steps, M]` at these distances `[steps, 1]` (L1) from the centre; they may leave the simplex."""
    return centre + radii * (directions / directions.abs().sum(1, keepdim=True))


def towards(centre: Tensor, goals: Tensor, radii: Tensor) -> Tensor:
    """Points `[steps, M]` at these distances `[steps, 1]` (L1) on the way from the centre to points of the simplex."""
    distance = (goals - centre).abs().sum(1, keepdim=True)
    share = torch.where(distance > radii, radii / distance, 1.0)
    return (1 - share) * centre + share * goals


def project(rows: Tensor, count: int) -> Tensor:
    """Centres `[clients, M]` of M = `count` coordinates, from the clients' endpoints `[clients, M C H]`."""
    scores = components(rows, count)
    found = [spread_out(scores, z) for z in torch.linspace(1e-4, 1, 1000, dtype=torch.float64).tolist()]
    energies = [energy(centres) for centres in found]
    return found[energies.index(min(energies))]


def components(rows: Tensor, count: int) -> Tensor:
    """Scores `[clients, count]` on the first principal components, float64.

    The entry of largest magnitude of a component is positive; components that are all rounding error score 0.
    """
    centred = rows.to(torch.float64)
    centred = centred - centred.mean(0)
    left, sizes, right = torch.linalg.svd(centred, full_matrices=False)
    signs = right.gather(1, right.abs().argmax(1, keepdim=True)).sign().flatten()
    scores = left * torch.where(sizes > 1e-10 * sizes[0], sizes * signs, 0.0)
    return nn.functional.pad(scores[:, :count], (0, max(0, count - scores.shape[1])))


def spread_out(scores: Tensor, z: float) -> Tensor:
    """Every row's nearest point with entries >= 0 that sum to z, divided by that sum `[clients, M]`."""
    scores = scores - scores.amax(1, keepdim=True)  # moves no nearest point, and small z are not lost in large scores
    ordered = scores.sort(1, descending=True).values
    excess = ordered.cumsum(1) - z
    places = torch.arange(1, scores.shape[1] + 1, dtype=torch.float64)
    positive = (ordered * places > excess).sum(1, keepdim=True)
    nearest = (scores - excess.gather(1, positive - 1) / positive).clamp_(min=0)
    return nearest / nearest.sum(1, keepdim=True)


def energy(centres: Tensor) -> float:
    """log of the mean over pairs of 1 / distance^2, distances of at least 1e-4; 0 for a single client."""
    distances = nn.functional.pdist(centres).clamp_(min=1e-4)
    return float(distances.pow(-2).sum().log()) - log(len(distances)) if len(distances) else 0.0


def centre_traces(centre: Tensor) -> dict[str, float]:
    return {f"mixture/{number}": value for number, value in enumerate(centre.tolist(), 1)}
