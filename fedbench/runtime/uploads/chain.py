"""The steps of a run that change uploads, in order: clients take the first ones, the server the others."""

from torch import Tensor

from fedbench.methods.client import Client
from fedbench.methods.contract import call_hook, server_hook
from fedbench.methods.messages import Message, Upload
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
        self.parts = parts
        self.attack, self.context = config.attack, context
        self.malicious = attackers(parts.seed, context.clients, config.attack)
        self.sums = HostSums(parts.method, is_open=not self.malicious)
        self.steps: list[UploadStep] = [
            ClippedUpdates(config.privacy, context.participants_per_round, self.reference),
            CompressedUpdates(config.compression, self.reference),
            Attack(config.attack, parts.seed, self.malicious, self.reference_at_server),
            self.sums,
        ]

    def reference(self, upload: Upload, received: Message) -> Tensor | None:
        """What the parameters of an upload would be if its client had changed nothing, by its method."""
        start: Tensor | None = call_hook(self.parts.of(upload.client).method, "reference", received, upload)
        return start

    def reference_at_server(self, upload: Upload, received: Message) -> Tensor | None:
        """The same where no client can fail for a mistake in the hook: the run ends."""
        with server_hook(self.parts.method, "reference"):
            return self.reference(upload, received)

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
