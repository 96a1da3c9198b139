"""What driver and hosts tell each other.

Exchange k delivers model k, has it evaluated, and trains model k + 1 out of it. So a run of T rounds has the exchanges
0 to T, of which the last trains nothing; round t is what exchange t - 1 trains and exchange t evaluates. An extra pass
over the clients is an exchange without training and evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedbench.config import Config
from fedbench.data.partitions import Partition
from fedbench.data.prepared import Prepared
from fedbench.methods.messages import Message, Upload
from fedbench.runtime.sums import Total
from fedbench.tasks import Score

POOLED = -1
"""Number of the client that holds the training data of all."""

Scores = dict[str, Score]
"""By split: val (where there is one) and test."""


@dataclass(frozen=True)
class Setup:
    """All that a host needs for one run. data: what it works on, by which processes elsewhere know it.

    states: where private states are files, or None for this process's memory. state_bytes: how many these states may
    come to have, as if every client kept a model.
    """

    config: Config
    seed: int
    partition: Partition
    data: Prepared | None = None
    states: Path | None = None
    state_bytes: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class ClientTask:
    """What a host does for one client in an exchange: models are evaluated first, then one is trained.

    kept: the round in which the client's private state was saved, 0 before the first. idle_model, after_agg,
    global_model, after_fit: what is evaluated: the model of a client that sits out and whose last fit has no score,
    what it has received, the global model, and what it trains now. keep: of these, the models that the run keeps.
    share: the weight of its upload, where the host adds uploads up.
    """

    client: int
    message: Message
    kept: int = 0
    idle_model: bool = False
    after_agg: bool = False
    global_model: bool = False
    train: bool = False
    after_fit: bool = False
    keep: Sequence[str] = ()
    share: float | None = None


@dataclass
class Order:
    """The message to a host. number: of the exchange.

    global_model: to be evaluated where a task asks for it. extra: whether this is an extra pass, in which clients
    answer. gone: clients that are at home elsewhere since the last exchange.
    """

    number: int
    tasks: list[ClientTask]
    global_model: Message | None = None
    extra: bool = False
    gone: Sequence[int] = ()


@dataclass
class Report:
    """What became of one task.

    kept: bytes of the private state that was saved, or None. models: that the run keeps. failure: why there is nothing;
    cause: what failures of one mistake have in common; trace: where it was raised.
    """

    client: int
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    upload: Upload | None = None
    answer: Message | None = None
    kept: int | None = None
    scores: dict[str, Scores] = field(default_factory=dict)
    models: dict[str, Message] = field(default_factory=dict)
    loss: float | None = None
    steps: int = 0
    logged: dict[str, float] = field(default_factory=dict)
    failure: str | None = None
    cause: str = ""
    trace: str = ""

    def messages(self) -> list[Message]:
        """All that holds tensors."""
        return [message for message in (self.upload, self.answer, *self.models.values()) if message is not None]


@dataclass
class Reply:
    """The message from a host. remarks: what to say once of how it works. total: of the uploads that it added up."""

    reports: list[Report]
    train_seconds: float
    eval_seconds: float
    busy_seconds: float
    process: int
    rss_mb: float
    remarks: Sequence[str] = ()
    total: Total = field(default_factory=Total)

    def messages(self) -> list[Message]:
        """All that holds tensors."""
        return [self.total.message, *(message for report in self.reports for message in report.messages())]


@dataclass(frozen=True)
class Relocation:
    """A client that changes its home, and the round in which its private state was saved."""

    client: int
    kept: int
    source: int
    target: int


@dataclass
class RoundRecord:
    """A round: what training it cost and said. Its models are evaluated by the exchange of the same number.

    idle: in how many rounds so far no client took a gradient step. failing: the cause for which all
    participants failed, and whom it has hit since a client last ended a fit. extra_pass: whether one came after
    the round.
    """

    number: int = 0
    idle: int = 0
    failing: tuple[str, list[int]] = ("", [])
    took_part: list[int] = field(default_factory=list)
    extra_pass: bool = False
    train_loss: float | None = None
    steps: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    traces: dict[tuple[int, str], float] = field(default_factory=dict)

    def failures_with_round(self) -> list[tuple[int, str]]:
        """The failures of a round that is not evaluated, to be told with a later one."""
        return [
            (c, text if text.startswith("in round ") else f"in round {self.number}: {text}") for c, text in self.failed
        ]
