"""Reads the files of runs."""

import os
from functools import cached_property
from math import nan
from pathlib import Path
from re import DOTALL
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError

from fedbench import tasks
from fedbench.errors import ConfigError
from fedbench.results.estimators import SAMPLES, estimator
from fedbench.results.files import CHECKPOINTS, ends_whole, read_arrays
from fedbench.results.outcomes import OUTCOMES, MetricOutcomes, read_outcomes
from fedbench.results.remarks import with_levels
from fedbench.results.run_files import RunFiles
from fedbench.results.schema import (
    CLIENTS_SCHEMA,
    COMMON,
    COST_KEYS,
    NEWCOMERS_SCHEMA,
    POINTS,
    POOLED,
    SPLITS,
    TIMINGS,
    TRACES_SCHEMA,
    DealtShape,
    EnvironmentShape,
    count_key,
    line_shape,
    score_keys,
)
from fedbench.results.trace import Trace
from fedbench.tasks import Metric, Task

DEALT, ENVIRONMENT = TypeAdapter(DealtShape), TypeAdapter(EnvironmentShape)
CLIENT = ["seed", "round", "client", "point", "participated"]


class Records:
    """The records of one configuration, in one folder per seed or one for all.

    Missing files give empty frames and dicts; damaged ones, and those that have changed since they were written, are
    left out and named in `problems`. Raises ConfigError if the first folder holds no run.
    """

    def __init__(self, path: str | Path, *more: str | Path) -> None:
        self.path, self.folders = Path(path), [Path(path), *map(Path, more)]
        self._files = RunFiles(self.folders)
        if not (is_run(self.path) or (self.path / "config.yaml").exists()):
            raise ConfigError(f"{self.path}: no run here (neither metrics.jsonl nor config.yaml); give a run's folder")

    @property
    def problems(self) -> list[str]:
        """Files and lines that could not be read so far."""
        return [line for lines in self._files.problems.values() for line in lines]

    @property
    def remedies(self) -> list[str]:
        """Every problem once, with the name of its folder and its remedy."""
        return self._files.remedies

    def task(self) -> Task:
        """The task of the models."""
        return self._task

    @cached_property
    def _task(self) -> Task:
        name = str(self.environment().get("task") or "classification")
        if name not in tasks.names() and ":" not in name:
            raise ConfigError(
                f"{self.path / 'environment.json'}: damaged (task: {name}); one of {tasks.names()} is legal"
            )
        return tasks.load(name, self.config().get("evaluate"))

    def metric(self) -> Metric:
        """The primary metric."""
        return self.task().primary

    def metrics(self) -> pd.DataFrame:
        """metrics.jsonl: one row per seed, round and point, in that order; null is NaN. Cached.

        Scores on the common test set, over all samples, and numbers of clients are columns only where recorded.
        """
        return self._metrics.copy()

    @cached_property
    def _metrics(self) -> pd.DataFrame:
        lines, key = self._files.lines("metrics.jsonl"), ["seed", "round", "point"]
        known = {name for _, line in lines for name in line}
        more = [
            *(f"{begin}_{metric.name}" for begin in (COMMON, POOLED) for metric in self.task().metrics),
            *(count_key(split, metric.name) for metric in self.task().metrics for split in SPLITS),
        ]
        numbers = [*score_keys(self.task()), *COST_KEYS, *(name for name in more if name in known)]
        shape = line_shape((*numbers,))
        order = {point: rank for rank, point in enumerate(POINTS)}
        last = {
            (line["seed"], line["round"], order.get(point := line["point"], len(order)), point): line
            for folder, line in lines
            if self._is_sound(folder, line, shape)
        }
        rows = [last[rank] for rank in sorted(last)]
        columns = {name: [row.get(name) for row in rows] for name in (*key, *numbers, "clients", "failed")}
        return pd.DataFrame(columns | {name: np.array(columns[name], dtype=float) for name in numbers})

    def clients(self) -> pd.DataFrame:
        """clients.parquet: one row per seed, round, client and point; one column per split and metric. Cached.

        test_n: samples behind the primary test metric, NaN if it is a mean over batches.
        """
        return self._clients.copy()

    @cached_property
    def _clients(self) -> pd.DataFrame:
        rows = self._client_rows()
        known = [f"{split}_{metric.name}" for metric in self.task().metrics for split in SPLITS]
        column = pd.Index(known).get_indexer(pd.Index(rows["split"] + "_" + rows["metric"]))
        rows, column = rows[column >= 0], column[column >= 0]
        row = rows.groupby(CLIENT).ngroup().to_numpy()  # by arrays, because a pivot takes five times as long
        _, firsts = np.unique(row, return_index=True)
        values = np.full((len(firsts), len(known)), nan)
        values[row, column] = rows["value"]
        wide = rows[CLIENT].iloc[firsts].reset_index(drop=True).join(pd.DataFrame(values, columns=known))
        is_primary = column == known.index(f"test_{self.metric().name}")
        wide["test_n"] = (
            pd.Series(rows["n"].to_numpy()[is_primary], row[is_primary]) if self.estimator() == SAMPLES else nan
        )
        return wide

    def groups(self) -> pd.DataFrame:
        """The primary test metric of single labels, classes and domains, one row per client and group.

        Columns: seed, round, client, point, by (`label`, `class` or `domain`), group, value, n.
        """
        if not (self.config().get("evaluate") or {}).get("by") and not self.task().by_label:
            return pd.DataFrame(columns=["seed", "round", "client", "point", "by", "group", "value", "n"])
        rows = self._client_rows()
        name = rows["metric"].str.extract(rf"^{self.metric().name}/(?P<by>\w+)=(?P<group>.*)$", flags=DOTALL)
        whole = rows[CLIENT[:4]].join(name).join(rows[["value", "n"]])
        return whole.dropna(subset=["group"]).reset_index(drop=True)

    def estimator(self) -> str:
        """The units that a client's primary metric is a mean over: `samples`, or `batches of 32`."""
        return estimator(self.config(), self.metric())

    def scores(self, metric: str, split: str) -> pd.DataFrame:
        """One metric on one split from clients.parquet in long form: `value` is a mean over `n` samples."""
        rows = self._client_rows()
        return rows[(rows["metric"] == metric) & (rows["split"] == split)].reset_index(drop=True)

    def traces(self) -> pd.DataFrame:
        """traces.parquet: one row per seed, round, client (-1 for the server) and name."""
        key = ["seed", "round", "client", "name"]
        rows = self._files.table("traces.parquet", TRACES_SCHEMA).drop_duplicates(key, keep="last")
        return rows.sort_values(key[:3], kind="stable", ignore_index=True)

    def declared_traces(self) -> dict[str, Trace]:
        """The charts that the method declares for its traces, by name."""
        return {trace["name"]: Trace(**trace) for trace in self.environment().get("traces", [])}

    def outcomes(self) -> dict[tuple[int, str], MetricOutcomes]:
        """The primary metric's outcomes at the last round by seed and point, of the runs that kept some. Cached."""
        return self._outcomes

    @cached_property
    def _outcomes(self) -> dict[tuple[int, str], MetricOutcomes]:
        outcomes = {
            key: of_metric
            for folder in self.folders
            for key, points in read_outcomes(
                self._files.matching(folder, OUTCOMES), self._files.problems[folder]
            ).items()
            if (of_metric := points.of(self.metric().name)) is not None
        }
        return outcomes

    def newcomers(self) -> pd.DataFrame:
        """newcomers.parquet: one row per seed, newcomer, local epochs, images (0: all) and metric; none without any."""
        key = ["seed", "client", "images", "epochs", "metric"]
        rows = self._files.table("newcomers.parquet", NEWCOMERS_SCHEMA).drop_duplicates(key, keep="last")
        return rows.sort_values(key, ignore_index=True)

    def timings(self) -> pd.DataFrame:
        """timings.jsonl: seconds per seed and exchange, `cpu` of processors; `host_busy` is a list. Cached."""
        return self._timings.copy()

    @cached_property
    def _timings(self) -> pd.DataFrame:
        key = ["seed", "exchange"]
        lines = [
            line for _, line in self._files.lines("timings.jsonl") if all(isinstance(line.get(k), int) for k in key)
        ]
        frame = pd.DataFrame(lines, columns=list(TIMINGS)).drop_duplicates(key, keep="last")
        return frame.sort_values(key, ignore_index=True)

    def seeds(self) -> list[int]:
        """The configured seeds of the runs."""
        return [seed for config in self._configs for seed in config.get("seeds") or []]

    def complete(self) -> bool:
        """Whether metrics.jsonl holds the last round of every seed and ends with a whole line."""
        metrics, config = self.metrics(), self.config()
        done = metrics[metrics["round"] == config.get("rounds")]["seed"]
        whole = all(ends_whole(folder / "metrics.jsonl") for folder in self.folders)
        return bool(config) and set(config.get("seeds") or []) <= set(done) and whole

    def finished(self) -> bool:
        """Whether every run is marked as finished."""
        summaries = [self._files.json(folder, "summary.json") for folder in self.folders]
        return all(summary.get("complete") for summary in summaries)

    def summary(self) -> dict[str, Any]:
        """summary.json; empty until the run is finished."""
        return self._files.json(self.path, "summary.json")

    def warnings(self) -> list[str]:
        """The runs' warnings, each once; those that concern the numbers are of type Doubt."""
        summaries = [self._files.json(folder, "summary.json") for folder in self.folders]
        warnings = [summary.get("warnings") or [] for summary in summaries]
        texts = [line for lines in warnings if isinstance(lines, list) for line in lines if isinstance(line, str)]
        if any(not isinstance(lines, list) for lines in warnings) or len(texts) < sum(map(len, warnings)):
            self._files.note(self.path, "summary.json: warnings that are no text are left out")
        lists = [doubts for summary in summaries if isinstance(doubts := summary.get("doubts"), list)]
        return with_levels(dict.fromkeys(texts), [line for doubts in lists for line in doubts if isinstance(line, str)])

    def config(self) -> dict[str, Any]:
        """The resolved configuration as a tree, with the seeds of all runs."""
        config = self._configs[0]
        return {**config, "seeds": self.seeds()} if config else {}

    @cached_property
    def _configs(self) -> list[dict[str, Any]]:
        return [self._files.config(folder) for folder in self.folders]

    def environment(self) -> dict[str, Any]:
        """environment.json: versions, machine, git, task, partition_fingerprint, started, finished."""
        return self._environment

    @property
    def output_names(self) -> list[str]:
        """The author's names of the classes or labels, by number; empty if they are their numbers."""
        about = self.environment()
        return [*map(str, about.get("class_names") or about.get("class_labels") or [])]

    @property
    def is_pooled(self) -> bool:
        """Whether one model was trained on the data of all clients."""
        return bool(self.environment().get("pooled"))

    @cached_property
    def _environment(self) -> dict[str, Any]:
        environment = self._files.json(self.path, "environment.json")
        try:
            ENVIRONMENT.validate_python(environment)
        except ValidationError as error:
            for key in dict.fromkeys(str(part["loc"][0]) for part in error.errors()):
                self._files.note(self.path, f"environment.json: {key} is damaged and is left out")
                del environment[key]
        return environment

    def partition(self) -> dict[str, Any]:
        """partition.json: the clients' row numbers and class counts by seed (a string).

        From partition.npz, which replaces it if there are many clients, only the class counts.
        """
        trees = [(folder, self._files.json(folder, "partition.json")) for folder in self.folders]
        whole = {s: dealt for folder, tree in trees for s, dealt in tree.items() if self._is_dealt(folder, s, dealt)}
        counts = {name: array.tolist() for name, array in self.arrays().items() if name.endswith("/class_counts")}
        return whole | {name.partition("/")[0]: {"class_counts": rows} for name, rows in counts.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """partition.npz: arrays by `seed/name`."""
        paths = [folder / "partition.npz" for folder in self.folders]
        files = [read_arrays(path, self._files.problems[path.parent]) for path in paths if self._files.is_whole(path)]
        return {name: array for arrays in files for name, array in arrays.items()}

    def _is_dealt(self, folder: Path, seed: str, dealt: Any) -> bool:
        try:
            DEALT.validate_python(dealt)
        except ValidationError:
            self._files.note(folder, f"partition.json: the partition of seed {seed} is damaged and is left out")
            return False
        return True

    def _is_sound(self, folder: Path, line: dict[str, Any], shape: TypeAdapter[dict[str, Any]]) -> bool:
        """Whether a line of metrics.jsonl has valid values; if not, adds it to `problems`."""
        try:
            shape.validate_python(line, strict=True)
        except ValidationError as error:
            where = f"seed {line.get('seed')}, round {line.get('round')}"
            wrong = error.errors()[0]["loc"][-1]
            self._files.note(folder, f"metrics.jsonl: the line of {where} is damaged ({wrong}) and is left out")
            return False
        return True

    def _client_rows(self) -> pd.DataFrame:
        key = [*CLIENT, "split", "metric"]
        return self._files.table("clients.parquet", CLIENTS_SCHEMA).drop_duplicates(key, keep="last")


def is_run(path: Path) -> bool:
    """Whether the folder holds a run that has begun, also if it has lost its metrics."""
    return any(os.path.lexists(path / name) for name in ("metrics.jsonl", "summary.json")) or any(
        path.glob(CHECKPOINTS)
    )
