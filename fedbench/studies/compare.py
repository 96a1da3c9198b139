"""Many methods under one protocol: the same partitions, start weights, batches and budget of tuning for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config import Config
from fedbench.results.plan import Plan
from fedbench.studies.contenders import TUNE_SEEDS, Contender, distinct
from fedbench.studies.contest import Contest, asked_with_seeds, legal_point, legal_share, need_validation, unique
from fedbench.studies.execute import Watch
from fedbench.studies.space import Space

ALWAYS = ("local", "centralized", "fedavg-ft")
"""Without them a table says nothing about collaboration."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison left. The table is read when it is asked for."""

    folder: Path

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row per method, the best first, as `table.csv` holds it."""
        return pd.read_csv(self.folder / "table.csv")


def compare(
    config: Config,
    methods: Sequence[str],
    *,
    tune: int | None = None,
    tune_seeds: Sequence[int] = TUNE_SEEDS,
    point: str = "after_agg",
    final_val: float | None = None,
    at_once: int | None = None,
    watch: Watch | None = None,
) -> Comparison:
    """Run a comparison, or what is missing of it, and write its page and tables. Raises ConfigError before any run.

    methods: `NAME`, `NAME:key=value,...` for a variant, or `package.module:Class`; local, centralized and fedavg-ft are
    always there. tune: points that are tried of each method's space, 0 for its defaults, by default as many as the
    smallest space has. point, final_val: as of a grid. Final runs have the seeds of the configuration, by default 0, 1
    and 2.
    """
    config, point, final_val = asked_with_seeds(config), legal_point(point), legal_share(final_val)
    asked = [Contender.named(text) for text in methods]
    distinct(asked)
    named = [contender.label for contender in asked]
    entrants = [*asked, *(Contender(name, name) for name in ALWAYS if name not in named)]
    if tune != 0:
        need_validation(config)
        whole = [entrant.tuned_over(Space.of(entrant.method), config, None) for entrant in entrants]
        most = tune or min(len(entrant.points) for entrant in whole)
        entrants = [entrant.tuned_over(Space.of(entrant.method), config, most) for entrant in entrants]
    root = (config.out or Path("results")).absolute()
    folder = config.out or root / "compare" / (config.name or _name(config, entrants, (point, final_val)))
    plan = Plan("compare", None, config.model_dump(mode="json"), [], point=point)
    contest = Contest(plan, entrants, folder, root, unique(tune_seeds), config.seeds, final_val=final_val)
    contest.hold(config, at_once, watch)
    return Comparison(folder)


def _name(config: Config, entrants: Sequence[Contender], more: tuple[Any, ...]) -> str:
    told = sha256(repr((config.key(), [(e.label, e.points) for e in entrants], *more)).encode()).hexdigest()[:8]
    return f"{len(entrants)}-methods-{config.data.name.rpartition('/')[2]}-{told}"
