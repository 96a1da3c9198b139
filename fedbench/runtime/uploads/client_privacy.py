"""Client-level differential privacy of what clients send (McMahan, Ramage, Talwar, Zhang; ICLR 2018).

An update is what a client sends minus what it would send without any change, by default what it received
(`Method.reference`). It is shortened to at most `clip`, and each of the m participants adds Gaussian noise of standard
deviation noise * clip / sqrt(m), so that the sum of all has noise * clip. Two runs are neighbours if one client has
other data, which moves the sum by at most 2 * clip. What the server sees decides the budget: only the mean, as with
secure aggregation, if the method and the aggregator need no more and all clients weigh the same; then nobody knows who
took part either, and sampling counts, unless a method has all clients train in every round. Otherwise it sees every
upload with its own noise, from clients that it knows. So it does with compression: it gets a part of the entries of
every upload, or rounded ones, whose sum lacks noise of the others. The accountant is that of the library
dp-accounting (Renyi divergences).
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
from fedbench.runtime.uploads.step import Reference, UploadStep

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

    def __init__(self, config: PrivacyConfig, participants: int, reference: Reference) -> None:
        self.clip = config.clip if config.level == "client" else None
        self.noise, self.participants, self.reference = config.noise, participants, reference

    def at_client(self, upload: Upload, client: Client) -> None:
        params = upload.tensors.get("params")
        if self.clip is None or params is None or not upload.sizes["params"]:
            return
        start = self.reference(upload, client.message)
        assert start is not None
        update = params.double() - start.double()
        update *= min(1.0, self.clip / max(float(update.norm()), 1e-300))
        if self.noise:
            draw = torch.randn(len(update), dtype=torch.float64, generator=client.generator("privacy"))
            update += draw.to(update.device) * (self.noise * self.clip / sqrt(self.participants))
        upload.tensors["params"] = (start + update).to(params)


def client_budget(config: PrivacyConfig, method: Method) -> "ClientBudget | None":
    """The budget of a run; none if clients send nothing."""
    if not method.shared_params.size:
        return None
    context = method.context
    same = getattr(method.options, "weighting", None) == "uniform"
    averages = same and needs_mean_only(type(method)) and context.aggregator.needs_mean_only
    compressed = context.changes_uploads.startswith("compression")
    mean_only = averages and not compressed
    # Who trains in every round may upload in every round: then nothing hides who took part.
    everyone = mean_only and method.trainers(method.options) == "all"
    drawn = context.clients if everyone else context.participants_per_round
    return ClientBudget(config, context.clients, drawn, mean_only, compressed)


class ClientBudget:
    """Epsilon after any number of rounds.

    clients, drawn: number of all clients, and of those whose noise adds up. mean_only: whether the server sees only the
    mean. compressed: whether uploads are compressed after their noise.
    """

    def __init__(
        self, config: PrivacyConfig, clients: int, drawn: int, mean_only: bool, compressed: bool = False
    ) -> None:
        self.noise, self.delta, self.mean_only = config.noise, config.delta or 1 / clients, mean_only
        self.clients, self.drawn, self.compressed = clients, drawn, compressed

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
        return (
            f"client-level differential privacy: after {plural(rounds, 'round')} epsilon is {self.epsilon(rounds):.3g} "
            f"at delta = {self.delta:.2g} ({self._seen()}); scores, public samples and tuning are not part of it"
        )

    def _seen(self) -> str:
        """What the server sees, in words."""
        if self.mean_only:
            return "the server sees only the mean of a round"
        why = ", because each is compressed after its noise" if self.compressed else ""
        without = "without compression, with" if self.compressed else "with"
        return (
            f"the server sees every upload{why}; only the mean would be seen {without} method.weighting = uniform, the "
            "aggregator mean and a method that averages"
        )
