"""Messages between driver and hosts.

Exchange k delivers model k, has it evaluated, and trains model k + 1 from it. So a run of T rounds has the exchanges
0 to T, of which the last trains nothing; exchange t - 1 trains round t and exchange t evaluates it. An extra pass
over the clients is an exchange without training and evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fedbench.config import Config
from fedbench.data.partitions import Partition
from fedbench.data.prepared import PreparedDataset
from fedbench.methods.messages import Message, Upload
from fedbench.runtime.uploads.sums import Total
from fedbench.tasks import Score

POOLED = -1
"""Number of the client that has the training data of all clients."""

Scores = dict[str, Score]
"""Scores by split: val (if there is one) and test."""


class Joining(NamedTuple):
    """How a newcomer joins: after so many local epochs, on at most so many of its training images (0: all)."""

    epochs: int
    images: int = 0


@dataclass(frozen=True)
class Setup:
    """Everything a host needs for one run. data: identifies the data set on other machines.

    states: folder of the private states, or None to keep them in this process's memory. state_bytes: their largest
    expected size, as if every client kept a model. message_bytes: the largest size of a round's messages, as if every
    participant got and sent a model. gpu_share: of the memory of a GPU, the part that the host may take.
    """

    config: Config
    seed: int
    partition: Partition
    data: PreparedDataset | None = None
    states: Path | None = None
    state_bytes: int = 0
    message_bytes: int = 0
    device: str = "cpu"
    gpu_share: float = 1.0


@dataclass(frozen=True)
class ClientTask:
    """A host's work for one client in an exchange: it evaluates models first, then trains one.

    kept: the round in which the client's private state was saved, 0 before the first. idle_model, after_agg,
    global_model, after_fit: which models are evaluated: that of a client that sits out and whose last fit has no score,
    the received one, the global one, and the one trained now. keep: of which of these the run keeps the model or its
    predictions; outcomes: of which it keeps the outcomes. share: the weight of its upload, if the host sums uploads.
    work: the share of its local steps that it takes. is_lost: whether its upload gets lost on the way. joining: of a
    newcomer, which does nothing else.
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
    outcomes: Sequence[str] = ()
    share: float | None = None
    work: float = 1.0
    is_lost: bool = False
    joining: Joining | None = None


@dataclass
class Order:
    """The message to a host. number: of the exchange.

    global_model: evaluated if a task asks for it. extra: whether this is an extra pass, in which clients answer.
    moved_away: clients that have moved to another host since the last exchange.
    """

    number: int
    tasks: list[ClientTask]
    global_model: Message | None = None
    extra: bool = False
    moved_away: Sequence[int] = ()


@dataclass
class Report:
    """The result of one task.

    trained: whether a fit ended, even if its upload got lost. kept: bytes of the saved private state, or None. models,
    predictions, outcomes: those that the run keeps; predictions as outputs, targets and rows of the test samples,
    outcomes as in `results/outcomes.py`. validation: the outputs and targets of the validation samples by point, if
    they are pooled. failure: why there is no result; cause: common to all failures from one mistake; trace: where it
    was raised.
    """

    client: int
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    trained: bool = False
    upload: Upload | None = None
    answer: Message | None = None
    kept: int | None = None
    scores: dict[str, Scores] = field(default_factory=dict)
    models: dict[str, Message] = field(default_factory=dict)
    predictions: dict[str, Message] = field(default_factory=dict)
    validation: dict[str, Message] = field(default_factory=dict)
    outcomes: dict[str, Message] = field(default_factory=dict)
    loss: float | None = None
    steps: int = 0
    logged: dict[str, float] = field(default_factory=dict)
    failure: str | None = None
    cause: str = ""
    trace: str = ""

    def messages(self) -> list[Message]:
        """All that holds tensors, each once: points of one model share theirs."""
        kept = (*self.models.values(), *self.predictions.values(), *self.outcomes.values())
        messages = (self.upload, self.answer, *kept, *self.validation.values())
        return [*{id(message): message for message in messages if message is not None}.values()]


@dataclass
class Reply:
    """The message from a host.

    busy_seconds: of its work; cpu_seconds: of all threads of its process meanwhile. rss_mb, gpu_mb: memory of its
    process now, and the most so far of a GPU. remarks: notes on its work, shown once. total: of the uploads that it
    summed. uses_rounds: whether its results may depend on the number of rounds.
    """

    reports: list[Report]
    train_seconds: float
    eval_seconds: float
    busy_seconds: float
    cpu_seconds: float
    process: int
    rss_mb: float
    remarks: Sequence[str] = ()
    total: Total = field(default_factory=Total)
    uses_rounds: bool = False
    gpu_mb: float = 0.0

    def messages(self) -> list[Message]:
        """All that holds tensors."""
        return [self.total.message, *(message for report in self.reports for message in report.messages())]


@dataclass(frozen=True)
class Relocation:
    """A client that moves to another host, and the round in which its private state was saved."""

    client: int
    kept: int
    source: int
    target: int
