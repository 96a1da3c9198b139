"""What a run writes while it runs: metrics and timings line by line, client and trace rows in columns."""

import json
import os
from array import array
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedbench.results import records
from fedbench.results.records import MetricsLine
from fedbench.results.statistics import worst_tenth
from fedbench.runtime.exchange import Scores

CLIENT_COLUMNS = (
    {"seed": "q", "round": "q", "client": "q", "point": "B", "participated": "B"}
    | dict.fromkeys(("val_accuracy", "test_accuracy", "val_loss", "test_loss"), "d")
    | {"val_n": "q", "test_n": "q"}
)
LINE_FILES = ("metrics.jsonl", "timings.jsonl")
TRACE_COLUMNS = {"seed": "q", "round": "q", "client": "q", "name": "q", "value": "d"}


class Recorder:
    """Collects and writes the records of a run folder; its state goes into checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clients = {name: array(code) for name, code in CLIENT_COLUMNS.items()}
        self.traces = {name: array(code) for name, code in TRACE_COLUMNS.items()}
        self.trace_names: dict[str, int] = {}
        self.warnings: list[str] = []

    def start(self) -> None:
        """Forget what an earlier attempt wrote before its first checkpoint."""
        for name in LINE_FILES:
            (self.folder / name).unlink(missing_ok=True)

    def line(self, seed: int, round: int, point: str, scores: dict[int, Scores], **more: Any) -> MetricsLine:
        """The line of one point from its clients' scores; NaN-free means over the clients that have the split."""
        columns: dict[str, Any] = {}
        for split in ("val", "test"):
            held = [by_split[split] for _, by_split in sorted(scores.items()) if split in by_split]
            if held:
                columns[f"{split}_accuracy"] = sum(s.accuracy for s in held) / len(held)
                columns[f"{split}_loss"] = sum(s.loss for s in held) / len(held)
        tests = [by_split["test"].accuracy for _, by_split in sorted(scores.items()) if "test" in by_split]
        if tests:
            mean = sum(tests) / len(tests)
            columns["test_worst_tenth"] = worst_tenth(tests)
            columns["test_spread"] = (sum((a - mean) ** 2 for a in tests) / len(tests)) ** 0.5
        return MetricsLine(seed, round, point, clients=len(scores), **columns, **more)  # type: ignore[arg-type]

    def add_clients(self, seed: int, round: int, point: str, scores: dict[int, Scores], took_part: set[int]) -> None:
        for client, by_split in sorted(scores.items()):
            row: dict[str, Any] = dict(seed=seed, round=round, client=client, participated=client in took_part)
            row["point"] = records.POINTS.index(point)
            for split in ("val", "test"):
                score = by_split.get(split)
                row[f"{split}_accuracy"] = score.accuracy if score else nan
                row[f"{split}_loss"] = score.loss if score else nan
                row[f"{split}_n"] = score.count if score else 0
            for name, column in self.clients.items():
                column.append(row[name])

    def add_traces(self, seed: int, round: int, values: dict[tuple[int, str], float]) -> None:
        for (client, name), value in values.items():
            code = self.trace_names.setdefault(name, len(self.trace_names))
            for column, entry in zip(self.traces.values(), (seed, round, client, code, value), strict=True):
                column.append(entry)  # type: ignore[arg-type]

    def write_lines(self, lines: Sequence[MetricsLine]) -> None:
        """Append a round's lines to metrics.jsonl."""
        if lines:
            records.append_lines(self.folder / "metrics.jsonl", [line.to_json() for line in lines])

    def write_timing(self, timing: dict[str, Any]) -> None:
        """Append a round's seconds to timings.jsonl."""
        with open(self.folder / "timings.jsonl", "a") as file:
            file.write(json.dumps(timing) + "\n")

    def write_tables(self) -> None:
        """clients.parquet and traces.parquet, whole."""
        points = [records.POINTS[code] for code in self.clients["point"]]
        took_part = [bool(flag) for flag in self.clients["participated"]]
        columns: dict[str, Any] = {**self.clients, "point": points, "participated": took_part}
        records.write_parquet_atomically(self.folder / "clients.parquet", columns, records.CLIENTS_SCHEMA)
        names = list(self.trace_names)
        traces: dict[str, Any] = {**self.traces, "name": [names[code] for code in self.traces["name"]]}
        records.write_parquet_atomically(self.folder / "traces.parquet", traces, records.TRACES_SCHEMA)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: the columns, and how long metrics.jsonl was."""
        return {
            "clients": {name: torch.from_numpy(np.array(column)) for name, column in self.clients.items()},
            "traces": {name: torch.from_numpy(np.array(column)) for name, column in self.traces.items()},
            "trace_names": dict(self.trace_names),
            "warnings": list(self.warnings),
            "length": _length(self.folder / "metrics.jsonl"),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a checkpoint: later lines are cut off, but for seconds, of which the last count."""
        for kind, codes in (("clients", CLIENT_COLUMNS), ("traces", TRACE_COLUMNS)):
            columns = {name: array(code) for name, code in codes.items()}
            for name, column in columns.items():
                column.frombytes(state[kind][name].numpy().tobytes())
            setattr(self, kind, columns)
        self.trace_names, self.warnings = dict(state["trace_names"]), list(state["warnings"])
        if _length(self.folder / "metrics.jsonl") > state["length"]:
            os.truncate(self.folder / "metrics.jsonl", state["length"])
        records.append_lines(self.folder / "timings.jsonl", [])  # no half line


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
