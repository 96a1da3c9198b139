"""Results and models of earlier runs, from their folders."""

import logging
from numbers import Integral
from pathlib import Path

from torch import nn

from fedbench.config import Config
from fedbench.engine.learner import Learner
from fedbench.errors import ConfigError
from fedbench.jobs import provenance
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_state import changes_since
from fedbench.models.state_dicts import read_state_dict
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.results.settings_file import is_matrix
from fedbench.runtime.build import build_learner
from fedbench.runtime.kept.model_folder import transfer_hooks
from fedbench.runtime.kept.paths import GLOBAL, MODELS_FOLDER, SHARED, base_file, client_folder
from fedbench.runtime.resolved import ResolvedRun
from fedbench.studies.compare import Comparison
from fedbench.studies.grid import GridResult
from fedbench.studies.run import Result
from fedbench.studies.study_result import StudyResult

log = logging.getLogger("fedbench")


def load(folder: str | Path) -> StudyResult:
    """The result of the run, grid or comparison in a folder. Raises ConfigError if there is none.

    >>> from fedbench import run
    >>> done = run({"method": "local", "rounds": 1, "resources": {"hosts": 0}, "out": "results/mine"})
    >>> load("results/mine").config.method.name
    'local'
    """
    folder = folder_of_results(folder)
    if is_matrix(folder):
        return Comparison(folder)
    plan = Plan.read(folder)
    if plan.kind == "grid":
        return GridResult(folder, plan.choices.get(plan.subject or "", {}))
    return Result(folder, Config(**plan.config)) if plan.kind == "run" else Comparison(folder)


def load_model(folder: str | Path, client: int | str, seed: int | None = None, point: str = "after_agg") -> nn.Module:
    """The personal model of a client, or the `"global"` model, kept by a run with `save_models`, ready to predict.

    seed: by default the run's first. point: after_agg or after_fit. The module is the user's own, with what the
    method has added to it. Its input is normalised as `model.json` beside the weights says. Warns if the module's code
    has changed since the run, and of hooks that the run calls on samples before it. Raises ConfigError if it was not
    kept.

    >>> from fedbench import run
    >>> done = run({"method": "fedper", "rounds": 1, "resources": {"hosts": 0}, "save_models": True})
    >>> type(load_model(done.folder, client=3)).__name__
    'Mlp'
    """
    module = kept_learner(folder_of_results(folder), client, seed, point)[1].module
    if reason := transfer_hooks(module):
        log.warning("%s: call them before it, on batches of samples and targets", reason)
    return module.eval()


def folder_of_results(given: str | Path) -> Path:
    """The absolute path, also after a change of the current folder. Raises ConfigError for another type."""
    if not isinstance(given, str | Path):
        hint = "; pass its .folder" if isinstance(given, StudyResult) else ""
        raise ConfigError(f"folder = {given!r:.80}: must be the path of a folder of results{hint}")
    return Path(given).expanduser().absolute()


def kept_learner(folder: Path, client: int | str, seed: int | None, point: str) -> tuple[ResolvedRun, Learner]:
    """A run with the model of a client, and its learner with the kept weights.

    Warns if the code of the model has changed since. Raises ConfigError if no weights were kept.
    """
    if client != GLOBAL and not str(client).isdecimal():
        raise ConfigError(f"client = {client!r}: must be the number of a client, such as 3, or '{GLOBAL}'")
    if point not in ("after_agg", "after_fit"):
        raise ConfigError(f"point = {point!r}: must be after_agg or after_fit")
    config = Config(**Records(folder).config())
    seed = config.seeds[0] if seed is None else seed
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ConfigError(f"seed = {seed!r}: must be a whole number, as {config.seeds[0]}")
    if seed not in config.seeds:
        known = ", ".join(map(str, config.seeds))
        raise ConfigError(f"seed = {seed}: {folder} has no run of this seed; choose among its seeds: {known}")
    kept = folder / MODELS_FOLDER / f"seed-{seed}"
    name = GLOBAL if client == GLOBAL else client_folder(int(client))
    file = kept / name / f"{point}.safetensors"
    if not file.exists():
        beside = _kept_beside(kept, config)
        raise ConfigError(f"{file}: no model was kept for this client, seed and evaluation point; {beside}")
    config.resources.hosts = config.resources.gpus_per_host = 0
    whole = resolve(config)
    names = whole.config.model.names
    run = whole.with_model(names[0 if client == GLOBAL else int(client) % len(names)])
    learner, base = build_learner(run, seed), kept / base_file(whole.config, run.config.model.name)
    if since := _changes_of_model(folder, config, learner):
        name = run.config.model.name
        log.warning("%s: the kept weights of model %s are used all the same, by the code of now", since, name)
    tensors = [read_state_dict(path) for path in ([base, file] if base.exists() else [file])]
    learner.flat.load_state_dict({key: tensor for own in tensors for key, tensor in own.items()})
    return run, learner


def _changes_of_model(folder: Path, config: Config, learner: Learner) -> str:
    """The changes of the user's code for a model since its run, in words; empty if there are none.

    The method counts if it adds layers, which its code builds.
    """
    sections = {"model": config.model} | ({"method": config.method} if learner.flat.added else {})
    of_model = Config().model_copy(update=sections)
    if not provenance.user_names(of_model):
        return ""
    provenance.refresh_fingerprints(of_model)
    return changes_since(folder, of_model)


def _kept_beside(kept: Path, config: Config) -> str:
    """What there is instead of a missing model."""
    known = sorted(f"{path.parent.name} {path.stem}" for path in kept.glob("*/after_*.safetensors"))
    if known := [name for name in known if not name.startswith(SHARED)]:
        return f"there are {len(known)}, such as {known[0]}"
    if config.save_models and not Records(kept.parent.parent).summary().get("complete"):
        return "the run is not finished: repeat its command"
    return "the warnings in summary.json say why" if config.save_models else "run it with --save-models"
