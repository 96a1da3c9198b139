"""Client-level differential privacy of what clients send (McMahan, Ramage, Talwar, Zhang; ICLR 2018).

An update is what a client sends minus what it received. It is shortened to at most `clip`, and each of the m
participants adds Gaussian noise of standard deviation noise * clip / sqrt(m), so that the sum of all has noise * clip.
Two runs are neighbours if one client has other data, which moves the sum by at most 2 * clip. What the server sees
decides the budget: only the mean, as with secure aggregation, if the method and the aggregator need no more and all
clients weigh the same; then nobody knows who took part either, and sampling counts. Otherwise it sees every upload with
its own noise, from clients that it knows. The accountant is that of the library dp-accounting (Renyi divergences).
"""

from collections.abc import Mapping
from math import sqrt

import torch

from fedbench.config import Config
from fedbench.config.fleet import PrivacyConfig
from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.installation import require
from fedbench.methods.base import Method, needs_mean_only
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.runtime.server.fleet import SERVER
from fedbench.runtime.uploads.step import UploadStep

ORDERS = [*(1 + tenth / 10 for tenth in range(1, 10)), *range(2, 33), 40, 48, 64, 96]
"""Orders of the divergences; more of them change the fifth digit and cost ten times as much."""


def check_client_privacy(config: Config, method: Method) -> None:
    """Raises ConfigError for settings whose budget would not be what is reported."""
    privacy = config.privacy
    if method.shared_buffers.size:
        raise ConfigError(
            f"privacy.clip = {privacy.clip:g}: clients also send running statistics, which have no noise; set "
            "method.buffers = private, or take a model without them (resnets: --model.norm group)"
        )
    for key, value in (("dropout", config.dropout), ("attack.name", config.attack.name)):
        if privacy.noise and value not in (0, "none"):
            raise ConfigError(f"{key} = {value}: the noise of clients that fail or cheat is missing; leave it out")


class ClippedUpdates(UploadStep):
    """Clients shorten their update to `privacy.clip`, and add their part of the noise of a round's participants."""

    def __init__(self, config: PrivacyConfig, participants: int) -> None:
        self.clip = config.clip if config.level == "client" else None
        self.noise, self.participants = config.noise, participants

    def at_client(self, upload: Upload, client: Client) -> None:
        params = upload.tensors.get("params")
        if self.clip is None or params is None or not upload.sizes["params"]:
            return
        received = client.message.params
        update = params.double() - received.double()
        update *= min(1.0, self.clip / max(float(update.norm()), 1e-300))
        if self.noise:
            draw = torch.randn(len(update), dtype=torch.float64, generator=client.generator("privacy"))
            update += draw.to(update.device) * (self.noise * self.clip / sqrt(self.participants))
        upload.tensors["params"] = (received + update).to(params)


def client_budget(config: PrivacyConfig, method: Method) -> "ClientBudget | None":
    """The budget of a run; none if clients send nothing."""
    if not method.shared_params.size:
        return None
    context = method.context
    same = getattr(method.options, "weighting", None) == "uniform"
    mean_only = same and needs_mean_only(type(method)) and context.aggregator.needs_mean_only
    return ClientBudget(config, context.clients, context.participants_per_round, mean_only)


class ClientBudget:
    """Epsilon after any number of rounds.

    clients, drawn: number of all clients, and of a round's. mean_only: whether the server sees only the mean.
    """

    def __init__(self, config: PrivacyConfig, clients: int, drawn: int, mean_only: bool) -> None:
        self.noise, self.delta, self.mean_only = config.noise, config.delta or 1 / clients, mean_only
        self.clients, self.drawn = clients, drawn

    def epsilon(self, rounds: int) -> float:
        """Epsilon after so many rounds. Raises ConfigError without dp-accounting."""
        require("privacy")
        import dp_accounting as library
        from dp_accounting.rdp import RdpAccountant

        noise = self.noise if self.mean_only else self.noise / sqrt(self.drawn)
        event = library.GaussianDpEvent(noise / 2)
        if self.mean_only and self.drawn < self.clients:
            event = library.SampledWithoutReplacementDpEvent(self.clients, self.drawn, event)
        accountant = RdpAccountant(ORDERS, neighboring_relation=library.NeighboringRelation.REPLACE_ONE)
        return float(accountant.compose(event, rounds).get_epsilon(self.delta))

    def traces(self, rounds: int, steps: Mapping[int, int]) -> dict[tuple[int, str], float]:
        """The traces to record after so many rounds."""
        return {(SERVER, "epsilon"): self.epsilon(rounds)}

    def line(self, rounds: int) -> str:
        """The remark to give before round 1."""
        seen = (
            "the server sees only the mean of a round"
            if self.mean_only
            else "the server sees every upload; only the mean would be seen with method.weighting = uniform, the "
            "aggregator mean and a method that averages"
        )
        return (
            f"client-level differential privacy: after {plural(rounds, 'round')} epsilon is {self.epsilon(rounds):.3g} "
            f"at delta = {self.delta:.2g} ({seen}); scores, public samples and tuning are not part of it"
        )
