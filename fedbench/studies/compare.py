"""Many methods under one protocol: the same partitions, start weights, batches and budget of tuning for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config import Config
from fedbench.config.keys import flat, nested
from fedbench.errors import ConfigError
from fedbench.results.matrix import Matrix, Setting, settings_of
from fedbench.results.plan import Plan, text_of
from fedbench.studies import folder as places
from fedbench.studies.contenders import TUNE_SEEDS, Contender, distinct
from fedbench.studies.contest import Contest, asked_with_seeds, hold, legal_point, legal_share, need_validation, unique
from fedbench.studies.execute import Watch
from fedbench.studies.space import Space

ALWAYS = ("local", "centralized", "fedavg-ft")
"""Without them a table says nothing about collaboration."""
SETTINGS = ("data", "partition", "public", "model", "train", "rounds", "participation")
"""Sections and keys of which settings are made."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison left. The table is read when it is asked for."""

    folder: Path

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @cached_property
    def table(self) -> pd.DataFrame:
        """As `table.csv` holds it: a row per method, the best first; over settings, one per method and setting."""
        return pd.read_csv(self.folder / "table.csv")


def compare(
    config: Config,
    methods: Sequence[str],
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    tune: int | None = None,
    tune_seeds: Sequence[int] = TUNE_SEEDS,
    point: str = "after_agg",
    final_val: float | None = None,
    at_once: int | None = None,
    watch: Watch | None = None,
) -> Comparison:
    """Run a comparison, or what is missing of it, and write its page and tables. Raises ConfigError before any run.

    methods: `NAME`, `NAME:key=value,...` for a variant, or `package.module:Class`; local, centralized and fedavg-ft are
    always there. over: values by key, `{"partition.alpha": [0.1, 0.5]}`: the comparison is made in every combination.
    tune: points that are tried of each method's space, 0 for its defaults, by default as many as the smallest space
    has. point, final_val: as of a grid. Final runs have the seeds of the configuration, by default 0, 1 and 2.
    """
    config = asked_with_seeds(config)
    root = (config.out or Path("results")).absolute()
    contenders = [Contender.named(text) for text in methods]
    asked = Asked(contenders, tune, unique(tune_seeds), root, legal_point(point), legal_share(final_val))
    distinct(asked.contenders)
    folder = config.out or root / "compare" / (config.name or _name(config, asked, over or {}))
    if not over:
        hold([asked.contest(config, folder)], at_once, watch)
        return Comparison(folder)
    check_over(over)
    matrix = Matrix(
        config.model_dump(mode="json"), {key: list(values) for key, values in over.items()}, settings_of(over)
    )
    contests = [asked.contest(inside(config, s), folder / s.path, s.name) for s in matrix.settings]
    with places.made(folder):
        hold(contests, at_once, watch)
        matrix.write(folder)
    from fedbench.report import make_report

    make_report(folder)
    return Comparison(folder)


@dataclass(frozen=True)
class Asked:
    """What is compared in every setting, and how it is tuned."""

    contenders: Sequence[Contender]
    tune: int | None
    tune_seeds: Sequence[int]
    root: Path
    point: str = "after_agg"
    final_val: float | None = None

    def contest(self, config: Config, folder: Path, setting: str = "") -> Contest:
        """The comparison in one setting. Raises ConfigError."""
        named = [contender.label for contender in self.contenders]
        entrants = [*self.contenders, *(Contender.baseline(name) for name in ALWAYS if name not in named)]
        if self.tune != 0:
            need_validation(config)
            whole = [entrant.tuned_over(Space.of(entrant.method), config, None) for entrant in entrants]
            most = self.tune or min(len(entrant.points) for entrant in whole)
            entrants = [entrant.tuned_over(Space.of(entrant.method), config, most) for entrant in entrants]
        plan = Plan("compare", None, config.model_dump(mode="json"), [], point=self.point)
        return Contest(plan, config, entrants, folder, self.root, self.tune_seeds, None, self.final_val, setting)


def inside(config: Config, setting: Setting) -> Config:
    """What is asked, in a setting. Raises ConfigError."""
    try:
        return Config(**nested({**flat(config.model_dump(mode="json", exclude_unset=True)), **setting.values}))
    except ConfigError as error:
        raise ConfigError(f"over: {error}") from None


def check_over(over: Mapping[str, Sequence[Any]]) -> None:
    """Raises ConfigError for keys that say nothing about a setting, and for values that are no two settings."""
    for key, values in over.items():
        if key.partition(".")[0] not in SETTINGS:
            raise ConfigError(
                f"over: {key}: settings are combinations of data, partition, public, model, train, rounds and "
                "participation; methods go into --methods, as NAME:key=value where they vary"
            )
        if len(set(map(text_of, values))) < max(2, len(values)):
            raise ConfigError(f"over: {key} = {list(values)}: must be two or more different values; give each once")


def _name(config: Config, asked: Asked, over: Mapping[str, Sequence[Any]]) -> str:
    names = [(contender.label, contender.fixed) for contender in asked.contenders]
    known = config.key(), names, asked.tune, asked.point, asked.final_val, dict(over)
    told = sha256(repr(known).encode()).hexdigest()[:8]
    where = f"{len(settings_of(over))}-settings" if over else config.data.name.rpartition("/")[2]
    return f"{len(names)}-methods-{where}-{told}"
