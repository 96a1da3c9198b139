"""A grid: every point of a method's space, the best on validation again over the seeds, beside the baselines.

A baseline is tuned over its own space, with as many points as the method, and runs under the same partitions and seeds,
so that the answer can say whether collaboration paid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.results.plan import Plan
from fedbench.studies.contenders import TUNE_SEEDS, Contender, distinct
from fedbench.studies.contest import Contest, asked_with_seeds, hold, legal_point, legal_share, need_validation, unique
from fedbench.studies.execute import Watch
from fedbench.studies.space import Space, Values, check_space

BASELINES = ("local", "centralized", "fedavg-ft")


@dataclass(frozen=True)
class GridResult:
    """What a grid left."""

    folder: Path
    best: Values

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


def grid(
    config: Config,
    *,
    space: dict[str, list[Any]] | None = None,
    baselines: Sequence[str] = BASELINES,
    tune: int | None = None,
    tune_seeds: Sequence[int] = TUNE_SEEDS,
    point: str = "after_agg",
    final_val: float | None = None,
    at_once: int | None = None,
    watch: Watch | None = None,
) -> GridResult:
    """Run a grid, or what is missing of it, and write its page. Raises ConfigError before the first trial.

    Final runs have the seeds of the configuration, by default 0, 1 and 2. tune: at most so many points of each space.
    point: the evaluation point by which points are chosen, and which the answer is about. final_val: share of training
    images that final runs hold out, if another than `data.val`: with 0 they train on all.
    """
    config, point, final_val = asked_with_seeds(config), legal_point(point), legal_share(final_val)
    own = Space(space) if space is not None else Space.of(config.method.name)
    check_space(own.axes)
    need_validation(config)
    subject = Contender(config.method.name, config.method.name).tuned_over(own, config, tune)
    others = [
        Contender.baseline(name).tuned_over(Space.of(name), config, len(subject.points))
        for name in baselines
        if name != subject.method
    ]
    distinct([subject, *others])
    root = (config.out or Path("results")).absolute()
    folder = config.out or root / "grid" / (config.name or _name(config, [subject, *others], (point, final_val)))
    plan = Plan("grid", subject.label, config.model_dump(mode="json"), [], point=point)
    contest = Contest(plan, config, [subject, *others], folder, root, unique(tune_seeds), subject.label, final_val)
    hold([contest], at_once, watch)
    return GridResult(folder, plan.choices[subject.label])


def _name(config: Config, contenders: Sequence[Contender], more: tuple[Any, ...]) -> str:
    told = sha256(repr((config.key(), [(c.label, c.points) for c in contenders], *more)).encode()).hexdigest()[:8]
    return f"{config.method.name.rpartition(':')[2]}-{config.data.name.rpartition('/')[2]}-{told}"
