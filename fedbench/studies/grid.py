"""A grid: every point of a method's space once, the best on validation again over the seeds, beside the baselines.

The baselines are tuned over the same `train.*` values on the same seed, and run under the same partitions and seeds,
so that the answer can say whether collaboration paid.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.config.keys import flat, nested
from fedbench.errors import ConfigError
from fedbench.results.plan import Plan, text_of
from fedbench.studies import folder as places
from fedbench.studies.execute import Watch, execute, room_for
from fedbench.studies.job import Job, Outcome
from fedbench.studies.resolve import check, resolve
from fedbench.tasks import Metric, load

BASELINES = ("local", "centralized", "fedavg-ft")
SEEDS = (0, 1, 2)
SEARCHED = ("method.", "train.")
Values = dict[str, Any]


@dataclass(frozen=True)
class GridResult:
    """What a grid left."""

    folder: Path
    best: Values

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


def load_space(method: str) -> tuple[dict[str, list[Any]], Callable[[Values], bool] | None]:
    """SPACE and CONSTRAINT of tune_spaces/<method>.py. Raises ConfigError where there is none."""
    name = method.rpartition(":")[2].replace("-", "_").lower()
    try:
        module = import_module(f"tune_spaces.{name}")
    except ModuleNotFoundError:
        raise ConfigError(
            f"no space for method {method}: write tune_spaces/{name}.py with SPACE = {{key: [values]}}, or give "
            "--space KEY=V1,V2,..."
        ) from None
    return module.SPACE, getattr(module, "CONSTRAINT", None)


def check_space(space: dict[str, list[Any]]) -> None:
    """Raises ConfigError where points would not be different runs on the data, model and seeds of the baselines."""
    for key, values in space.items():
        if not key.startswith(SEARCHED) or key == "method.name":
            raise ConfigError(
                f"space: {key}: a grid searches keys of method.* and train.*, all else is the same for its points and "
                f"baselines; leave it out, or set one value with --{key}"
            )
        if not values or len(set(map(text_of, values))) < len(values):
            raise ConfigError(f"space: {key} = {values}: must be one or more different values; give each once")


def grid(
    config: Config,
    *,
    space: dict[str, list[Any]] | None = None,
    baselines: Sequence[str] = BASELINES,
    final_seeds: Sequence[int] = SEEDS,
    at_once: int | None = None,
    watch: Watch | None = None,
) -> GridResult:
    """Run a grid, or what is missing of it, and write its page. Raises ConfigError before the first trial."""
    watch = watch or (lambda outcomes, running: None)
    constraint = None
    if space is None:
        space, constraint = load_space(config.method.name)
    check_space(space)
    final_seeds = Config(seeds=list(final_seeds)).seeds
    space = _without_fixed(space, config)
    baselines = [name for name in baselines if name != config.method.name]
    if not config.data.val:
        raise ConfigError(
            "data.val = 0: a grid chooses on the validation split; leave some, for example --data.val 0.1"
        )
    root = (config.out or Path("results")).absolute()
    folder = config.out or root / "grid" / (config.name or _name(config, space))
    points = {config.method.name: _points(space, constraint)}
    points |= {name: _points({k: v for k, v in space.items() if k.startswith("train.")}, None) for name in baselines}
    jobs = [_candidate(config, label, values, folder, root) for label in points for values in points[label]]
    with places.made(folder):
        dataset = resolve(jobs[0].config)[1]
        check(jobs[0].config, dataset)
        board = Board(folder, Plan("grid", config.method.name, config.model_dump(mode="json"), [], space), watch)
        with room_for(jobs), places.alone_in(folder):
            _run(board, jobs, list(points), final_seeds, root, at_once, load(dataset.task).primary)
    _page(folder)
    return GridResult(folder, board.plan.choices[config.method.name])


def _run(
    board: "Board",
    jobs: list[Job],
    labels: list[str],
    seeds: Sequence[int],
    root: Path,
    at_once: int | None,
    metric: Metric,
) -> None:
    """Both stages, and the choice between them. Raises ConfigError where no point of the subject finished."""
    scratch = board.folder / ".tune"
    board.add(jobs)
    outcomes = execute(jobs, scratch, at_once, board.told)
    best = {label: job for label in labels if (job := _best(board, jobs, label, metric))}
    if labels[0] not in best:
        failed = next((o.error for o in outcomes.values() if o.error), "no trial finished")
        raise ConfigError(f"every trial of the grid failed; the first says: {failed}")
    board.plan.choices = {label: job.values for label, job in best.items()}
    finals = [
        Job.kept(job.config, seed, root, label, values=job.values) for label, job in best.items() for seed in seeds
    ]
    board.add(finals)
    execute(finals, scratch, at_once, board.told)
    board.write()


@dataclass
class Board:
    """Keeps plan.json true while the grid runs."""

    folder: Path
    plan: Plan
    watch: Watch
    jobs: tuple[Job, ...] = ()

    def add(self, jobs: Sequence[Job]) -> None:
        """Jobs of a stage that begins."""
        self.jobs = (*self.jobs, *jobs)
        self.write()

    def told(self, outcomes: dict[str, Outcome], running: list[str]) -> None:
        self.write()
        self.watch(outcomes, running)

    def write(self) -> None:
        self.plan.entries = [job.entry(self.folder, self.plan.point) for job in self.jobs]
        self.plan.write(self.folder)


def _best(board: Board, jobs: Sequence[Job], label: str, metric: Metric) -> Job | None:
    """The point with the best validation score after the last round; the first of equals."""
    scored = [(job.entry(board.folder, board.plan.point).scores.get("val"), job) for job in jobs if job.label == label]
    known = [(score if metric.higher else -score, job) for score, job in scored if score is not None]
    return max(known, key=lambda pair: pair[0], default=(None, None))[1]


def _without_fixed(space: dict[str, list[Any]], config: Config) -> dict[str, list[Any]]:
    """A key that the user set is no axis of the grid."""
    given = {f"train.{key}" for key in config.train.model_fields_set} | {
        f"method.{key}" for key in config.method.options
    }
    return {key: list(values) for key, values in space.items() if key not in given}


def _name(config: Config, space: dict[str, list[Any]]) -> str:
    asked = sha256(repr((config.key(), config.seeds[0], sorted(space.items()))).encode()).hexdigest()[:8]
    return f"{config.method.name.rpartition(':')[2]}-{config.data.name.rpartition('/')[2]}-{asked}"


def _points(space: dict[str, list[Any]], constraint: Callable[[Values], bool] | None) -> list[Values]:
    points = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    return [point for point in points if constraint is None or constraint(point)]


def _candidate(config: Config, label: str, values: Values, folder: Path, root: Path) -> Job:
    """A point of a method's space, under the same configuration for all methods."""
    tree = config.model_dump(mode="json", exclude_unset=True)
    own = tree if label == config.method.name else {**tree, "method": {"name": label}}
    asked = _resolved(Config(**nested({**flat(own), **values})), folder)
    return Job.kept(asked, config.seeds[0], root, label, role="candidate", values=values)


def _resolved(config: Config, folder: Path) -> Config:
    """Side by side beats inside: unless hosts are asked for, a trial is one process."""
    if config.resources.hosts == "auto":
        config.resources.hosts = 0
    if config.wandb.group is None:
        config.wandb.group = folder.name
    return resolve(config)[0]


def _page(folder: Path) -> None:
    from fedbench.report import make_report

    make_report(folder)
