"""A grid: every point of a method's space once, the best on validation again over the seeds, beside the baselines.

The baselines are tuned over the same `train.*` values on the same seed, and run under the same partitions and seeds,
so that the answer can say whether collaboration paid.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from fedbench.config import Config, flat, load_yaml, nested
from fedbench.errors import ConfigError
from fedbench.experiments.folder import alone_in, changes_in, check_same, check_writable, identity
from fedbench.experiments.resolve import check, resolve
from fedbench.experiments.study import Job, Outcome, Watch, execute, room_for
from fedbench.results.records import RunFolder, write_json_atomically

BASELINES = ("local", "centralized", "fedavg-ft")
SEEDS = (0, 1, 2)
POINT, METRIC = "after_agg", "val_accuracy"
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


@dataclass(frozen=True)
class Cell:
    """A point of a space: the method, its values by dotted key, and the job that runs it."""

    method: str
    values: Values
    job: Job


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
        if not values or len(set(map(_text, values))) < len(values):
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
    folder = (config.out or Path("results") / "grid" / (config.name or _name(config, space))).absolute()
    cells = [
        *_cells(config, space, constraint, folder),
        *(cell for name in baselines for cell in _baseline_cells(config, name, space, folder)),
    ]
    check_writable(folder)
    for cell in cells:
        check_same(cell.job.folder, cell.job.config)
    check(cells[0].job.config, resolve(cells[0].job.config)[1])
    board = Board(folder, config, space, [cell for cell in cells if cell.method == config.method.name])
    scratch = folder / ".tune"
    with room_for([cell.job for cell in cells]), alone_in(folder):
        outcomes = execute([cell.job for cell in cells], scratch, at_once, lambda o, r: (board.write(o), watch(o, r)))
        best = _chosen(cells, (config.method.name, *baselines), outcomes)
        finals = [_final(cell, final_seeds, folder) for cell in best.values() if cell is not None]
        _put_aside(finals, folder)
        ended = execute(finals, scratch, at_once, lambda o, r: (board.write(outcomes, finals, o), watch(o, r)))
    board.write(outcomes, finals, ended, best[config.method.name])
    _page(folder)
    chosen = best[config.method.name]
    assert chosen is not None
    return GridResult(folder, chosen.values)


def _chosen(cells: Sequence[Cell], methods: Sequence[str], outcomes: dict[str, Outcome]) -> dict[str, Cell | None]:
    """The best cell of every method. Raises ConfigError where the grid's own method, the first, has none."""
    best = {name: _best(cells, name, outcomes) for name in methods}
    if best[methods[0]] is None:
        failed = next((o.error for o in outcomes.values() if o.error), "no trial finished")
        raise ConfigError(f"every trial of the grid failed; the first says: {failed}")
    return best


def _without_fixed(space: dict[str, list[Any]], config: Config) -> dict[str, list[Any]]:
    """A key that the user set is no axis of the grid."""
    given = {f"train.{key}" for key in config.train.model_fields_set} | {
        f"method.{key}" for key in config.method.options
    }
    return {key: list(values) for key, values in space.items() if key not in given}


def _name(config: Config, space: dict[str, list[Any]]) -> str:
    asked = sha256(repr((config.key(), config.seeds[0], sorted(space.items()))).encode()).hexdigest()[:8]
    return f"{config.method.name.rpartition(':')[2]}-{config.data.name.rpartition('/')[2]}-{asked}"


def _cells(
    config: Config, space: dict[str, list[Any]], constraint: Callable[[Values], bool] | None, folder: Path
) -> list[Cell]:
    points = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    return [_cell(config, point, folder) for point in points if constraint is None or constraint(point)]


def _baseline_cells(config: Config, method: str, space: dict[str, list[Any]], folder: Path) -> list[Cell]:
    """A baseline under the same configuration, tuned over the training values of the space."""
    tree = config.model_dump(mode="json", exclude_unset=True)
    shared = {key: values for key, values in space.items() if key.startswith("train.")}
    return _cells(Config(**{**tree, "method": {"name": method}}), shared, None, folder)


def _cell(config: Config, point: Values, folder: Path) -> Cell:
    name = ",".join(f"{key.rpartition('.')[2]}={_text(value)}" for key, value in point.items()) or "default"
    where = folder / "cells" / config.method.name.rpartition(":")[2] / name
    pairs = {**flat(config.model_dump(mode="json", exclude_unset=True)), **point}
    asked = Config(**nested({**pairs, "seeds": config.seeds[:1], "out": str(where)}))
    return Cell(config.method.name, point, Job(f"{config.method.name} {name}", _resolved(asked, folder)))


def _resolved(config: Config, folder: Path) -> Config:
    """Side by side beats inside: unless hosts are asked for, a trial is one process."""
    if config.resources.hosts == "auto":
        config.resources.hosts = 0
    if config.wandb.group is None:
        config.wandb.group = folder.name
    return resolve(config)[0]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def _final(cell: Cell, seeds: Sequence[int], folder: Path) -> Job:
    config = cell.job.config.model_copy(deep=True)
    config.seeds, config.out = list(seeds), folder / "final" / cell.method.rpartition(":")[2]
    return Job(f"{cell.method} final", config, job_type="final")


def _put_aside(finals: Sequence[Job], folder: Path) -> None:
    """Final runs over other seeds, or of another best point, make room for those that are asked for now."""
    for job in finals:
        if changes_in(job.folder, job.config):
            kept = Config(**load_yaml(job.folder / "config.yaml"))
            aside = folder / "superseded" / f"{job.folder.name}-{identity(kept)}"
            shutil.rmtree(aside, ignore_errors=True)
            aside.parent.mkdir(exist_ok=True)
            job.folder.rename(aside)


def _best(cells: Sequence[Cell], method: str, outcomes: dict[str, Outcome]) -> Cell | None:
    """The point with the best validation accuracy after the last round; the first of equals."""
    done = [cell for cell in cells if cell.method == method and outcomes[cell.job.name].status == "done"]
    return max(done, key=lambda cell: scores(cell.job.folder)[METRIC] or 0.0, default=None)


def scores(folder: Path) -> dict[str, float | None]:
    """A finished run's accuracies after the last round."""
    last = RunFolder(folder).summary().get("points", {}).get(POINT, {}).get("last", {})
    return {key: last.get(key, {}).get("mean") for key in (METRIC, "test_accuracy")}


@dataclass
class Board:
    """Keeps grid.json true while the grid runs."""

    folder: Path
    config: Config
    space: dict[str, list[Any]]
    cells: list[Cell]

    def write(
        self,
        outcomes: dict[str, Outcome],
        finals: Sequence[Job] = (),
        ended: dict[str, Outcome] | None = None,
        best: Cell | None = None,
    ) -> None:
        """Write what is known now."""
        best = best or _best(self.cells, self.config.method.name, outcomes)
        content = {
            "method": self.config.method.name,
            "space": self.space,
            "metric": METRIC,
            "point": POINT,
            "cells": [self._row(cell, outcomes[cell.job.name]) for cell in self.cells],
            "best": _short(best) if best else None,
            "final": {job.config.method.name: str(job.folder.relative_to(self.folder)) for job in finals},
            "failed_finals": {
                j.config.method.name: o.error for j in finals if (o := (ended or {}).get(j.name)) and o.error
            },
            "config": self.config.model_dump(mode="json"),
        }
        write_json_atomically(self.folder / "grid.json", content)

    def _row(self, cell: Cell, outcome: Outcome) -> dict[str, Any]:
        known = scores(cell.job.folder) if outcome.status == "done" else {METRIC: None, "test_accuracy": None}
        path = str(cell.job.folder.relative_to(self.folder))
        return dict(
            name=_short(cell), values=cell.values, status=outcome.status, error=outcome.error, **known, path=path
        )


def _short(cell: Cell) -> str:
    return cell.job.folder.name


def _page(folder: Path) -> None:
    from fedbench.report import make_report

    make_report(folder)
