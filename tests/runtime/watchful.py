"""A method that notes when it is called."""

from queue import SimpleQueue
from typing import Any, ClassVar

import torch

from fedbench.methods.base import ExtraPass
from fedbench.methods.client import Client
from fedbench.methods.messages import Message
from fedbench.module.weights import Weights


def taken(notes: SimpleQueue) -> list[Any]:
    """What has been noted, sorted."""
    return sorted(notes.get() for _ in range(notes.qsize()))


class Watchful(ExtraPass):
    """FedAvg that asks all clients before round 1 and after round 2."""

    received: ClassVar[SimpleQueue[tuple[int, int]]] = SimpleQueue()
    answered: ClassVar[SimpleQueue[tuple[int, float]]] = SimpleQueue()
    """Notes for tests. A list would be refused: methods keep nothing in their classes."""

    def receive(self, client: Client) -> Weights:
        self.received.put((client.round, client.id))
        return super().receive(client)

    def question(self, server: Any) -> Message | None:
        return Message(question=torch.zeros(3)) if server.round in (0, 2) else None

    def answer(self, client: Client) -> Message:
        assert len(client.message.question) == 3
        self.answered.put((client.round, client.decay))
        return Message(answer=torch.zeros(1))

    def conclude(self, server: Any, answers: dict[int, Message]) -> None:
        assert sorted(answers) == list(range(10))
