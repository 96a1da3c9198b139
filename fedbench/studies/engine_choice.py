"""Chooses the engine of a study's runs: compiled steps take seconds to begin, and are many times faster afterwards."""

import torch

from fedbench import processor
from fedbench.config import Config
from fedbench.engine.compiled import Compiled, is_worth_compiling
from fedbench.results.plan import Plan, is_study
from fedbench.studies.cost import Cost, learner_on
from fedbench.studies.tuning_study import TuningStudy

LEAST_STEPS = 30_000
"""Gradient steps of a method in all its runs from which its compiled steps save more time than their compilation takes.

A compiled step of a tiny model saves some 0.5 ms. With two processes, a method's functions take some 20 s to compile,
which 40,000 steps save; seeds that a test adds later are not counted here.
"""


def choose_engine(study: TuningStudy) -> None:
    """Sets the engine of all runs of a study where the configuration leaves it open, and notes it in the plan.

    A study that is continued keeps its engine, so that its runs go on to the bit. Raises ConfigError.
    """
    if study.config.train.engine != "auto":
        return
    known = known_engine(study)
    if known == "compiled" or (known is None and can_compile(study.config) and _has_many_steps(study)):
        study.set_engine("compiled")


def known_engine(study: TuningStudy) -> str | None:
    """The engine in the plan of an earlier command in this folder; None if it had other settings."""
    if not is_study(study.folder):
        return None
    before, now = Config(**Plan.read(study.folder).config), study.config.model_copy(deep=True)
    now.train.engine = before.train.engine
    return before.train.engine if before.key() == now.key() else None


def can_compile(config: Config) -> bool:
    """Whether the run's models are tiny, on a processor with a compiler. Raises ConfigError."""
    has_gpu = torch.cuda.is_available() and config.resources.gpus_per_host != 0
    if has_gpu or not processor.compiler() or config.train.batch_size == "full" or config.train.accumulate > 1:
        return False
    cost = Cost.of(config)
    for one in cost.models:
        learner, data = learner_on(one, cost.dataset, cost.batch)
        x, _ = data.batch(torch.arange(len(data)))
        hooked = learner.engine.hooks is not None and bool(learner.engine.hooks.calls)
        if hooked or not isinstance(x, torch.Tensor) or learner.engine.optimizer not in Compiled.optimizers:
            return False
        with learner.evaluator.evaluating(learner.initial()):
            if not is_worth_compiling(learner.module, x):
                return False
    return True


def _has_many_steps(study: TuningStudy) -> bool:
    """Whether the methods' runs make enough steps on average."""
    steps = 0
    for method in study.compared:
        points = study.points[method.label]
        runs = len(method.seeds or study.config.seeds) + (len(points) if method.tuned else 0)
        steps += runs * Cost.of(method.config(study.config, points[0])).steps
    return steps >= LEAST_STEPS * len(study.compared)
