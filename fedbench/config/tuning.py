"""How `grid` and `compare` tune methods and how many seeds they judge them by: the section `tuning`.

None of it is part of what a run is known by. Each field is a flag of both commands and a keyword of both functions.
"""

from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature
from itertools import count, islice
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import Field, field_validator, model_validator

from fedbench.config.schema import Config
from fedbench.config.section import PositiveInt, RootSection, Seed, distinct, plain
from fedbench.errors import ConfigError

Look = Literal[5, 8, 12, 18, 27, 40, 60, 90]
LOOKS: tuple[int, ...] = get_args(Look)
"""Numbers of seeds after which a study that adds seeds is judged."""
MOST_SEEDS = 40
"""The default maximum of seeds of such a study."""
Point = Literal["after_agg", "after_fit"]
POINTS: tuple[Point, ...] = get_args(Point)
"""The evaluation points of every method."""
SEEDS = tuple(range(10))
"""Default seeds of final runs: with three, a two-point lead over all others is detected in 1 study of 50."""
TUNE_SEEDS = (90, 91, 92)
"""Seeds for tuning, never among the final ones, so that nothing is chosen on reported results.

With one, the chosen points of methods differ by luck as much as their scores over five final seeds.
"""
F = TypeVar("F", bound=Callable[..., Any])


class Tuning(RootSection):
    """How a grid tunes its methods, and how many seeds it judges them by.

    >>> Tuning(search="random", samples=12).samples
    12
    """

    tune: PositiveInt | None = Field(None, description="maximum number of candidates of each method's space; none: all")
    search: Literal["grid", "random", "optuna"] = Field(
        "grid", description="search method: all of a grid, random candidates, or Optuna's proposals"
    )
    samples: PositiveInt | None = Field(
        None, description="number of candidates of each method's space for random or optuna"
    )
    tune_rounds: Literal["halving", "full"] = Field(
        "halving",
        description="halving: on the first tuning seed, the better half of a method's candidates goes on after half of "
        "the rounds; full: all run to the end",
    )
    tune_seeds: list[Seed] = Field(
        list(TUNE_SEEDS), min_length=1, description="seeds for tuning, different from the final ones"
    )
    point: Point = Field("after_agg", description="evaluation point for choosing candidates and for the answer")
    final_val: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="share of training samples held out in final runs; 0: train on all; none: data.val"
    )
    until_decided: bool = Field(
        False,
        description="add seeds until it is decided who is best and who is better than local training; needs --margin",
    )
    margin: Annotated[float, Field(ge=0)] | None = Field(
        None,
        description="difference that is too small to matter, for --until-decided; in points of accuracy, or in the "
        "metric's unit",
    )
    max_seeds: Look | None = Field(None, description=f"maximum number of seeds for --until-decided; none: {MOST_SEEDS}")
    max_hours: Annotated[float, Field(gt=0)] | None = Field(
        None, description="hours after which --until-decided adds no seeds; none: no limit"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _without_numpy(cls, value: Any) -> Any:
        return list(value) if isinstance(value := plain(value), Iterable) and not isinstance(value, str) else value

    _distinct = field_validator("tune_seeds")(distinct)

    @model_validator(mode="after")
    def _fit_together(self) -> "Tuning":
        """Raises ConfigError for keys that have no effect with others, or lack others."""
        if self.search == "grid" and self.samples is not None:
            raise ConfigError(
                f"samples = {self.samples}: a grid has the candidates that its space lists; give --search random or "
                "optuna, or --tune N for some of a grid"
            )
        if self.search != "grid" and self.samples is None:
            raise ConfigError(
                f"search = {self.search}: how many candidates? give --samples N, for example --samples 12"
            )
        if self.search != "grid" and self.tune is not None:
            raise ConfigError(
                f"tune = {self.tune}: limits a grid's candidates; with --search {self.search} give --samples alone"
            )
        for key in ("margin", "max_seeds", "max_hours") if not self.until_decided else ():
            if (value := getattr(self, key)) is not None:
                raise ConfigError(f"{key} = {value:g}: without effect unless until_decided; add --until-decided")
        if self.until_decided and self.margin is None:
            raise ConfigError(
                "margin: until_decided needs the difference that is too small to matter, a number >= 0; of accuracies "
                "in points, for example --margin 1"
            )
        return self

    @property
    def stopping_rule(self) -> dict[str, float] | None:
        """Margin and maximum number of seeds if seeds are added until the study is decided."""
        if self.margin is None:
            return None
        return {"margin": self.margin, "most": self.max_seeds or MOST_SEEDS}

    def as_plan(self) -> dict[str, Any]:
        """The entries of plan.json."""
        return dict(
            point=self.point, search=self.search, tune_rounds=self.tune_rounds, stopping_rule=self.stopping_rule
        )

    def with_final_seeds(self, config: Config) -> Config:
        """The configuration with the seeds of final runs: those that are set, or of the first look, or the default.

        Raises ConfigError for seeds of a study that adds them by itself.
        """
        are_set = "seeds" in config.model_fields_set
        if self.stopping_rule is None:
            return config if are_set else config.model_copy(update={"seeds": list(SEEDS)})
        first = list(range(LOOKS[0]))
        if are_set and config.seeds != first:
            raise ConfigError(
                "seeds: until_decided takes seeds 0, 1, 2, ... by itself; leave them out, or set max_seeds"
            )
        clash = [seed for seed in self.tune_seeds if seed < self.stopping_rule["most"]]
        if clash:
            raise ConfigError(
                f"tune_seeds: {clash[0]} is among the final seeds 0 to {self.stopping_rule['most'] - 1:.0f}"
            )
        return config.model_copy(update={"seeds": first})


class ComparisonTuning(Tuning):
    """How a comparison tunes its methods, and how many seeds it judges them by."""

    tune: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="number of candidates of each method's space to try; 0: its defaults; none: as many as the "
        "smallest space has",
    )
    budget_steps: bool = Field(
        False,
        description="give methods with more gradient steps fewer candidates, so that candidates times steps are about "
        "equal",
    )

    @model_validator(mode="after")
    def _tunes_something(self) -> "ComparisonTuning":
        """Raises ConfigError for keys of tuning where nothing is tuned."""
        untuned = self.tune == 0
        for key in ("budget_steps", "tune_rounds", "tune_seeds") if untuned else ():
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ConfigError(
                    f"{key}: without effect with tune = 0, which tries no candidates; leave one of them out"
                )
        return self

    def as_plan(self) -> dict[str, Any]:
        """The entries of plan.json."""
        return super().as_plan() | {"by_steps": self.budget_steps}


def check_tune_seeds(tune_seeds: Sequence[int], seeds: Sequence[int]) -> None:
    """Raises ConfigError for seeds of tuning that are also final ones."""
    if clash := sorted(set(tune_seeds) & set(seeds)):
        free = islice((seed for seed in count(TUNE_SEEDS[0]) if seed not in seeds), len(tune_seeds))
        raise ConfigError(
            f"tune_seeds: {', '.join(map(str, clash))} is also a final seed, so that the choice would use reported "
            f"results; use others, for example --tune-seeds {' '.join(map(str, free))}"
        )


def keywords_of(section: type[RootSection]) -> Callable[[F], F]:
    """Shows the keys of a section in a function's signature in place of `**keywords`, for help and notebooks."""

    def show(function: F) -> F:
        known = signature(function)
        own = [one for one in known.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        keys = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
            for name, field in section.model_fields.items()
        ]
        function.__signature__ = known.replace(parameters=[*own, *keys])  # type: ignore[attr-defined]
        return function

    return show
