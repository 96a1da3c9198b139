"""Malicious clients: what they send in place of the update that they trained.

An update is what a client sends minus what it would send without any change, by default what it received
(`Method.reference`). Attackers know each other and all honest updates of their round, the strongest case. `sign-flip`
and `scaled` send a multiple of their own update, `noise` a random direction; `alie` is "A Little Is Enough" (Baruch,
Baruch, Goldberg; NeurIPS 2019, Algorithm 3), `inner-product` is the attack of Xie, Koyejo and Gupta (UAI 2019, section
4.2).
"""

from collections.abc import Sequence
from statistics import NormalDist

import torch
from torch import Tensor

from fedbench.config.fleet import AttackConfig
from fedbench.errors import ConfigError
from fedbench.methods.base import Method
from fedbench.methods.messages import Message, Upload
from fedbench.module import seeds
from fedbench.results.remarks import Doubt
from fedbench.runtime.uploads.step import Delivery, Reference, UploadStep


def attackers(seed: int, clients: int, attack: AttackConfig) -> frozenset[int]:
    """The malicious clients of a run. Raises ConfigError if none or all would be."""
    if attack.name == "none":
        return frozenset()
    count = int(attack.share * clients + 0.5)
    if not 0 < count < clients:
        raise ConfigError(
            f"attack.share = {attack.share:g}: of {clients} clients it makes {count} malicious; there must be at least "
            "one, and one honest client"
        )
    return frozenset(seeds.numpy_generator(seed, "attackers").choice(clients, count, replace=False).tolist())


def check_attack(attack: AttackConfig, method: Method, name: str) -> None:
    """Raises ConfigError for a method whose clients send something, and no parameters."""
    if attack.name != "none" and not method.shared_params.size and method.also_sends:
        raise ConfigError(
            f"attack.name = {attack.name}: clients of {name} send {method.also_sends} and no parameters to attack; "
            "leave it out, or compare other methods"
        )


def warn_of_attack(attack: AttackConfig, participants: int, malicious: int) -> list[str]:
    """Says if attackers of `alie` may not stand away from the mean at all."""
    if attack.name != "alie" or attack.scale is not None or largest_deviation(participants, malicious):
        return []
    return [
        Doubt(
            f"attack.name = alie: with {malicious} of {participants} clients its strength is 0, so that attackers send "
            "the mean of the honest updates; set attack.scale, or raise attack.share"
        )
    ]


class Attack(UploadStep):
    """Replaces what malicious clients send. Without an honest upload, those that need one send nothing new."""

    def __init__(self, attack: AttackConfig, seed: int, malicious: frozenset[int], reference: Reference) -> None:
        self.attack, self.seed, self.malicious, self.reference = attack, seed, malicious, reference

    def at_server(self, uploads: list[Upload], delivery: Delivery) -> list[Upload]:
        if self.malicious:
            for field in {name for upload in uploads for name in upload.tensors if name.rpartition(".")[2] == "params"}:
                self._replace(field, {upload.client: upload for upload in uploads}, delivery)
        return uploads

    def _replace(self, field: str, uploads: dict[int, Upload], delivery: Delivery) -> None:
        """Replace a field of the malicious clients' uploads, by client."""
        vectors = {client: upload.tensors[field] for client, upload in uploads.items() if field in upload.tensors}
        starts = {client: self._start(field, uploads[client], delivery.received[client]) for client in vectors}
        updates = {
            client: vector.double() - start.to(vector.device).double()
            for client, vector in vectors.items()
            if (start := starts[client]) is not None and vector.numel() and vector.shape == start.shape
        }
        honest = [update for client, update in updates.items() if client not in self.malicious]
        for client in sorted(self.malicious & updates.keys()):
            draw = seeds.generator(self.seed, delivery.round, client, "attack")
            bad = malicious_update(self.attack, updates[client], honest, len(updates), draw)
            start = starts[client]
            assert start is not None
            uploads[client].tensors[field] = (start.to(bad) + bad).to(vectors[client])

    def _start(self, field: str, upload: Upload, received: Message) -> Tensor | None:
        """Where the update of a field begins. Other models than the first are what was received under their name."""
        return self.reference(upload, received) if field == "params" else received.tensors.get(field)


def malicious_update(
    attack: AttackConfig, update: Tensor, honest: Sequence[Tensor], participants: int, draw: torch.Generator
) -> Tensor:
    """The update `[N]` that an attacker sends instead of its own, given the honest ones, of so many participants."""
    scale = attack.scale
    if attack.name == "sign-flip":
        return -(scale or 1) * update
    if attack.name == "scaled":
        return (scale or 10) * update
    if attack.name == "noise":
        noise = torch.randn(update.shape, dtype=update.dtype, generator=draw).to(update.device)
        return (scale or 1) * update.norm() * noise / noise.norm()
    if not honest:
        return update
    updates = torch.stack([*honest])
    if attack.name == "inner-product":
        return -(scale or 1) * updates.mean(0)
    z = largest_deviation(participants, participants - len(honest)) if scale is None else scale
    return updates.mean(0) - z * updates.std(0, correction=0)


def largest_deviation(participants: int, malicious: int) -> float:
    """How many standard deviations an attacker of `alie` may stand from the mean and still look like honest clients.

    With n participants and m attackers, s = floor(n / 2 + 1) - m honest clients must be farther away than they: z is
    the normal quantile at (n - m - s) / (n - m), and 0 where that is at most one half.
    """
    supporters = participants // 2 + 1 - malicious
    honest = participants - malicious
    share = (honest - supporters) / honest
    return max(0.0, NormalDist().inv_cdf(min(share, 1 - 1e-9))) if share > 0 else 0.0
