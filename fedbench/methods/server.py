"""The context of a run, shared by both halves of a method, and the state of the server half."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor
from typing_extensions import TypeVar

from fedbench.aggregation.aggregator import Aggregator
from fedbench.aggregation.rules.mean import Mean
from fedbench.config import TrainConfig
from fedbench.methods.state import DeclaredFields
from fedbench.module import seeds
from fedbench.module.layout import Layout
from fedbench.module.masks import Entries
from fedbench.module.weights import Weights

MOST_PAIRS, MOST_LAST_PAIRS = 20, 200
"""Largest number of clients whose pairs are traced in every round, and in the last one."""
UNSET = torch.empty(0)
"""Placeholder of a tensor that `Method.start` sets."""


@dataclass(frozen=True)
class Context:
    """Facts of a run that both halves know.

    method: its name. sizes: training images per client; public: public images; planned_rounds: T, which methods read as
    `rounds`; participants_per_round: participants of a round; newcomers: clients that join after the last. samples:
    image, feature or token; sample_shape: of one, () if it is not known; optimizer_reevaluates: whether the model's
    optimiser evaluates a batch several times per step; private_steps: whether gradients are made private (privacy.level
    = sample); changes_uploads: the setting that changes uploads on their way, with its value. aggregator: used by
    methods that average. draw_model: another initial model by the model's own initialisation with a seed; the run's is
    that of `seed`. label_accuracy: the share of the given labels of the public images [U] that are true, for traces
    only, never for learning; None if the images have no true labels.
    """

    layout: Layout
    train: TrainConfig
    seed: int
    planned_rounds: int
    classes: int
    sizes: tuple[int, ...]
    public: int = 0
    method: str = "the method"
    participants_per_round: int = 1
    newcomers: int = 0
    samples: str = "image"
    sample_shape: tuple[int, ...] = ()
    optimizer_reevaluates: bool = False
    private_steps: bool = False
    changes_uploads: str = ""
    aggregator: Aggregator = Mean()  # noqa: RUF009
    draw_model: Callable[[int], Weights] | None = None
    label_accuracy: Callable[[Tensor], float] | None = None
    _reads: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """`rounds`, once it was read."""

    def generator(self, round: int, client: int, purpose: str) -> torch.Generator:
        """A random generator for (seed, client, round, purpose); client -1 for draws that are nobody's own."""
        return seeds.generator(self.seed, client, round, purpose)

    def start_models(
        self, initial: Weights, count: int, jitter: float | None = None, part: Entries | None = None
    ) -> list[Weights]:
        """Initial models of a method that has several: the run's, then others by the seeds that follow.

        jitter: None: by the model's own initialisation; else the run's plus this much standard normal noise. part: of
        the parameters, in which they differ; None: all.
        """
        start = initial.params if part is None else part.take(initial.params)
        models = [initial]
        for seed in range(self.seed + 1, self.seed + count):
            if jitter is None:
                assert self.draw_model is not None
                params = self.draw_model(seed).params
                drawn = params if part is None else part.take(params)
            else:
                stream = torch.Generator().manual_seed(seed)
                drawn = start + jitter * torch.randn(len(start), generator=stream, dtype=start.dtype).to(start.device)
            models.append(initial.replace(params=drawn if part is None else part.put(initial.params, drawn)))
        return models

    @property
    def clients(self) -> int:
        return len(self.sizes)

    @property
    def rounds(self) -> int:
        """T. A run that reads it cannot be given more rounds later; `is_last` is better."""
        self._reads.add("rounds")
        return self.planned_rounds

    def is_last(self, round: int) -> bool:
        """Whether a round is the last. If it is not, it would not be in a longer run either, so nothing is noted."""
        return round >= self.planned_rounds and round >= self.rounds

    @property
    def uses_rounds(self) -> bool:
        """Whether results so far may depend on the number of rounds, because it was read."""
        return "rounds" in self._reads

    @contextmanager
    def allow_rounds(self) -> Iterator[None]:
        """A block in which the number of rounds may be read, because no result depends on it."""
        before = set(self._reads)
        try:
            yield
        finally:
            self._reads.intersection_update(before)


@dataclass
class ServerState(DeclaredFields):
    """The server half's state, saved in checkpoints; a method adds fields, each with a default.

    Fields may hold the types of private states. params, buffers, counters: the shared part of the global model. round:
    the current round, from 1; participants: the clients sampled for it, ascending. aggregator: the aggregator's state.
    traces, warnings, traced: of this round, not saved.
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
    empty_like: Callable[[Tensor], Tensor] = field(default=torch.empty_like, init=False)
    """Allocates a tensor that is sent to clients: where hosts read it, so that it is in memory once."""

    def set_model(self, shared: Weights) -> None:
        """Sets the shared part of the global model."""
        self.params, self.buffers, self.counters = shared.params, shared.buffers, shared.counters

    def trace(self, name: str, value: float, client: int = -1) -> None:
        """Records a scalar of this round for a client or, by default, for the server."""
        self.traces[client, name] = float(value)

    def traces_pairs(self, clients: int, context: Context) -> bool:
        """Whether pairs of so many clients are traced: of a few in every round, of many in the last one."""
        return clients <= MOST_PAIRS or (clients <= MOST_LAST_PAIRS and context.is_last(self.round))

    def warn(self, line: str) -> None:
        """Warns with a line; equal lines are shown once."""
        self.warnings.append(line)

    def mark_degenerate(self, reason: str) -> None:
        """Says that the method is not at work in this round, and why: a trace, and a line that is shown once."""
        self.trace("degenerate", 1)
        self.warn(f"degenerate: {reason}")

    def remarks(self) -> list[str]:
        """Returns the warnings since the last call."""
        remarks, self.warnings = self.warnings, []
        return remarks

    def state(self) -> dict[str, Any]:
        """The saved fields, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}


ServerT = TypeVar("ServerT", bound=ServerState, default=ServerState)
