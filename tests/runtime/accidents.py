"""What users' code does to a run: networks that fail on one class, methods that fail for one client or kill."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.config import Config
from fedbench.methods.base import Point
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.fedcac import FedCAC
from fedbench.methods.fedper import FedPer
from fedbench.methods.floco import Floco
from fedbench.methods.messages import Message, Upload
from fedbench.module.weights import Weights
from tests.runtime.networks import Awkward
from tests.runtime.rounds import small
from tests.runtime.watchful import Watchful

CLASS, CLIENT = 3, 3


class Diverging(Awkward):
    """The loss of one class is not a number."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        out = super().training_step(batch, batch_idx)
        return {"loss": out["loss"] * torch.nan} if CLASS in batch[1] else out


class Crashing(Awkward):
    """One class is too much."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        if CLASS in batch[1]:
            raise KeyError("no such class")
        return super().training_step(batch, batch_idx)


class Quitting(Awkward):
    """One class is enough."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        if CLASS in batch[1]:
            raise SystemExit(3)  # W&B puts a sys.exit of its own in place
        return super().training_step(batch, batch_idx)


class Resting(Awkward):
    """Skips every batch."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:  # type: ignore[override]
        return None


@dataclass
class Light(PrivateState):
    on: int = 0


class Blinking(FedAvg):
    """FedAvg whose clients keep a light that is on after every other round."""

    State = Light

    def train(self, client: Client, received: Weights) -> Upload:
        before, client.state.on = client.state.on, 1 - client.state.on
        trained = client.fit(received, client.train)
        return self.upload(client, trained, traces={"before": float(before)})


class Mute(Watchful):
    """One client has no answer."""

    received, answered = SimpleQueue(), SimpleQueue()  # type: ignore[var-annotated]

    def answer(self, client: Client) -> Message:
        if client.id == CLIENT:
            raise RuntimeError("no answer")
        return super().answer(client)

    def conclude(self, server: Any, answers: dict[int, Message]) -> None:
        assert sorted(answers) == [client for client in range(10) if client != CLIENT]


class Secretive(Floco):
    """Two clients have an answer."""

    def answer(self, client: Client) -> Message:
        if client.id > 1:
            raise RuntimeError("no answer")
        return super().answer(client)


class Clumsy(FedPer):
    """FedPer, but one client breaks its own state in round 2 and fails, in training or when it is evaluated."""

    class Options(FedPer.Options):
        when: Literal["fit", "fitted", "personal"] = Field("fit", description="what fails")

    def train(self, client: Client, received: Weights) -> Upload:
        upload = super().train(client, received)
        if client.id == CLIENT and client.round == 2 and self.options.when != "personal":
            client.state.params.zero_()
            client.state.counters = torch.ones(1)
            if self.options.when == "fit":
                raise RuntimeError("the state is broken")
        return upload

    def personal(self, client: Client, model: Weights, point: Point) -> Any:
        if client.id == CLIENT and client.round == 2:
            if self.options.when == "personal" and point == "after_agg":
                raise RuntimeError("cannot be looked at")
            if self.options.when == "fitted" and point == "after_fit":
                return Predictor(lambda data: 1 / 0)  # type: ignore[arg-type, return-value]
        return super().personal(client, model, point)


class Deadly(FedCAC):
    """FedCAC, whose third fit in round 3 ends its host, the first time. `notes` is a file of all fits."""

    class Options(FedCAC.Options):
        notes: str = Field(description="where fits are noted")

    def train(self, client: Client, received: Weights) -> Upload:
        notes = Path(self.options.notes)
        with notes.open("a") as file:
            file.write(f"{client.round} {client.id}\n")
        fits = notes.read_text().splitlines()
        if client.round == 3 and sum(fit.startswith("3 ") for fit in fits) == CLIENT:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train(client, received)


def clumsy(when: str, **more) -> Config:
    """A run whose client 3 fails in round 2."""
    return small("tests.runtime.accidents:Clumsy", method__when=when, **more)


def broken(network: str, **more) -> Config:
    """A run with one class per client, so that exactly one client is hit."""
    model = {"name": f"tests.runtime.accidents:{network}", "head": "classifier"}
    asked: dict = {"rounds": 2, "train": {"epochs": 1}} | more
    return small(partition={"name": "shards", "clients": 10, "classes": 1}, model=model, **asked)
