"""What both halves of a method know of a run, and the state of its server half."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from fedbench.aggregation.aggregator import Aggregator
from fedbench.aggregation.rules.mean import Mean
from fedbench.config import TrainConfig
from fedbench.methods.state import Declared
from fedbench.module.layout import Layout

MOST_PAIRS, MOST_LAST_PAIRS = 20, 200
"""Clients whose pairs are traced in every round, and in the last one."""


@dataclass(frozen=True)
class Context:
    """What both halves know of a run.

    sizes: training images per client; public: public images; `rounds` is T; drawn: participants of a round. samples:
    image, feature or token; looks_again: whether the model's optimiser looks several times at a batch in a step.
    aggregator: how methods that average do it. grade: the share of given labels of the public images [U] that are the
    true ones, which nobody else knows: to be traced, never to learn from; None where they have no true ones.
    """

    layout: Layout
    train: TrainConfig
    seed: int
    rounds: int
    classes: int
    sizes: tuple[int, ...]
    public: int = 0
    drawn: int = 1
    samples: str = "image"
    looks_again: bool = False
    aggregator: Aggregator = Mean()  # noqa: RUF009
    grade: Callable[[Tensor], float] | None = None

    @property
    def clients(self) -> int:
        return len(self.sizes)


@dataclass
class ServerState(Declared):
    """The server half's state, which checkpoints keep; a method adds fields, each with a default.

    Fields hold what private states may hold. params, buffers, counters: what is shared of the global model. round: the
    round under way, from 1; participants: the clients drawn for it, ascending. aggregator: what the aggregator keeps
    from round to round. traces, warnings, traced: of this round, kept by nobody.
    """

    params: Tensor
    buffers: Tensor
    counters: Tensor
    round: int = 0
    participants: list[int] = field(default_factory=list)
    aggregator: dict[str, Any] = field(default_factory=dict)
    traces: dict[tuple[int, str], float] = field(default_factory=dict, init=False)
    warnings: list[str] = field(default_factory=list, init=False)
    traced: bool = field(default=True, init=False)

    def trace(self, name: str, value: float, client: int = -1) -> None:
        """Record a scalar of this round, of a client or, by default, of the server."""
        self.traces[client, name] = float(value)

    def traces_pairs(self, clients: int, rounds: int) -> bool:
        """Whether what so many are to each other is traced: of a few in every round, of many in the last one."""
        return clients <= MOST_PAIRS or (self.round == rounds and clients <= MOST_LAST_PAIRS)

    def warn(self, line: str) -> None:
        """Say a line; of equal ones only the first is said."""
        self.warnings.append(line)

    def remarks(self) -> list[str]:
        """What there was to say since the last time."""
        remarks, self.warnings = self.warnings, []
        return remarks

    def state(self) -> dict[str, Any]:
        """What is kept, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}
