"""The steps of a run that change uploads, in order: clients take the first ones, the server the others."""

from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.runtime.build import RunParts
from fedbench.runtime.uploads.attacks import Attack, attackers, warn_of_attack
from fedbench.runtime.uploads.client_privacy import ClippedUpdates
from fedbench.runtime.uploads.compression import CompressedUpdates
from fedbench.runtime.uploads.host_sums import HostSums
from fedbench.runtime.uploads.step import Delivery, UploadStep


class UploadChain:
    """The steps of a run. malicious: its attackers; sums: the step whose first half is in the outboxes of hosts."""

    def __init__(self, parts: RunParts) -> None:
        config, context = parts.run.config, parts.context
        self.attack, self.context = config.attack, context
        self.malicious = attackers(parts.seed, context.clients, config.attack)
        self.sums = HostSums(parts.method, is_open=not self.malicious)
        self.steps: list[UploadStep] = [
            ClippedUpdates(config.privacy, context.participants_per_round),
            CompressedUpdates(config.compression),
            Attack(config.attack, parts.seed, self.malicious),
            self.sums,
        ]

    def first_remarks(self) -> list[str]:
        """Remarks to give before round 1 of an attack without strength, if all clients take part in every round."""
        everyone = self.context.participants_per_round == self.context.clients
        return warn_of_attack(self.attack, self.context.clients, len(self.malicious)) if everyone else []

    def at_client(self, upload: Upload, client: Client) -> None:
        """Change the upload of a client before it leaves."""
        for step in self.steps:
            step.at_client(upload, client)

    def at_server(self, uploads: list[Upload], delivery: Delivery) -> list[Upload]:
        """The uploads that the server half gets."""
        for step in self.steps:
            uploads = step.at_server(uploads, delivery)
        return uploads
