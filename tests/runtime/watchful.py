"""A method that notes when it is called."""

from typing import Any, ClassVar

import torch

from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Server


class Watchful(Method):
    """FedAvg that asks all clients before round 1 and after round 2."""

    received: ClassVar[list[tuple[int, int]]] = []
    answered: ClassVar[list[tuple[int, float]]] = []

    def receive(self, client: Client, download: Message) -> Weights:
        self.received.append((client.round, client.id))
        return super().receive(client, download)

    def survey(self, server: Server) -> Message | None:
        return Message({"question": torch.zeros(3)}) if server.round in (0, 2) else None

    def answer(self, client: Client, question: Any) -> Message:
        self.answered.append((client.round, client.learner.lr_factor))
        return Message({"answer": torch.zeros(1)})
