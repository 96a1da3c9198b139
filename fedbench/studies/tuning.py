"""The options of studies that tune methods, as given by commands and calls."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.studies.compared_methods import TUNE_SEEDS
from fedbench.studies.search import Search

SEEDS = (0, 1, 2)
"""Default seeds of final runs."""


@dataclass(frozen=True)
class Tuning:
    """most: points of each space, if not all; 0: no tuning. seeds: those on which points are tried.

    point: the evaluation point by which points are chosen, and which the answer is about. final_val: share of training
    images that final runs hold out, if not `data.val`. by_steps: whether budgets are equal in gradient steps.
    """

    most: int | None = None
    search: Search = field(default_factory=Search)
    seeds: Sequence[int] = TUNE_SEEDS
    point: str = "after_agg"
    final_val: float | None = None
    by_steps: bool = False

    @classmethod
    def parse(
        cls,
        tune: int | None = None,
        search: str = "grid",
        samples: int | None = None,
        scheduler: str = "none",
        tune_seeds: Sequence[int] = TUNE_SEEDS,
        point: str = "after_agg",
        final_val: float | None = None,
        budget_steps: bool = False,
    ) -> "Tuning":
        """From the options of commands and calls. Raises ConfigError."""
        asked = Search.parse(search, samples, scheduler, tune)
        return cls(tune, asked, legal_seeds(tune_seeds), legal_point(point), legal_share(final_val), budget_steps)

    def as_plan(self) -> dict[str, Any]:
        """The entry of a plan."""
        return dict(point=self.point, search=self.search.kind, scheduler=self.search.scheduler)


def with_final_seeds(config: Config) -> Config:
    """The configuration with the seeds of final runs, by default three."""
    return config if "seeds" in config.model_fields_set else config.model_copy(update={"seeds": list(SEEDS)})


def legal_seeds(seeds: Sequence[int]) -> list[int]:
    """The seeds, if valid. Raises ConfigError."""
    try:
        return Config(seeds=list(seeds)).seeds
    except ConfigError as error:
        raise ConfigError(f"tune_{error}") from None


def legal_point(name: str) -> str:
    """The name, if it is an evaluation point of every method. Raises ConfigError."""
    if name not in ("after_agg", "after_fit"):
        raise ConfigError(f"point = {name}: must be after_agg or after_fit")
    return name


def legal_share(value: float | None) -> float | None:
    """The share of held-out images, if valid. Raises ConfigError."""
    try:
        return None if value is None else Config(data={"val": value}).data.val
    except ConfigError as error:
        raise ConfigError(str(error).replace("data.val", "final_val", 1)) from None


def require_validation(config: Config, study: str = "a grid", instead: str = "") -> None:
    """Raises ConfigError if there is no validation split. instead: an alternative for the message."""
    if not config.data.val:
        raise ConfigError(
            f"data.val = 0: {study} chooses on the validation split; set one, for example --data.val 0.1{instead}"
        )
