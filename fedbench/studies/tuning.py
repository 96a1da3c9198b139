"""The options of studies that tune methods, as given by commands and calls."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from numbers import Real
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.race import LOOKS
from fedbench.studies.compared_methods import TUNE_SEEDS
from fedbench.studies.search import Search, is_count

SEEDS = tuple(range(10))
"""Default seeds of final runs: with three, a lead of two points over all others is told in one study of fifty."""

POINTS = ("after_agg", "after_fit")
"""The evaluation points of every method."""


@dataclass(frozen=True)
class Tuning:
    """most: points of each space, if not all; 0: no tuning. seeds: those on which points are tried.

    point: the evaluation point by which points are chosen, and which the answer is about. final_val: share of training
    images that final runs hold out, if not `data.val`. by_steps: whether budgets are equal in gradient steps. race:
    margin and maximum of seeds if they are added until the comparison is decided (`results.race`); hours: the time
    after which no more are added.
    """

    most: int | None = None
    search: Search = field(default_factory=Search)
    seeds: Sequence[int] = TUNE_SEEDS
    point: str = "after_agg"
    final_val: float | None = None
    by_steps: bool = False
    race: Mapping[str, float] | None = None
    hours: float | None = None

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
        until_decided: bool = False,
        margin: float | None = None,
        max_seeds: int | None = None,
        max_hours: float | None = None,
    ) -> "Tuning":
        """From the options of commands and calls. Raises ConfigError."""
        if tune is not None and not (is_count(tune) and tune >= 0):
            raise ConfigError(f"tune = {tune!r}: must be a whole number >= 0, or None for all candidates")
        asked, seeds = Search.parse(search, samples, scheduler, tune), legal_seeds(tune_seeds)
        if tune == 0:
            of_tuning = {"scheduler": scheduler != "none", "tune_seeds": seeds != list(TUNE_SEEDS)}
            given = {"budget_steps": budget_steps, **of_tuning}
            for name in filter(given.get, given):
                why = "without effect with tune = 0, which tries no candidates"
                raise ConfigError(f"{name}: {why}; leave one of them out")
        race = legal_race(until_decided, margin, max_seeds, max_hours)
        if point not in POINTS:
            raise ConfigError(f"point = {point}: must be {' or '.join(POINTS)}")
        return cls(tune, asked, seeds, point, legal_share(final_val), budget_steps, race, max_hours)

    def as_plan(self) -> dict[str, Any]:
        """The entry of a plan."""
        race = None if self.race is None else dict(self.race)
        return dict(point=self.point, search=self.search.kind, scheduler=self.search.scheduler, race=race)

    def with_final_seeds(self, config: Config) -> Config:
        """The configuration with the seeds of final runs: those asked for, or of the first look, or the default.

        Raises ConfigError for seeds of a study that adds them by itself.
        """
        asked = "seeds" in config.model_fields_set
        if self.race is None:
            return config if asked else config.model_copy(update={"seeds": list(SEEDS)})
        first = list(range(LOOKS[0]))
        if asked and config.seeds != first:
            raise ConfigError(
                "seeds: until_decided takes seeds 0, 1, 2, ... by itself; leave them out, or set max_seeds"
            )
        clash = [seed for seed in self.seeds if seed < self.race["most"]]
        if clash:
            raise ConfigError(f"tune_seeds: {clash[0]} is among the final seeds 0 to {self.race['most'] - 1:.0f}")
        return config.model_copy(update={"seeds": first})


def legal_race(
    until_decided: bool, margin: float | None, max_seeds: int | None, max_hours: float | None
) -> dict[str, float] | None:
    """Margin and maximum number of seeds of a study that adds seeds until it is decided. Raises ConfigError."""
    if not until_decided:
        given = [("margin", margin), ("max_seeds", max_seeds), ("max_hours", max_hours)]
        for name, value in given:
            if value is not None:
                raise ConfigError(f"{name} = {value}: without effect unless until_decided; add --until-decided")
        return None
    if margin is None or not (is_real(margin) and 0 <= margin < inf):
        raise ConfigError(
            f"margin{'' if margin is None else f' = {margin}'}: until_decided needs the difference that is too small "
            "to matter, a number >= 0; of accuracies in points, for example --margin 1"
        )
    most = 40 if max_seeds is None else max_seeds
    if most not in LOOKS:
        raise ConfigError(f"max_seeds = {most}: must be one of the looks, {', '.join(map(str, LOOKS))}")
    if max_hours is not None and not (is_real(max_hours) and 0 < max_hours < inf):
        raise ConfigError(f"max_hours = {max_hours}: must be a number > 0")
    return {"margin": float(margin), "most": most}


def is_real(value: Any) -> bool:
    """Whether a value is a number, also of NumPy."""
    return isinstance(value, Real) and not isinstance(value, bool)


def legal_seeds(seeds: Sequence[int]) -> list[int]:
    """The seeds, if valid. Raises ConfigError."""
    try:
        return Config(seeds=list(seeds) if isinstance(seeds, Iterable) else seeds).seeds
    except ConfigError as error:
        raise ConfigError(f"tune_{error}") from None


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
