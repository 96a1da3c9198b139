"""Mirrors of a run's records: W&B, CSV, TensorBoard, any Lightning Logger. The truth stays in metrics.jsonl."""

import importlib
import inspect
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.files import write_json_atomically
from fedbench.results.reader import Records

LoggedRow = Mapping[str, Any]
Warn = Callable[[str], None]

STATE = "loggers.json"
MOST_CURVES = 50  # above it, clients become quantiles: W&B and TensorBoard choke on hundreds of keys per round
QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
NOT_CURVES = ("seed", "round", "point", "failed")


class Logger(Protocol):
    """What fedbench asks of a logger: the part of `lightning.pytorch.loggers.Logger` that needs no Trainer."""

    def log_hyperparams(self, params: dict[str, Any]) -> None: ...

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None: ...

    def save(self) -> None: ...

    def finalize(self, status: str) -> None: ...


def metric_values(lines: Iterable[LoggedRow]) -> dict[str, float]:
    """Lines of metrics.jsonl of one round as `after_agg/test_accuracy: 0.8`; null and NaN are left out."""
    values: dict[str, float] = {}
    for line in lines:
        point = line["point"]
        numbers = {k: v for k, v in line.items() if k not in NOT_CURVES and v is not None}
        values |= {f"{point}/{k}": v for k, v in numbers.items() if np.isfinite(v)}
        if line.get("failed"):
            values[f"{point}/failed"] = len(line["failed"])
    return values


def trace_values(traces: Iterable[LoggedRow]) -> dict[str, float]:
    """Rows of traces.parquet of one round as `lambda/client_03: 0.4`, or as quantiles for more than 50 clients.

    A name with a slash (`critical_share/<layer>`) is averaged over the clients; a trace of the server keeps its name.
    """
    values: dict[str, float] = {}
    for name, of_client in _by_name(traces).items():
        values |= _curves(name, of_client)
    return values


def trace_distributions(traces: Iterable[LoggedRow]) -> dict[str, np.ndarray]:
    """The values over clients of every trace that `trace_values` only gives as quantiles."""
    named = _by_name(traces)
    return {
        f"{name}/histogram": np.array(list(of_client.values()))
        for name, of_client in named.items()
        if "/" not in name and len(of_client) > MOST_CURVES
    }


def _by_round(rows: Iterable[LoggedRow]) -> dict[int, list[LoggedRow]]:
    rounds: dict[int, list[LoggedRow]] = defaultdict(list)
    for row in rows:
        rounds[int(row["round"])].append(row)
    return rounds


def _by_name(traces: Iterable[LoggedRow]) -> dict[str, dict[int, float]]:
    """`{name: {client: value}}`; values that are not finite are left out."""
    named: dict[str, dict[int, float]] = defaultdict(dict)
    for row in traces:
        if np.isfinite(row["value"]):
            named[row["name"]][int(row["client"])] = float(row["value"])
    return named


def _curves(name: str, of_client: dict[int, float]) -> dict[str, float]:
    if set(of_client) == {-1}:
        return {name: of_client[-1]}
    if "/" in name:
        return {name: float(np.mean(list(of_client.values())))}
    if len(of_client) > MOST_CURVES:
        quantiles = np.quantile(list(of_client.values()), list(QUANTILES.values()))
        return {f"{name}/{key}": float(value) for key, value in zip(QUANTILES, quantiles, strict=True)}
    return {f"{name}/client_{client:02d}": value for client, value in sorted(of_client.items())}


class LoggedRounds:
    """Which rounds each logger has had, kept in the run's folder, so that a resumed run repeats none."""

    def __init__(self, folder: Path, resume: bool) -> None:
        self.path = folder / STATE
        self._last: dict[str, int] = {}
        if resume and self.path.exists():
            self._last = json.loads(self.path.read_text())

    def last(self, logger: str) -> int:
        """The last round that the logger had; -1 before the first."""
        return self._last.get(logger, -1)

    def correct(self, logger: str, last: int) -> None:
        """Takes the logger's own word for what it has."""
        self._last[logger] = last

    def add(self, logger: str, round_: int) -> None:
        """Notes a logged round on disk."""
        self._last[logger] = round_
        write_json_atomically(self.path, self._last)


class AttachedLogger:
    """A logger of a run, guarded: a round is logged once, an exception becomes one warning and silence."""

    def __init__(self, name: str, logger: Logger, rounds: LoggedRounds, warn: Warn) -> None:
        self.name = name
        self.logger: Logger | None = logger
        self._rounds = rounds
        self._warn = warn
        self._guarded(self._ask_what_it_has)

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """The resolved configuration, as a tree."""
        self._guarded(lambda logger: logger.log_hyperparams(params))

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None:
        """Values under ready-made keys."""
        self._guarded(lambda logger: logger.log_metrics(metrics, step=step))

    def log_records(self, lines: Iterable[LoggedRow], traces: Iterable[LoggedRow] = ()) -> None:
        """Lines of metrics.jsonl and rows of traces.parquet of one or more whole rounds; known rounds are skipped."""
        traced = _by_round(traces)
        for round_, of_round in sorted(_by_round(lines).items()):
            if round_ > self._rounds.last(self.name):
                self._guarded(partial(self._log_round, round_, of_round, traced[round_]))

    def finalize(self, status: str = "success") -> None:
        """Flushes and closes; `status` is success or failed."""
        self._guarded(lambda logger: logger.finalize(status))

    def _ask_what_it_has(self, logger: Logger) -> None:
        known = logger.logged() if hasattr(logger, "logged") else None
        if known is not None:
            self._rounds.correct(self.name, known)

    def _log_round(self, round_: int, lines: list[LoggedRow], traces: list[LoggedRow], logger: Logger) -> None:
        values: dict[str, Any] = metric_values(lines) | trace_values(traces)
        if getattr(logger, "takes_distributions", False):
            values |= trace_distributions(traces)
        logger.log_metrics(values, step=round_)
        logger.save()
        self._rounds.add(self.name, round_)

    def _guarded(self, action: Callable[[Logger], None]) -> None:
        if self.logger is None:
            return
        try:
            action(self.logger)
        except Exception as error:  # a mirror of the records must never cost the run itself
            self.logger = None
            self._warn(f"logger {self.name} failed and is left out from here on ({type(error).__name__}: {error})")


def make_loggers(
    config: Config, folder: Path, run_id: str, job_type: str, *, resume: bool = True, warn: Warn = warnings.warn
) -> list[AttachedLogger]:
    """The loggers that `config.loggers` names, each guarded. `run_id` must stay the same when a run is resumed.

    With `resume` the rounds that a logger already had in this folder are skipped. Raises ConfigError for a logger that
    does not exist; one that fails to start is left out with a warning.
    """
    rounds = LoggedRounds(folder, resume)
    attached = []
    for name in config.loggers:
        try:
            logger = _make(name, config, folder, run_id, job_type, warn)
        except ConfigError:
            raise
        except Exception as error:  # a mirror of the records must never cost the run itself
            warn(f"logger {name} cannot start and is left out ({type(error).__name__}: {error})")
        else:
            attached.append(AttachedLogger(name, logger, rounds, warn))
    return attached


def catch_up(loggers: Iterable[AttachedLogger], folder: Path) -> None:
    """Hands over what the folder's records have and a logger lacks.

    For a resumed run, once its records are cut back to the checkpoint: a killed logger may have lost its last rounds.
    """
    run = Records(folder)
    lines: list[Any] = run.metrics().to_dict("records")
    traces: list[Any] = run.traces().to_dict("records")
    for logger in loggers:
        logger.log_records(lines, traces)


def log_records(
    loggers: Iterable[AttachedLogger], lines: Iterable[LoggedRow], traces: Iterable[LoggedRow] = ()
) -> None:
    """Hands lines of metrics.jsonl and rows of traces.parquet to every logger."""
    rows, traced = list(lines), list(traces)
    for logger in loggers:
        logger.log_records(rows, traced)


def account(names: Iterable[str]) -> dict[str, str]:
    """The variables by which these loggers know the account of this machine, for processes on other ones."""
    if "wandb" not in names:
        return {}
    from fedbench.results.wandb_log import variables

    return variables()


def _make(name: str, config: Config, folder: Path, run_id: str, job_type: str, warn: Warn) -> Logger:
    if name == "wandb":
        from fedbench.results.wandb_log import WandbLog

        return WandbLog(config, folder, run_id, job_type, warn)
    if name == "csv":
        return _csv(folder)
    if name == "tensorboard":
        return _tensorboard(folder)
    if ":" not in name:
        raise ConfigError(f"loggers = {name!r}: wandb, csv, tensorboard, or package.module:Class of a Lightning Logger")
    return _own(name, folder)


def _csv(folder: Path) -> Logger:
    from lightning.pytorch.loggers import CSVLogger

    return CSVLogger(folder, name="csv", flush_logs_every_n_steps=1)


def _tensorboard(folder: Path) -> Logger:
    from lightning.pytorch.loggers import TensorBoardLogger

    try:
        return TensorBoardLogger(folder, name="tensorboard", default_hp_metric=False)
    except ImportError:
        raise ConfigError("loggers = 'tensorboard': not installed; run `pip install tensorboard`") from None


def _own(name: str, folder: Path) -> Logger:
    """A user's Logger; it gets the run's folder as `save_dir` if its constructor takes one."""
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
        takes_folder = "save_dir" in inspect.signature(kind).parameters
        logger = kind(save_dir=str(folder)) if takes_folder else kind()
    except (ImportError, SyntaxError, AttributeError, TypeError) as error:
        raise ConfigError(f"loggers = {name!r}: cannot be made ({error}); package.module:Class is expected") from None
    if not hasattr(logger, "log_metrics"):
        raise ConfigError(f"loggers = {name!r}: is no Lightning Logger, it has no log_metrics")
    made: Logger = logger
    return made
