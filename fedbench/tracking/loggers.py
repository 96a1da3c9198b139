"""Loggers that mirror a run's records: W&B, CSV, TensorBoard, any Lightning Logger. metrics.jsonl is authoritative."""

import inspect
import json
import logging
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.import_string import import_string
from fedbench.installation import require
from fedbench.results.files import write_json_atomically
from fedbench.results.logged import (
    CumulativeCosts,
    LoggedRow,
    Warn,
    curve_rows,
    metric_values,
    rows_by_round,
    trace_distributions,
    trace_values,
)
from fedbench.results.plan import Entry
from fedbench.results.reader import Records

if TYPE_CHECKING:
    from fedbench.tracking.wandb_study import WandbStudy

STATE = "loggers.json"

log = logging.getLogger("fedbench")


class Logger(Protocol):
    """The interface of a logger: the part of `lightning.pytorch.loggers.Logger` that needs no Trainer."""

    def log_hyperparams(self, params: dict[str, Any]) -> None: ...

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None: ...

    def save(self) -> None: ...

    def finalize(self, status: str) -> None: ...


class LoggedRounds:
    """The rounds that each logger has received, stored in the run's folder, so that a resumed run repeats none."""

    def __init__(self, folder: Path, resume: bool) -> None:
        self.path = folder / STATE
        self._last: dict[str, int] = {}
        if resume and self.path.exists():
            self._last = json.loads(self.path.read_text())

    def last(self, logger: str) -> int:
        """The last round that the logger received; -1 before the first."""
        return self._last.get(logger, -1)

    def correct(self, logger: str, last: int) -> None:
        """Replaces the record by the logger's own information."""
        self._last[logger] = last

    def add(self, logger: str, round_: int) -> None:
        """Records a logged round on disk."""
        self._last[logger] = round_
        write_json_atomically(self.path, self._last)


class AttachedLogger:
    """A guarded logger of a run: logs each round once, and after an exception warns once and stops logging."""

    def __init__(self, name: str, logger: Logger, rounds: LoggedRounds, warn: Warn) -> None:
        self.name = name
        self.logger: Logger | None = logger
        self._rounds, self._spent = rounds, CumulativeCosts()
        self._warn = warn
        self._try(self._ask_what_it_has)

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Logs the resolved configuration as a tree."""
        self._try(lambda logger: logger.log_hyperparams(params))

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None:
        """Logs values under complete keys."""
        self._try(lambda logger: logger.log_metrics(metrics, step=step))

    def log_records(self, lines: Iterable[LoggedRow], traces: Iterable[LoggedRow] = ()) -> None:
        """Logs lines of metrics.jsonl and rows of traces.parquet of whole rounds; skips known rounds."""
        traced = rows_by_round(traces)
        for round_, of_round in rows_by_round(lines).items():
            self._spent.note(round_, of_round)
            if round_ > self._rounds.last(self.name):
                self._try(partial(self._log_round, round_, of_round, traced[round_]))

    def conclude(self, records: Records) -> None:
        """Passes the records of a finished run to loggers that accept them."""
        self._try(lambda logger: logger.conclude(records) if hasattr(logger, "conclude") else None)

    def finalize(self, status: str = "success") -> None:
        """Flushes and closes; `status` is success or failed."""
        self._try(lambda logger: logger.finalize(status))

    def _ask_what_it_has(self, logger: Logger) -> None:
        known = logger.logged() if hasattr(logger, "logged") else None
        if known is not None:
            self._rounds.correct(self.name, known)

    def _log_round(self, round_: int, lines: list[LoggedRow], traces: list[LoggedRow], logger: Logger) -> None:
        values: dict[str, Any] = metric_values(lines) | self._spent.until(round_) | trace_values(traces)
        if getattr(logger, "takes_distributions", False):
            values |= trace_distributions(traces)
        logger.log_metrics(values, step=round_)
        logger.save()
        self._rounds.add(self.name, round_)

    def _try(self, action: Callable[[Logger], None]) -> None:
        if self.logger is None:
            return
        try:
            action(self.logger)
        except (Exception, SystemExit) as error:  # a mirror of the records must never end the run
            self.logger = None
            self._warn(f"logger {self.name} failed and is disabled from now on ({type(error).__name__}: {error})")


def make_loggers(
    config: Config, folder: Path, entry: Entry, *, resume: bool = True, warn: Warn = warnings.warn
) -> list[AttachedLogger]:
    """The guarded loggers in `config.loggers`. entry: the plan's entry of this seed.

    With `resume`, rounds that a logger already has in this folder are skipped. Raises ConfigError for unknown loggers;
    one that fails to start is left out with a warning.
    """
    rounds = LoggedRounds(folder, resume)
    attached = []
    for name in config.loggers:
        try:
            logger = _make(name, config, folder, entry, warn)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:  # a mirror of the records must never end the run
            warn(f"logger {name} cannot start and is left out ({type(error).__name__}: {error})")
        else:
            attached.append(AttachedLogger(name, logger, rounds, warn))
    return attached


def catch_up(loggers: Iterable[AttachedLogger], folder: Path) -> None:
    """Logs records that are in the folder but that a logger lacks.

    For a resumed run, after its records are cut back to the checkpoint: a killed logger may have lost its last rounds.
    """
    run = Records(folder)
    lines: list[Any] = run.metrics().to_dict("records")
    traces = curve_rows(run)
    for logger in loggers:
        logger.log_records(lines, traces)


def log_records(
    loggers: Iterable[AttachedLogger], lines: Iterable[LoggedRow], traces: Iterable[LoggedRow] = ()
) -> None:
    """Passes lines of metrics.jsonl and rows of traces.parquet to every logger."""
    rows, traced = list(lines), list(traces)
    for logger in loggers:
        logger.log_records(rows, traced)


def log_page(folder: Path, config: Config, warn: Warn = log.warning) -> None:
    """Uploads the report and final table of a finished study to W&B, if requested, and lays out its workspace."""
    if "wandb" not in config.loggers:
        return
    try:
        require("wandb")
        from fedbench.tracking.wandb_study import WandbStudy, is_overview, send_overview, send_study

        if is_overview(folder):
            send_overview(folder, config.wandb, warn)
            return
        study = WandbStudy.load(folder)
        run = send_study(study, warn)
    except Exception as error:  # a mirror of the records must never end the study
        warn(f"the report of {folder} was not uploaded to W&B ({type(error).__name__}: {error})")
    else:
        lay_out(study, run, warn)


def lay_out(study: "WandbStudy", run: Any, warn: Warn) -> None:
    """Creates the workspace of an uploaded study, for which W&B has to be reached. run: its own W&B run."""
    again = f"`fedbench wandb {study.folder}`"
    if run.offline or run.disabled:
        if not run.disabled:
            log.info("W&B is offline: once there is a connection, %s uploads the runs and lays out a workspace", again)
        return
    from fedbench.tracking.wandb_workspace import save_workspace

    try:
        log.info("W&B workspace: %s", save_workspace(study, run.entity))
    except Exception as error:  # the runs are uploaded, and usable without it
        warn(f"the W&B workspace could not be created ({type(error).__name__}: {error}); {again} tries again")


def account_variables(names: Iterable[str]) -> dict[str, str]:
    """The environment variables by which these loggers find this machine's account, for processes on other machines."""
    if "wandb" not in names:
        return {}
    require("wandb")
    from fedbench.tracking.wandb_log import account_environment

    return account_environment()


def with_reachable_loggers(config: Config) -> Config:
    """Sets loggers offline whose server does not answer, so that the trials of a study need not wait for it."""
    if "wandb" not in config.loggers:
        return config
    require("wandb")
    from fedbench.tracking.wandb_log import offline_where_unanswered

    return config.model_copy(update={"wandb": offline_where_unanswered(config.wandb)})


def _make(name: str, config: Config, folder: Path, entry: Entry, warn: Warn) -> Logger:
    if name == "wandb":
        require("wandb")
        from fedbench.tracking.wandb_log import WandbLog

        return WandbLog(config, folder, entry, warn)
    if name == "csv":
        return _csv(folder)
    if name == "tensorboard":
        return _tensorboard(folder)
    if ":" not in name:
        raise ConfigError(f"loggers = {name!r}: wandb, csv, tensorboard, or package.module:Class of a Lightning Logger")
    return _load_logger(name, folder)


def _csv(folder: Path) -> Logger:
    from lightning.pytorch.loggers import CSVLogger

    return CSVLogger(folder, name="csv", flush_logs_every_n_steps=1)


def _tensorboard(folder: Path) -> Logger:
    from lightning.pytorch.loggers import TensorBoardLogger

    try:
        return TensorBoardLogger(folder, name="tensorboard", default_hp_metric=False)
    except ImportError:
        require("tensorboard")
        raise


def _load_logger(name: str, folder: Path) -> Logger:
    """A user's Logger; gets the run's folder as `save_dir` if its constructor takes one."""
    kind: Any = import_string(name, "loggers =")
    try:
        takes_folder = "save_dir" in inspect.signature(kind).parameters
        logger = kind(save_dir=str(folder)) if takes_folder else kind()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"loggers = {name!r}: cannot be created ({reason}); expected package.module:Class") from None
    if not hasattr(logger, "log_metrics"):
        raise ConfigError(f"loggers = {name!r}: is not a Lightning Logger: it has no log_metrics")
    made: Logger = logger
    return made
