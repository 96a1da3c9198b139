"""What a run writes while it runs: metrics and timings line by line, client and trace rows in columns."""

import json
import os
from array import array
from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from fedbench.errors import ConfigError
from fedbench.results import files, schema
from fedbench.results.schema import Line
from fedbench.results.statistics import worst_tenth
from fedbench.runtime.exchange import Scores
from fedbench.tasks import Task, mean_of

LINE_FILES = ("metrics.jsonl", "timings.jsonl")
CLIENT_COLUMNS = dict(
    seed="i", round="i", client="i", point="H", split="H", metric="H", value="d", n="i", participated="B"
)
TRACE_COLUMNS = dict(seed="i", round="i", client="i", name="i", value="d")
"""Columns with the type codes of `array`; names are numbers in `Columns.names`."""


class Columns:
    """A table that grows row by row and is written as a whole."""

    def __init__(self, codes: dict[str, str]) -> None:
        self.columns = {name: array(code) for name, code in codes.items()}
        self.names: dict[str, int] = {}

    def add(self, *row: Any) -> None:
        """A row in the order of the columns; a word stands for a name."""
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(self.names.setdefault(value, len(self.names)) if isinstance(value, str) else value)

    def write(self, path: Path, layout: pa.Schema) -> None:
        words = pa.array(list(self.names), pa.string())
        columns = {name: np.frombuffer(column, column.typecode) for name, column in self.columns.items()}
        made = [
            pa.DictionaryArray.from_arrays(columns[field.name].astype(np.int32), words).cast(field.type)
            if pa.types.is_string(field.type)
            else pa.array(columns[field.name]).cast(field.type)
            for field in layout
        ]
        files.write_parquet_atomically(path, pa.Table.from_arrays(made, schema=layout), layout)

    def state(self) -> dict[str, Any]:
        columns = {name: torch.from_numpy(np.array(column)) for name, column in self.columns.items()}
        return {"columns": columns, "names": dict(self.names)}

    def restore(self, state: dict[str, Any]) -> None:
        self.names = dict(state["names"])
        for name, column in self.columns.items():
            del column[:]
            column.frombytes(state["columns"][name].numpy().tobytes())


class Recorder:
    """Collects and writes the records of a run folder; its state goes into checkpoints."""

    def __init__(self, folder: Path, task: Task) -> None:
        self.folder, self.task = folder, task
        self.clients, self.traces = Columns(CLIENT_COLUMNS), Columns(TRACE_COLUMNS)
        self.warnings: list[str] = []

    def start(self) -> None:
        """Forget what an earlier attempt wrote before its first checkpoint."""
        for name in LINE_FILES:
            (self.folder / name).unlink(missing_ok=True)

    def line(self, seed: int, round: int, point: str, scores: dict[int, Scores], **more: Any) -> Line:
        """The line of one point from its clients' scores: means over the clients that have the split."""
        columns = {
            f"{split}_{metric.name}": sum(values) / len(values)
            for split in schema.SPLITS
            for metric in self.task.metrics
            if (values := _values(scores, split, metric.name))
        }
        primary = self.task.primary
        if tests := _values(scores, "test", primary.name):
            mean = sum(tests) / len(tests)
            columns["test_worst_tenth"] = worst_tenth(tests, primary.higher)
            columns["test_spread"] = (sum((a - mean) ** 2 for a in tests) / len(tests)) ** 0.5
        return schema.metrics_line(self.task, seed, round, point, columns, len(scores), **more)

    def add_clients(self, seed: int, round: int, point: str, scores: dict[int, Scores], took_part: set[int]) -> None:
        for client, by_split in sorted(scores.items()):
            for split, score in by_split.items():
                for metric, (_, weight) in score.items():
                    value = mean_of(score, metric)
                    self.clients.add(seed, round, client, point, split, metric, value, int(weight), client in took_part)

    def add_traces(self, seed: int, round: int, values: dict[tuple[int, str], float]) -> None:
        for (client, name), value in values.items():
            # Of many bit patterns of NaN only one.
            self.traces.add(seed, round, client, name, nan if isnan(value) else value)

    def write_lines(self, lines: Sequence[Line]) -> None:
        """Append a round's lines to metrics.jsonl."""
        if lines:
            files.append_lines(self.folder / "metrics.jsonl", map(schema.as_json, lines))

    def write_timing(self, timing: dict[str, Any]) -> None:
        """Append a round's seconds to timings.jsonl."""
        path = self.folder / "timings.jsonl"
        with files.naming(path), open(path, "a") as file:
            file.write(json.dumps(timing) + "\n")

    def write_tables(self) -> None:
        """clients.parquet and traces.parquet, whole."""
        self.clients.write(self.folder / "clients.parquet", schema.CLIENTS_SCHEMA)
        self.traces.write(self.folder / "traces.parquet", schema.TRACES_SCHEMA)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: the columns, and how long metrics.jsonl was."""
        return {
            "clients": self.clients.state(),
            "traces": self.traces.state(),
            "warnings": list(self.warnings),
            "length": _length(self.folder / "metrics.jsonl"),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint: later lines are cut off, but for seconds, of which the last count."""
        self.clients.restore(state["clients"])
        self.traces.restore(state["traces"])
        self.warnings = list(state["warnings"])
        path = self.folder / "metrics.jsonl"
        if _length(path) < state["length"]:
            raise ConfigError(
                f"{path}: missing or cut, the checkpoint knows {state['length']} bytes of it; bring it back, or delete "
                f"{self.folder} to run it anew"
            )
        if _length(path) > state["length"]:
            os.truncate(path, state["length"])
        files.append_lines(self.folder / "timings.jsonl", [])  # no half line


def _values(scores: dict[int, Scores], split: str, metric: str) -> list[float]:
    """The clients' means, ascending by client; those without the split or the metric are left out."""
    held = [by_split[split] for _, by_split in sorted(scores.items()) if split in by_split]
    return [mean_of(score, metric) for score in held if metric in score]


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
