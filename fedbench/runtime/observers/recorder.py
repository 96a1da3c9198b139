"""Writes the records of a run in progress: metrics and timings line by line, client and trace rows piece by piece.

Every checkpoint writes the new rows into files of their own, which are merged at the end. So no row is written again
with the next checkpoint or stays in memory until then.
"""

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedbench.checksums import changes, checksums
from fedbench.results import files, schema
from fedbench.results.remarks import doubts_in, with_levels
from fedbench.results.schema import MetricsLine
from fedbench.results.statistics import worst_tenth
from fedbench.runtime.exchange import Joining, Scores
from fedbench.runtime.observers.observer import EvaluatedRound, Observer
from fedbench.tasks import Score, Task, mean_of

NEWCOMERS = "newcomers.parquet"
KEPT = "checkpoint/*/exchange-*.npz"
"""The outcomes and predictions of earlier exchanges."""
LINE_FILES = ("metrics.jsonl", "timings.jsonl")
CODES = {pa.int32(): "i", pa.string(): "i", pa.float64(): "d", pa.bool_(): "B"}
"""The type codes of `array` for columns; strings are kept as numbers."""
MOST_COUNTED = 2**31 - 1
"""The largest `n` that 32 bits hold."""


class Columns:
    """Rows of a table that grows row by row."""

    def __init__(self, layout: pa.Schema) -> None:
        self.layout = layout
        self.clear()

    def clear(self) -> None:
        self._columns = {field.name: array(CODES[field.type]) for field in self.layout}
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._columns["seed"])

    def add(self, *row: Any) -> None:
        """Add a row in the order of the columns; strings are stored as numbers."""
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(self._names.setdefault(value, len(self._names)) if isinstance(value, str) else value)

    def table(self) -> pa.Table:
        words = pa.array(list(self._names), pa.string())
        columns = {name: np.frombuffer(column, column.typecode) for name, column in self._columns.items()}
        made = [
            pa.DictionaryArray.from_arrays(columns[field.name], words).cast(field.type)
            if pa.types.is_string(field.type)
            else pa.array(columns[field.name]).cast(field.type)
            for field in self.layout
        ]
        return pa.Table.from_arrays(made, schema=self.layout)


class Recorder(Observer):
    """Collects and writes the records of a run folder; its state goes into checkpoints."""

    def __init__(self, folder: Path, task: Task) -> None:
        self.folder, self.task = folder, task
        self.clients = Columns(schema.CLIENTS_SCHEMA)
        self.traces = Columns(schema.TRACES_SCHEMA)
        self.tables = {"clients.parquet": self.clients, "traces.parquet": self.traces}
        self.newcomers = Columns(schema.NEWCOMERS_SCHEMA)
        self.kept = 0
        self.pieces: dict[str, list[str]] = {name: [] for name in self.tables}
        self.checksums: dict[str, str] = {}
        self.warnings: list[str] = []

    def start(self) -> None:
        """Delete what an earlier attempt wrote before its first checkpoint."""
        for name in LINE_FILES:
            with files.name_file_in_errors(self.folder / name):
                (self.folder / name).unlink(missing_ok=True)
        self._forget_rows()

    def line(
        self,
        seed: int,
        round: int,
        point: str,
        scores: dict[int, Scores],
        pooled: float | None = None,
        **more: Any,
    ) -> MetricsLine:
        """The metrics line of one point from its clients' scores: means over the clients that have a score.

        pooled: the primary metric over the test samples of all, if it is known.
        """
        columns, counts = dict[str, float](), dict[str, float]()
        for split in (*schema.SPLITS, schema.COMMON):
            for metric in self.task.metrics:
                if values := [*client_values(scores, split, metric.name).values()]:
                    columns[f"{split}_{metric.name}"] = sum(values) / len(values)
                    if len(values) < len(scores) and split != schema.COMMON:
                        counts[schema.count_key(split, metric.name)] = len(values)
        primary = self.task.primary
        if tests := [*client_values(scores, "test", primary.name).values()]:
            mean = sum(tests) / len(tests)
            columns["test_worst_tenth"] = worst_tenth(tests, primary.higher)
            columns["test_spread"] = (sum((a - mean) ** 2 for a in tests) / len(tests)) ** 0.5
        columns |= counts | ({} if pooled is None else {f"{schema.POOLED}_{primary.name}": pooled})
        return schema.metrics_line(self.task, seed, round, point, columns, len(scores), **more)

    def on_evaluation(self, evaluated: EvaluatedRound) -> Iterable[str]:
        """Write the lines of a round and note its rows."""
        record, took_part = evaluated.record, set(evaluated.record.took_part)
        for at in evaluated.points:
            self.add_clients(evaluated.seed, record.number, at.point, at.scores, took_part)
        self.add_traces(evaluated.seed, record.number, record.traces)
        self.write_lines([at.line for at in evaluated.points])
        return ()

    def add_clients(self, seed: int, round: int, point: str, scores: Mapping[int, Scores], took_part: set[int]) -> None:
        for client, by_split in sorted(scores.items()):
            for split, score in by_split.items():
                for row in _metric_rows(score):
                    self.clients.add(seed, round, client, point, split, *row, client in took_part)

    def add_newcomer(self, seed: int, client: int, joining: Joining, score: Score) -> None:
        for row in _metric_rows(score):
            self.newcomers.add(seed, client, *joining, *row)

    def add_traces(self, seed: int, round: int, values: dict[tuple[int, str], float]) -> None:
        for (client, name), value in values.items():
            # NaN has many bit patterns; use one.
            self.traces.add(seed, round, client, name, nan if isnan(value) else value)

    def write_lines(self, lines: Sequence[MetricsLine]) -> None:
        """Append a round's lines to metrics.jsonl, on disk from the next checkpoint on, as the rows are."""
        if lines:
            files.append_lines(self.folder / "metrics.jsonl", map(schema.as_json, lines))

    def write_timing(self, timing: dict[str, Any]) -> None:
        """Append a round's seconds to timings.jsonl."""
        path = self.folder / "timings.jsonl"
        with files.name_file_in_errors(path), open(path, "a") as file:
            file.write(json.dumps(timing) + "\n")

    def keep(self) -> None:
        """Write the rows since the last checkpoint into new pieces. Raises OSError, keeping the rows in memory."""
        self._flush_lines()
        (self.folder / files.PIECES).mkdir(parents=True, exist_ok=True)
        filled = [
            (name, self._piece_path(name, self.kept + 1), rows) for name, rows in self.tables.items() if len(rows)
        ]
        for _, path, rows in filled:
            files.write_tables_atomically(path, [rows.table()], rows.layout)
        for name, path, rows in filled:
            self.pieces[name].append(path.name)
            self.checksums |= checksums(self.folder, [(files.PIECES / path.name).as_posix()])
            rows.clear()
        self.kept += 1

    def _flush_lines(self) -> None:
        """Flush metrics.jsonl to disk: its lines since the last checkpoint."""
        path = self.folder / "metrics.jsonl"
        if path.exists():
            files.flush(path)

    def write_tables(self) -> None:
        """Write clients.parquet and traces.parquet from the pieces and the rows since, and that of newcomers."""
        self._flush_lines()
        if len(self.newcomers):  # added after the last checkpoint, so there are no pieces
            table = self.newcomers.table()
            files.write_tables_atomically(self.folder / NEWCOMERS, [table], self.newcomers.layout)
        for name, rows in self.tables.items():
            parts = (pq.read_table(path) for path in self._piece_paths(name))
            files.write_tables_atomically(self.folder / name, chain(parts, [rows.table()]), rows.layout)

    def state(self) -> dict[str, Any]:
        """The recorder's part of a checkpoint: names of the pieces, length of metrics.jsonl, checksums of all."""
        kept = {path.relative_to(self.folder).as_posix() for path in self.folder.glob(KEPT)}
        self.checksums |= checksums(self.folder, sorted(kept - self.checksums.keys()))
        lines = checksums(self.folder, ["metrics.jsonl"])
        length = _length(self.folder / "metrics.jsonl")
        pieces = {name: list(own) for name, own in self.pieces.items()}
        warnings, doubts = [*map(str, self.warnings)], doubts_in(self.warnings)
        known = {"kept": self.kept, "pieces": pieces, "warnings": warnings, "doubts": doubts, "length": length}
        return {**known, "files": {**self.checksums, **lines}}

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a checkpoint: later rows and lines are cut off, except for timings, of which the last count.

        Raises ConfigError if a file that the checkpoint needs is missing, cut or changed.
        """
        path, known = self.folder / "metrics.jsonl", dict(state.get("files", {}))
        for name, why in changes(self.folder, known, grow=[path.name]):
            raise files.damage_error(self.folder / name, f"{why}, and the checkpoint needs it", self.folder)
        self.checksums = {name: checksum for name, checksum in known.items() if name != path.name}
        if _length(path) < state["length"]:
            raise files.damage_error(path, f"missing or cut, the checkpoint needs {state['length']} bytes of it")
        self.kept, self.warnings = state["kept"], with_levels(state["warnings"], state.get("doubts", ()))
        self.pieces = {name: list(pieces) for name, pieces in state["pieces"].items()}
        for piece in chain.from_iterable(map(self._piece_paths, self.tables)):
            _check_whole(piece, self.folder)
        self._forget_rows()
        if _length(path) > state["length"]:
            os.truncate(path, state["length"])
        files.append_lines(self.folder / "timings.jsonl", [])  # no half line

    def _forget_rows(self) -> None:
        """Delete all rows that are not in the checkpoint's pieces."""
        (self.folder / NEWCOMERS).unlink(missing_ok=True)
        for name in self.tables:
            (self.folder / name).unlink(missing_ok=True)
            for path in set(self.folder.glob(files.table_pieces(name))).difference(self._piece_paths(name)):
                path.unlink()

    def _piece_paths(self, name: str) -> list[Path]:
        return [self.folder / files.PIECES / piece for piece in self.pieces[name]]

    def _piece_path(self, name: str, number: int) -> Path:
        stem, dot, suffix = name.partition(".")
        return self.folder / files.PIECES / f"{stem}-{number:06d}{dot}{suffix}"


def _metric_rows(score: Score) -> Iterator[tuple[str, float, int]]:
    """Every metric of a score, its value, and the number of what it is a mean of."""
    for metric, (_, weight) in score.items():
        yield metric, mean_of(score, metric), min(int(weight), MOST_COUNTED)  # of pixels there may be more


def client_values(scores: Mapping[int, Scores], split: str, metric: str) -> dict[int, float]:
    """The clients' means, ascending by client; those without the split or the metric are left out."""
    held = {client: by_split.get(split, {}) for client, by_split in sorted(scores.items())}
    return {client: mean_of(score, metric) for client, score in held.items() if metric in score}


def _check_whole(piece: Path, folder: Path) -> None:
    """Raises ConfigError if a table of a run's folder is missing or cannot be read."""
    try:
        pq.read_metadata(piece)
    except (OSError, pa.ArrowException):
        raise files.damage_error(piece, "missing or damaged, and the checkpoint needs it", folder) from None


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
