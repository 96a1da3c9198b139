"""W&B as a mirror of a run's records: never prompts, never hangs, and logs every round exactly once."""

import logging
import netrc
import os
import shutil
import ssl
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pandas as pd
import wandb

from fedbench import tasks
from fedbench.config import Config, WandbConfig
from fedbench.errors import ConfigError, first_line
from fedbench.results.files import read_json, write_json_atomically
from fedbench.results.logged import Warn
from fedbench.results.newcomers import newcomer_summary
from fedbench.results.plan import Entry, point_name
from fedbench.results.reader import Records
from fedbench.results.rounds import at_best_round
from fedbench.results.schema import POINTS, SPLITS
from fedbench.tasks import Task

log = logging.getLogger("fedbench")

Mode = Literal["online", "offline", "disabled"]
TIMEOUT = 30  # seconds
AXES = ("round", "bytes", "steps")
"""The x axes of curves: rounds, and cumulative bytes (both ways) and gradient steps."""
PART_NOTE = "fedbench.json"
"""Written when W&B has closed a part. W&B may lose the last rounds of one that was never closed."""
LONGEST, LONGEST_TAG = 128, 64  # maximum characters in W&B
NOT_HEEDED = ("WANDB_RUN_ID", "WANDB_SWEEP_ID")
"""Variables that would make all runs of a command one W&B run."""
TOLD = ("WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_MODE")
"""Variables, besides the key, that mean the same on every machine."""


class WandbLog:
    """One W&B run for one seed of one configuration, with the same id when the run is resumed.

    Online only if this machine has an account, else offline in `folder`/wandb, one part per start, to be uploaded
    with `wandb sync`.
    """

    takes_distributions = True

    def __init__(self, config: Config, folder: Path, entry: Entry, warn: Warn | None = warnings.warn) -> None:
        arguments = run_arguments(config, entry)
        self._parts = offline_parts(folder, arguments["id"])
        self._last = last_round(self._parts)
        for name in filter(os.environ.get, NOT_HEEDED):
            if warn:
                warn(f"{name} is ignored: every seed is a W&B run with its own id")
        self.run = start_run(config.wandb, folder, arguments, warn)
        remove_unclosed(self._parts)
        self._goals = best_directions(
            tasks.load(
                read_json(folder / "environment.json", []).get("task") or "classification",
                config.evaluate.model_dump(),
            )
        )
        self.run.define_metric("round")
        self.run.define_metric("*", step_metric="round")
        for key in AXES[1:]:
            self.run.define_metric(key, step_metric="round", summary="last")
        for key, best in self._goals.items():
            self.run.define_metric(key, step_metric="round", summary=f"last,{best}")

    def logged(self) -> int | None:
        """The last round that W&B has, as of the start; None if unknown.

        Read from the server if the run is online, else as noted in the offline parts.
        """
        if not self.run.offline:
            known = dict(self.run.summary) if self.run.resumed else {}
            self._last = int(known.get("round", -1))
        return self._last

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Logs the complete configuration as a tree."""
        self.run.config.update(params, allow_val_change=True)

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None:
        """Logs a round, which is also W&B's step, so that all parts of a run count alike."""
        drawn = {k: wandb.Histogram(v.tolist()) if isinstance(v, np.ndarray) else v for k, v in metrics.items()}
        self.run.log({"round": step, **drawn}, step=step, commit=True)
        self._last = step

    def conclude(self, records: Records) -> None:
        """Writes last and best scores of the whole run, and the table of clients, to the summary."""
        self.run.summary.update(summary_of(records, self._goals))
        clients = records.clients()
        last = clients[clients["round"] == clients["round"].max()]
        self.run.summary["clients"] = wandb_table(last.drop(columns="seed"))
        if len(later := records.newcomers()):
            self.run.summary["newcomers"] = wandb_table(later.drop(columns="seed"))

    def save(self) -> None:
        """Does nothing: W&B's own process has received the round."""

    def finalize(self, status: str) -> None:
        """Closes the run; if it is online and complete, deletes the offline parts of earlier starts."""
        self.run.finish(exit_code=0 if status == "success" else 1)
        if self.run.offline:
            note_last_round(Path(self.run.dir).parent, -1 if self._last is None else self._last)
        elif status == "success" and not self.run.disabled:
            remove_parts(self._parts)


def offline_parts(folder: Path, run_id: str) -> list[Path]:
    """The parts of a run, oldest first. W&B appends a number to the second part within a second."""
    folders = [*folder.glob(f"wandb/offline-run-*-{run_id}"), *folder.glob(f"wandb/offline-run-*-{run_id}-[0-9]")]
    return sorted(folders)


def note_last_round(part: Path, last: int) -> None:
    write_json_atomically(part / PART_NOTE, {"round": last})


def last_round(parts: Iterable[Path]) -> int | None:
    """The last round in the closed parts among these; -1 where none has one, None without parts."""
    return max((int(read_json(part / PART_NOTE, []).get("round", -1)) for part in parts), default=None)


def remove_unclosed(parts: Iterable[Path]) -> None:
    """Their rounds are logged again out of the records."""
    remove_parts(part for part in parts if not (part / PART_NOTE).exists())


def remove_parts(parts: Iterable[Path]) -> None:
    for part in parts:
        shutil.rmtree(part, ignore_errors=True)


def run_arguments(config: Config, entry: Entry) -> dict[str, Any]:
    """The arguments of `wandb.init` for a seed.

    The job type is the label, so that grouping by it shows mean and band over the seeds. Candidates have a job type of
    their own, because they would otherwise count into the mean.
    """
    group = group_of(config)
    is_candidate = entry.role == "candidate"
    point = [point_name(entry.values)] if is_candidate and entry.values else []
    words = [*name_prefix(config.wandb), entry.label, *point, f"seed {entry.seed}"]
    # One run may belong to several studies, and have several labels in one: each is a separate W&B run.
    known = "-".join(filter(None, [config.key(), entry.code, f"s{entry.seed}"]))
    digest = sha256(f"{group}/{entry.label}/{known}".encode()).hexdigest()[:8]
    return {
        "id": f"{known}-{digest}",
        "group": group,
        "job_type": f"{entry.label} ({entry.role})"[-LONGEST:] if is_candidate else entry.label[:LONGEST],
        "name": " ".join(words)[:LONGEST],
        "tags": run_tags(config.wandb.tags, config.method.name, config.data.name, config.partition.name, entry.role),
    }


def name_prefix(config: WandbConfig) -> list[str]:
    """The prefix of every name, if any."""
    return [config.run_name] if config.run_name else []


def group_of(config: Config) -> str:
    """The study, or without one, what makes runs comparable."""
    return plain_name(config.wandb.group or f"{config.data.name}-{config.partition.name}")[:LONGEST]


def plain_name(name: str) -> str:
    """A name without symbols and quotes: W&B allows no workspace `alpha=0.1`, and filters miss such groups."""
    return "".join(" " if unicodedata.category(c).startswith("S") or c in "'\"\\" else c for c in name)


def run_tags(*words: str | Iterable[str]) -> list[str]:
    """Unique tags, shortened to W&B's limit."""
    flat = [word for some in words for word in ([some] if isinstance(some, str) else some)]
    return list(dict.fromkeys(word[-LONGEST_TAG:].strip() for word in flat if word.strip()))


def best_directions(task: Task) -> dict[str, str]:
    """Whether the best value of each key is the highest (`max`) or the lowest (`min`), if its metric says so."""
    undirected = [more.metric for more in task.further if not more.directed]
    directed = [metric for metric in task.metrics if metric not in undirected]
    best = {f"{split}_{metric.name}": metric.higher for metric in directed for split in SPLITS}
    best["test_worst_tenth"] = task.primary.higher
    return {f"{point}/{key}": "max" if higher else "min" for point in POINTS for key, higher in best.items()}


def summary_of(records: Records, best: Mapping[str, str]) -> dict[str, Any]:
    """`after_agg/test_accuracy: {last, max}` of every key; `best_val/...`: scores at the best validation round."""
    metrics, metric, summary = records.metrics(), records.metric(), dict[str, Any]()
    for key, goal in best.items():
        point, _, name = key.partition("/")
        values = metrics.loc[metrics["point"] == point, name].dropna()
        if len(values):
            summary[key] = {"last": float(values.iloc[-1]), goal: float(values.agg(goal))}
    for row in at_best_round(metrics, metric).to_dict("records"):
        chosen = {
            "round": int(row["round"]),
            **{f"{split}_{metric.name}": row[f"{split}_{metric.name}"] for split in SPLITS},
        }
        summary |= {f"best_val/{row['point']}/{key}": value for key, value in chosen.items()}
    for kind, cases in newcomer_summary(metric, records.newcomers()).items():
        summary |= {f"newcomers/{kind}/{number}/test_{metric.name}": case["mean"] for number, case in cases.items()}
    return summary


def wandb_table(frame: pd.DataFrame) -> wandb.Table:
    """A frame as a W&B table; unknown values are empty."""
    return wandb.Table(dataframe=frame.astype(object).where(frame.notna(), None))


def start_run(config: WandbConfig, folder: Path, arguments: dict[str, Any], warn: Warn | None) -> Any:
    """A W&B run in a mode that is possible here.

    warn: called if the run is offline although online was requested; without it that raises ConfigError.
    """
    where = {"project": config.project, "entity": config.entity, "dir": str(folder)}
    options = {**arguments, **where, "resume": "allow", "reinit": "create_new"}
    possible = possible_mode(config.mode)
    silence = silence_of(_process_settings().base_url) if possible == "online" else None
    if silence:
        _offline_instead(warn, "W&B cannot be reached", silence)
        possible = "offline"
    if config.mode == "online" and possible == "offline":
        send = f"run `wandb login`, then `wandb sync {folder}/wandb/offline-run-*`"
        _offline_instead(warn, "wandb.mode = online: no W&B account on this machine", send)
    with _own_ids():
        try:
            return wandb.init(mode=possible, settings=_settings(), **options)
        except wandb.Error as error:
            if possible != "online":
                raise
            reason = first_line(error)
            wandb.teardown()  # the failed start still holds the id
    _offline_instead(warn, "W&B cannot be reached", reason)
    with _own_ids():
        return wandb.init(mode="offline", settings=_settings(), **options)


def offline_where_unanswered(config: WandbConfig) -> WandbConfig:
    """The same settings, offline if the server does not answer."""
    silent = possible_mode(config.mode) == "online" and silence_of(_process_settings().base_url)
    return config.model_copy(update={"mode": "offline"}) if silent else config


@cache
def silence_of(url: str) -> str | None:
    """Why W&B at this address does not answer; None if it does.

    Asked once per process, because a server that accepts connections but never answers costs the whole timeout.
    """
    log.info("waiting for W&B at %s, %g s at most", url, TIMEOUT)
    try:
        urlopen(f"{url}/graphql", timeout=TIMEOUT).close()
    except HTTPError:  # an answer, even if an error
        return None
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        return None if isinstance(reason, ssl.SSLError) else f"{url}: {first_line(error)}"  # W&B has keys of its own
    return None


def _process_settings() -> wandb.Settings:
    """W&B's settings in this process, from its variables and files."""
    return wandb.setup(wandb.Settings(silent=True)).settings


@contextmanager
def _own_ids() -> Iterator[None]:
    """Makes runs use the given id: in a sweep W&B would take the environment's, the same for all."""
    common = _process_settings()
    before = {name: getattr(common, name) for name in ("run_id", "sweep_id")}
    for name in before:
        setattr(common, name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(common, name, value)


def _offline_instead(warn: Warn | None, why: str, more: str) -> None:
    if warn is None:
        raise ConfigError(f"{why} ({more})")
    warn(f"{why}; logged offline; {more}")


def _settings() -> wandb.Settings:
    """Quiet settings without terminal capture and with a limit on every wait."""
    return wandb.Settings(
        silent=True,
        console="off",
        login_timeout=TIMEOUT,
        init_timeout=TIMEOUT,
        finish_timeout=4 * TIMEOUT,
        x_transaction_log_flush_interval=1,
    )


def possible_mode(mode: str) -> Mode:
    """Online only with an account, because W&B would prompt for one; `auto` follows WANDB_MODE if possible."""
    from_environment = os.environ.get("WANDB_MODE", "")
    if mode == "auto" and from_environment == "disabled":
        return "disabled"
    if mode == "offline" or (mode == "auto" and from_environment in ("offline", "dryrun")):
        return "offline"
    return "online" if has_account() else "offline"


def account_environment() -> dict[str, str]:
    """Variables by which W&B on another machine finds this account, from the environment or a file."""
    key = _key()
    variables = {name: os.environ[name] for name in TOLD if name in os.environ}
    return {**variables, **({"WANDB_API_KEY": key} if key else {})}


def has_account() -> bool:
    """Whether W&B would find a login."""
    return bool(os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or _key())


def _key() -> str | None:
    """The key of a login, from the environment, W&B's settings files or netrc."""
    settings = _process_settings()
    return os.environ.get("WANDB_API_KEY") or settings.api_key or _in_netrc(urlsplit(settings.base_url).netloc)


def _in_netrc(host: str) -> str | None:
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        login = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return login[2] if login else None
