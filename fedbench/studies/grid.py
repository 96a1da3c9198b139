"""A grid: tries every point of a method's space, and runs the best on validation over the seeds, with the baselines.

A baseline is tuned over its own space, with as many points as the method, and runs under the same partitions and seeds,
so that the answer shows whether collaboration pays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedbench.config import Config
from fedbench.config.tuning import Tuning, keywords_of
from fedbench.errors import ConfigError
from fedbench.results.plan import Plan
from fedbench.studies.compared_methods import (
    BASELINES,
    ComparedMethod,
    Methods,
    method_names,
    require_distinct,
)
from fedbench.studies.listed_space import spaces_of
from fedbench.studies.run_studies import StudyWatch, run_studies
from fedbench.studies.space import Space, Values
from fedbench.studies.study_result import StudyResult
from fedbench.studies.tuning_study import TuningStudy
from fedbench.studies.validation_size import require_validation
from fedbench.user_code.files import hash_of


@dataclass(frozen=True)
class GridResult(StudyResult):
    """The result of a grid. best: the chosen candidate of the method, by dotted key.

    `table` has a row per method, evaluation point and choice of the round.
    """

    best: Values
    file: ClassVar[None] = None


@keywords_of(Tuning)
def grid(
    config: Config | Mapping[str, Any],
    *,
    space: Mapping[str, Any] | str | None = None,
    baselines: Methods = BASELINES,
    trials: int | None = None,
    watch: StudyWatch | None = None,
    **tuning: Any,
) -> GridResult:
    """Run a grid, or its missing part, and write its page. Raises ConfigError before the first trial.

    Final runs have the seeds of the configuration, by default 0 to 9. space: values or distributions of Ray Tune by
    key, for the baselines too as far as they have the key, or for one method, `{"local:train.lr": [0.01, 0.1]}`;
    `paper` for the grid of the method's paper; by default each method's own. tuning: the keys of `Tuning`, such as
    tune=6, search="random", samples=12, tune_rounds="full", final_val=0, or until_decided=True, margin=1.
    trials: how many runs go side by side at most, by default as many as fit.

    >>> small = {"method": "fedprox", "rounds": 1, "seeds": [0], "resources": {"hosts": 0}}
    >>> result = grid(small, space={"method.mu": [0.01, 0.1]}, baselines=[], tune_seeds=[90], trials=1)
    >>> list(result.best)
    ['method.mu']
    """
    how = Tuning(**tuning)
    study = plan_grid(Config.of(config), how, space, baselines)
    run_studies([study], trials, watch, how.max_hours)
    return GridResult(study.folder, study.plan.choices[study.plan.subject or ""])


def plan_grid(
    config: Config, tuning: Tuning, space: Mapping[str, Any] | str | None = None, baselines: Methods = BASELINES
) -> TuningStudy:
    """The study of a grid, not run yet. Raises ConfigError."""
    config = tuning.with_final_seeds(config)
    require_validation(config)
    subject = ComparedMethod(config.method.name, config.method.name)
    names = [name for name in method_names(baselines, "baselines") if name != subject.name]
    compared = [subject, *map(ComparedMethod.baseline, names)]
    require_distinct(compared)
    spaces = spaces_of(compared, space, config, subject.label)
    subject = subject.tuned_over(spaces[subject.label], config, tuning.tune, tuning)
    most = len(subject.points) if tuning.search == "grid" else None
    others = [other.tuned_over(spaces[other.label], config, most, tuning) for other in compared[1:]]
    if tuning.stopping_rule is not None and all(other.is_pooled(config) for other in others):
        given = ", ".join(other.name for other in others) or "none"
        raise ConfigError(
            f"baselines = {given}: until_decided needs methods to compare with, and training on pooled data does not "
            "compete; leave --baselines out"
        )
    root = (config.out or Path("results")).absolute()
    name = _name(config, tuning, [(c.label, c.points) for c in (subject, *others)], spaces[subject.label])
    folder = config.out or root / "grid" / (config.name or name)
    plan = Plan("grid", subject.label, config.model_dump(mode="json"), [], **tuning.as_plan())
    return TuningStudy(plan, config, [subject, *others], folder, root, tuning.tune_seeds, tuning.final_val)


def _name(config: Config, tuning: Tuning, tried: Sequence[Any], own: Space) -> str:
    """The folder's name, equal for equal spaces: more samples of one go into the same folder."""
    known = tried if tuning.search == "grid" else (tuning.search, own.as_text())
    digits = hash_of((config.key(), known, tuning.point, tuning.final_val))[:8]
    return f"{config.method.name.rpartition(':')[2]}-{config.data.name.rpartition('/')[2]}-{digits}"
