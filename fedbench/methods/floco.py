"""Floco and Floco+: federated learning over connected modes (Grinwald, Wiesner, Nakajima; NeurIPS 2024).

The classifier's weight becomes a mixture of `endpoints` trained matrices; its coordinates are drawn for every batch, at
first from the whole simplex, from round index `tau` on near the client's own centre. Private: the centre, and in Floco+
(`personal_epochs`) a whole mixture that is trained next to the shared one and evaluated.
Up and down: the model with all endpoints. The projection that finds the centres is one extra pass over all clients.

Where we decide:
- The endpoints are parameters of the model like any other: all of them are averaged, optimised and counted.
  The coordinates are a buffer of the model and part of every predictor; they are never sent with the statistics.
- The projection takes trained endpoints, as the authors' code; updates, as in the paper, give the same components, and
  a sign rule makes those unique. It happens when the round before is over and evaluated: the personal model of that
  round is still the one at the middle of the simplex.
- Coordinates near a centre may leave the simplex, as in the authors' code; `l1_simplex` stays inside, as in the paper.
- Floco+ pulls by lam (p - g). The authors' code multiplies lam with p alone; their projection in the Flower baseline
  uses updates of the previous round instead of a separate pass.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fedbench.aggregation.columns import use_one_core
from fedbench.aggregation.simplex import project, walk
from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Loss, Step
from fedbench.engine.losses import task_loss
from fedbench.errors import ConfigError
from fedbench.methods.base import About, ExtraPass, Method, ModelFacts, Point
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.fedprox import proximal_pull
from fedbench.methods.messages import Encoded, Message, Upload, zero_bytes
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights
from fedbench.results.trace import MIXTURE


class Floco(ExtraPass["Floco.Options", "Floco.State", "Floco.Server"]):
    """Clients with similar updates share part of a simplex of classifiers."""

    about = About(
        "a simplex of classifiers, of which similar clients train the same part",
        "personalised aggregation",
        "Grinwald et al., NeurIPS",
        2024,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "floco:endpoints=1,tau=none,alpha_sampling=center": {
            "method.endpoints": 1,
            "method.tau": None,
            "method.personal_epochs": 0,
        }
    }
    traces = (MIXTURE,)

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
            "xavier", description="first endpoints: newly drawn, or the model's weight with noise of 0.1"
        )

    @dataclass
    class State(PrivateState):
        """last: the last model trained before the projection, for clients that may sit out after it."""

        personal: Weights | None = None
        last: Weights | None = None

    @dataclass
    class Server(ServerState):
        """centres: of every client, after the projection."""

        centres: dict[int, Tensor] | None = None

    needs = frozenset({"head"})

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Options, facts: ModelFacts) -> None:
        mix_head(module, layout, options.endpoints, options.endpoint_init, facts.seed)

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return super().steps(options, train, samples, public) + own_amount(options, train).steps_on(samples, train)

    def check(self) -> Iterator[str]:
        tau, endpoints, clients = self.options.tau, self.options.endpoints, self.context.clients
        if self.options.alpha_sampling == "random":
            self.refuse_private_steps("the loss at random points of a simplex")
        if tau is not None and clients < endpoints:
            raise ConfigError(
                f"method.endpoints = {endpoints}: the projection needs as many clients as endpoints and there "
                f"are {clients}; take at most {clients}, or set method.tau = none"
            )
        if tau is not None and tau >= self.context.rounds:
            rounds = self.context.rounds
            yield f"floco: method.tau = {tau} is not reached in {rounds} rounds, so all are treated alike: lower it"

    def frozen(self, layout: Layout) -> Masks:
        """The coordinates, which every model that is made here sets."""
        return Masks(layout.nothing().params, mixture_masks(layout).buffers)

    @cached_property
    def mixtures(self) -> Masks:
        return mixture_masks(self.context.layout)

    @property
    def middle(self) -> Tensor:
        """Coordinates of the middle of the simplex `[M]`."""
        return torch.full((self.options.endpoints,), 1 / self.options.endpoints, dtype=torch.float64)

    def mixture_at(self, weights: Weights, coordinates: Tensor) -> Weights:
        """The mixture with these coordinates `[M]`."""
        buffers, mask = weights.buffers.clone(), self.mixtures.buffers.to(weights.buffers.device)
        buffers[mask] = coordinates.to(buffers).repeat(int(mask.sum()) // len(coordinates))
        return weights.replace(buffers=buffers)

    def centre(self, client: Client[State]) -> Tensor:
        return client.message.centre if "centre" in client.message else self.middle

    def coordinates_of_steps(self, client: Client[State], stream: str, steps: int) -> Tensor:
        """Coordinates of every step of a fit `[steps, M]`."""
        draw = client.generator("coordinates" if stream == "fit" else f"coordinates-{stream}")
        near = client.message.centre.cpu() if "centre" in client.message else None
        inside = self.options.subregion_sampling == "l1_simplex"
        return walk((steps, self.options.endpoints), draw, near, self.options.rho, inside)

    def receive(self, client: Client[State]) -> Weights:
        return self.mixture_at(super().receive(client), self.centre(client))

    def train(self, client: Client[State], received: Weights) -> Upload:
        message, traces = client.message, {}
        if "centre" in message:
            traces = {f"mixture/{number}": value for number, value in enumerate(message.centre.tolist(), 1)}
        trained = self._fit(client, received, "fit")
        upload = self.upload(client, trained, traces=traces)
        if self.options.personal_epochs:
            client.state.personal = upload.trained = self._fit_private(client, received)
        elif self.context.participants_per_round < self.context.clients and self.options.tau is not None:
            client.state.last = None if "centre" in message else trained
        return upload

    def _fit_private(self, client: Client[State], received: Weights) -> Weights:
        """Trains the private mixture, pulled to the received one (Floco+)."""
        lam = self.options.lam
        amount = own_amount(self.options, self.context.train) if client.epochs is None else client.amount()
        pull = Step(proximal_pull, anchor=received.params, mu=lam) if lam else None
        start = self.mixture_at(self._private(client), self.centre(client))
        return self._fit(client, start, "personal", amount, pull)

    def _private(self, client: Client[State]) -> Weights:
        return client.state.personal or client.initial

    def _fit(
        self, client: Client[State], start: Weights, stream: str, amount: Amount | None = None, step: Step | None = None
    ) -> Weights:
        """A fit with new coordinates in every step; the result has those of evaluation."""
        train, loss = self.context.train, None
        amount = client.amount() if amount is None else amount
        if self.options.alpha_sampling == "random":
            path = self.coordinates_of_steps(client, stream, amount.steps_on(client.samples, train)).to(start.params)
            loss = Loss(mixed_loss, path=path, step=torch.zeros(1, dtype=torch.int64, device=path.device))
        trained = client.fit(start, client.train, stream, amount, loss=loss, step=step)
        return self.mixture_at(trained, self.centre(client))

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights:
        """The mixture, shared or private, at the centre."""
        if point == "after_fit":
            return model
        return self.for_evaluation(client, self._private(client) if self.options.personal_epochs else model)

    def idle_model(self, client: Client[State]) -> Weights:
        """The last trained model, at the client's centre received since."""
        return self.for_evaluation(client, client.state.personal or client.state.last or super().idle_model(client))

    def join(self, client: Client[State], received: Weights) -> Weights | Predictor:
        """At the middle of the simplex; the private mixture (Floco+) starts at the received one."""
        if self.options.personal_epochs:
            client.state.personal = received
        return super().join(client, received)

    def for_evaluation(self, client: Client[State], mixture: Weights) -> Weights:
        """The mixture at the centre, or at the middle in the round before the projection."""
        return self.mixture_at(mixture, self.middle if client.round == self.options.tau else self.centre(client))

    def global_model(self, server: Server, initial: Weights) -> Weights | None:
        """The mixture at the middle of the simplex, as in the initial buffers."""
        return self.whole_model(server, initial) if self.options.buffers == "average" else None

    def send(self, server: Server, client: int) -> Message:
        message = super().send(server, client)
        if server.centres is not None:
            message.add(centre=zero_bytes(server.centres.get(client, self.middle)))
        return message

    def question(self, server: Server) -> Message | None:
        """Before round index tau: asks all clients for the endpoints that they would train."""
        if server.round != self.options.tau or self.context.is_last(server.round):
            return None
        size = server.params.nbytes + 4 * self.options.endpoints  # the centre comes back once
        return super().send(server, 0).add(params=Encoded(server.params, size))

    def answer(self, client: Client[State]) -> Message:
        """Trains from the kept optimiser as a round would, without changing it."""
        step = Step(memory=deepcopy(client.state.optimizers.get("fit")))
        trained = self._fit(client, self.receive(client), "projection", step=step)
        return Message(endpoints=trained.params[self.mixtures.params])

    def conclude(self, server: Server, answers: dict[int, Message]) -> None:
        rows = torch.stack([answers[client].endpoints for client in sorted(answers)])
        if len(rows) < self.options.endpoints:
            server.warn(f"floco: {len(rows)} clients answered, too few for a projection: all are treated alike")
            return
        # On a separate thread with one core, because the bits of a decomposition depend on the number of cores.
        with ThreadPoolExecutor(1, initializer=use_one_core) as pool:
            centres = pool.submit(project, rows, self.options.endpoints).result()
        server.centres = dict(zip(sorted(answers), centres.unbind(), strict=True))


def own_amount(options: Floco.Options, train: TrainConfig) -> Amount:
    """The training amount of the private mixture (Floco+)."""
    work = options.personal_epochs
    return Amount(steps=work) if train.steps else Amount(epochs=work)


class Mixture(nn.Module):
    """A weight `sum_m a_m W_m`; `coordinates` is a `[M]`, the endpoints W `[M, *shape]` are the parameter."""

    coordinates: Tensor

    def __init__(self, count: int, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("coordinates", torch.full((count,), 1 / count, dtype=like.dtype, device=like.device))

    def forward(self, endpoints: Tensor) -> Tensor:
        return (endpoints * self.coordinates.view(-1, *[1] * (endpoints.dim() - 1))).sum(0)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight.expand(len(self.coordinates), *weight.shape).clone()


def mix_head(module: nn.Module, layout: Layout, count: int, init: str, seed: int) -> None:
    """Replaces every weight of the classifier by `count` endpoints; biases are unchanged.

    init: xavier draws new endpoints, jitter adds noise to the weight. Each endpoint has its own stream.
    """
    weights = weights_of_head(module, layout)
    for owner, name in weights:
        parametrize.register_parametrization(owner, name, Mixture(count, getattr(owner, name)))
    endpoints = [owner.get_parameter(f"parametrizations.{name}.original").data for owner, name in weights]
    for number in range(count):
        stream = torch.Generator().manual_seed(seed + number)
        for target in endpoints:
            drawn = torch.empty(target.shape[1:], dtype=target.dtype)
            if init == "xavier":
                target[number] = nn.init.xavier_normal_(drawn, generator=stream)
            else:
                target[number] += 0.1 * drawn.normal_(generator=stream)


def weights_of_head(module: nn.Module, layout: Layout) -> list[tuple[nn.Module, str]]:
    """Owner and name of every trainable matrix of the classifier. Raises ConfigError if it cannot be mixed."""
    layout.mask("head")
    head = module.get_submodule(layout.head_name or "")
    entries = [(m, n, p) for m in head.modules() for n, p in m.named_parameters(recurse=False)]
    matrices = [(m, n, p) for m, n, p in entries if p.dim() > 1 and p.requires_grad]
    owners = Counter(id(p) for _, p in module.named_parameters(remove_duplicate=False))
    parametrized = any(parametrize.is_parametrized(part) for part in head.modules())
    if not matrices or parametrized or any(owners[id(p)] > 1 for _, _, p in matrices):
        raise ConfigError(
            f"floco mixes the weight of the classifier '{layout.head_name}': it must have one that is trainable, not "
            "shared with another layer and not parametrized; name another classifier with --model.head"
        )
    return [(owner, name) for owner, name, _ in matrices]


def mixture_masks(layout: Layout) -> Masks:
    """The endpoints among the parameters, and the coordinates among the buffers.

    The classifier has no other parametrization: `mix_head` refuses them.
    """
    slots = (*layout.params, *layout.buffers)
    return layout.under(slot.name for slot in slots if slot.head and ".parametrizations." in slot.name)


def mixed_loss(net: Any, batch: Any, s: Any) -> Tensor:
    """The task's loss at the next coordinates of `s.path` `[steps, M]`; s.step `[1]` counts."""
    coordinates = s.path.index_select(0, s.step)[0]
    s.step.copy_((s.step + 1) % len(s.path))  # an optimiser may try several times in a step
    for module in net.modules():
        if isinstance(module, Mixture):
            module.coordinates.copy_(coordinates)
    return task_loss(net, batch)
