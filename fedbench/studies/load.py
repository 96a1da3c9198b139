"""Results and models of earlier runs, from their folders."""

from pathlib import Path

from torch import nn

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.models.state_dicts import read_state_dict
from fedbench.results.matrix import is_matrix
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.runtime.build import build_learner
from fedbench.runtime.kept_models import MODELS_FOLDER
from fedbench.studies.compare import Comparison
from fedbench.studies.grid import GridResult
from fedbench.studies.run import Result
from fedbench.studies.study_result import StudyResult


def load(folder: str | Path) -> StudyResult:
    """The result of the run, grid or comparison in a folder. Raises ConfigError if there is none.

    >>> from fedbench import run
    >>> done = run({"method": "local", "rounds": 1, "resources": {"hosts": 0}, "out": "results/mine"})
    >>> load("results/mine").config.method.name
    'local'
    """
    folder = Path(folder)
    if is_matrix(folder):
        return Comparison(folder)
    plan = Plan.read(folder)
    if plan.kind == "grid":
        return GridResult(folder, plan.choices.get(plan.subject or "", {}))
    return Result(folder, Config(**plan.config)) if plan.kind == "run" else Comparison(folder)


def load_model(folder: str | Path, client: int, seed: int | None = None, point: str = "after_agg") -> nn.Module:
    """The personal model of a client, kept by a run with `save_models`, ready to predict.

    seed: by default the run's first. point: after_agg or after_fit. The module is the user's own, with what the
    method has added to it. Its input is normalised as `models/input.json` says. Raises ConfigError if it was not kept.

    >>> from fedbench import run
    >>> done = run({"method": "fedper", "rounds": 1, "resources": {"hosts": 0}, "save_models": True})
    >>> type(load_model(done.folder, client=3)).__name__
    'Mlp'
    """
    folder = Path(folder)
    config = Config(**Records(folder).config())
    seed = config.seeds[0] if seed is None else seed
    kept = folder / MODELS_FOLDER / f"seed-{seed}"
    file = kept / f"client-{client}-{point}.pt"
    if not file.exists():
        known = sorted(path.stem for path in kept.glob("client-*-after_*.pt") if not path.stem.endswith("-trained"))
        there = f"there are {len(known)}, such as {known[0]}" if known else "run it with --save-models"
        raise ConfigError(f"{file}: no model was kept for this client, seed and point; {there}")
    config.resources.hosts = config.resources.gpus_per_host = 0
    learner = build_learner(resolve(config), seed)
    learner.flat.load_state_dict(read_state_dict(file))
    return learner.module.eval()
