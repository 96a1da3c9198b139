"""A problem with two clients and two parameters, whose numbers can be computed by hand.

The parameters are `body` and `head`, both 0 at first. A sample is a target (x0, x1), its loss half the squared distance
of (body, head) from it. Client 0 has one sample, (1, 2); client 1 has three, (3, -2). Both take two gradient
steps a round on all their samples with train.lr = 0.5, each of which goes half of the way to their target.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from fedbench.checks.method_runs import NO_OPTIONS, Keys, MethodRuns
from fedbench.checks.recording import RecordingHosts
from fedbench.config import Config
from fedbench.methods.base import Method

TARGETS = ((1.0, 2.0), (3.0, -2.0))
SAMPLES = (1, 3)
ROUNDS = 3
DIGITS = 6


@cache
def targets(train: bool = True) -> TensorDataset:
    """The samples of both clients, with the client's number as the label; those for tests are the same."""
    rows = [TARGETS[client] for client, count in enumerate(SAMPLES) for _ in range(count)]
    labels = [client for client, count in enumerate(SAMPLES) for _ in range(count)]
    return TensorDataset(torch.tensor(rows), torch.tensor(labels))


class Number(nn.Module):
    """One parameter, which is 0 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.value.expand(len(x), 1)


class TwoNumbers(LightningModule):
    """The parameters `body` and `head`."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Number(), Number()

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.body(x), self.head(x)], 1)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return (self(batch[0]) - batch[0]).square().sum(1).mean() / 2

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Row(NamedTuple):
    """What a client receives, trains and sends in a round; empty where nothing travels."""

    round: int
    client: int
    receives: tuple[float, ...]
    trains_to: tuple[float, ...]
    sends: tuple[float, ...]


def trajectory(method: str | type[Method], options: Keys = NO_OPTIONS, rounds: int = ROUNDS) -> list[Row]:
    """What both clients do in these rounds. Raises ConfigError if the method refuses the problem."""
    with MethodRuns(method, options) as runs:
        config = problem(runs.name, options, rounds)
        folder = runs.folder_for("problem")
        hosts = RecordingHosts(folder)
        runs.play(config, hosts, folder, change=hosts.watching)
    sent = {(own.number, own.client, own.direction): own.tensors.get("params") for own in hosts.sent}
    return [
        Row(
            number + 1,
            client,
            _numbers(sent.get((number, client, "down"))),
            _numbers(trained),
            _numbers(sent.get((number, client, "up"))),
        )
        for (number, client), trained in sorted(hosts.trained.items())
    ]


def problem(method: str, options: Keys, rounds: int) -> Config:
    """The configuration of the problem."""
    return Config(
        method={"name": method, **options},
        data={"name": f"{__name__}:targets", "mean": [0.0], "std": [1.0], "val": 0},
        partition={"name": "shards", "clients": len(SAMPLES), "classes": 1},
        model={"name": f"{__name__}:TwoNumbers", "head": "head"},
        train={
            "optimizer": "sgd",
            "lr": 0.5,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "epochs": 2,
            "batch_size": "full",
            "precision": "64-true",
        },
        rounds=rounds,
        checkpoint={"every": 0},
        resources={"hosts": 0},
    )


def _numbers(vector: Tensor | None) -> tuple[float, ...]:
    return () if vector is None else tuple(round(float(value), DIGITS) + 0.0 for value in vector)


def table_of(rows: Iterable[Row]) -> str:
    """The numbers as a table, (body, head)."""
    lines = ["round  client  receives              trains to             sends"]
    for row in rows:
        vectors = [", ".join(f"{value:g}" for value in vector) or "-" for vector in row[2:]]
        lines.append(f"{row.round:<7}{row.client:<8}" + "".join(f"{text:<22}" for text in vectors).rstrip())
    return "\n".join(lines)


def write_test(path: Path, method: str, options: dict[str, Any], rows: Iterable[Row]) -> None:
    """A test file that keeps the numbers, and asks all checks of the method."""
    kept = "".join(f"    {tuple(row)},\n" for row in rows)
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    path.write_text(
        f'"""Numbers of {method} that were compared with its paper, and the checks of fedbench."""\n\n'
        "import pytest\n\nfrom fedbench.testing import method_checks, numbers_by_hand\n\n"
        "# (round, client, what it receives, what it trains to, what it sends), each as (body, head)\n"
        f"NUMBERS = [\n{kept}]\n\n\n"
        f'def test_numbers_by_hand():\n    assert numbers_by_hand("{method}"{given}) == NUMBERS\n\n\n'
        f'@pytest.mark.parametrize("check", method_checks("{method}"{given}))\n'
        "def test_check(check):\n    check()\n"
    )
