"""reproduction.json: the reproduced numbers, and how ours compare with them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench import tasks
from fedbench.results.files import read_as, write_json_atomically
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.results.statistics import Interval, interval
from fedbench.results.tables import LAST, chosen_rows, clients_at
from fedbench.tasks import Metric

REPRODUCTION_FILE = "reproduction.json"


@dataclass(frozen=True)
class CellRecord:
    """A cell that was run. path: of its comparison, relative to the reproduction. client: of its numbers, if of one;
    pooled: over all test images; choice: of the round. numbers: the paper's, in percent, with the evaluation point that
    ours is taken at; traced: further published numbers, with the name of the trace that is compared with each;
    point: of a figure's accuracies. methods: the labels asked for, if not all; public: the classes of public sets
    (`public_sets`), if a figure shows them.
    """

    name: str
    path: str
    client: int | None
    pooled: bool
    choice: str
    numbers: list[dict[str, Any]]
    traced: list[dict[str, Any]] = field(default_factory=list)
    point: str = "after_agg"
    methods: list[str] = field(default_factory=list)
    public: list[dict[str, Any]] = field(default_factory=list)

    def runs(self, folder: Path) -> dict[str, Records]:
        """The records of its finished runs by label. folder: of the reproduction."""
        if self.public:
            return {}
        study = folder / self.path
        return Plan.read(study).records(study, only_done=True)


@dataclass(frozen=True)
class ReproductionRecord:
    """A reproduced experiment, or some of its cells. repeats: runs behind a published deviation.

    changed: differences from the paper's protocol, by dotted key. figure: what is drawn (`Figure`), if it is a figure.
    """

    id: str
    what: str
    scale: str
    open: list[str]
    changed: dict[str, Any]
    repeats: int | None
    cells: list[CellRecord]
    figure: dict[str, Any] | None = None

    @classmethod
    def read(cls, folder: Path) -> "ReproductionRecord":
        """Reads it from a folder; without cells if it has none yet. Raises ConfigError if it is damaged."""
        file = folder / REPRODUCTION_FILE
        return read_as(cls, file) if file.exists() else cls("", "", "full", [], {}, None, [])

    def write(self, folder: Path) -> None:
        write_json_atomically(folder / REPRODUCTION_FILE, asdict(self))

    def compare_numbers(self, folder: Path) -> list["ComparedNumber"]:
        """Every number of its cells, with ours if they exist."""
        return [number for cell in self.cells for number in _compare_numbers(cell, folder, self.repeats)]

    def compare_traces(self, folder: Path) -> list["ComparedTrace"]:
        """Every published number of its cells that runs trace, with ours if they exist."""
        return [trace for cell in self.cells if cell.traced for trace in _compare_traces(cell, folder)]


@dataclass(frozen=True)
class ComparedTrace:
    """A published number, and the mean over clients of a trace in the last round. ours: over seeds."""

    cell: str
    method: str
    what: str
    table: str
    published: float
    ours: Interval | None


@dataclass(frozen=True)
class ComparedNumber:
    """A published number and ours, both in percent. deviation: of the paper's repeated runs. ours: over seeds.

    point: at which ours is evaluated; empty if it was not run. is_reference: whether ours is one model on pooled data.
    """

    cell: str
    method: str
    table: str
    published: float
    deviation: float | None
    repeats: int | None
    ours: Interval | None
    point: str
    scored: str
    is_reference: bool = False

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in points."""
        return None if self.ours is None else self.ours.mean - self.published

    @property
    def error(self) -> float | None:
        """The standard error of the difference: ours over seeds, with the paper's if it has one."""
        if self.ours is None or len(self.ours.values) < 2:
            return None
        ours = float(np.var(self.ours.values, ddof=1)) / len(self.ours.values)
        theirs = 0.0 if self.deviation is None else self.deviation**2 / (self.repeats or 1)
        return math.sqrt(ours + theirs)

    @property
    def errors(self) -> float | None:
        """The difference in standard errors."""
        return None if self.difference is None or not self.error else self.difference / self.error


def _compare_numbers(cell: CellRecord, folder: Path, repeats: int | None) -> Iterator[ComparedNumber]:
    runs = cell.runs(folder)
    for number in cell.numbers:
        label = number["method"]
        run = runs.get(label)
        point = "" if run is None else _point(number.get("point", cell.point), run)
        ours = None if run is None else score_of(cell, point, run)
        scored = "" if run is None else _scoring_note(cell, run)
        published = number["table"], number["mean"], number["std"]
        pooled = run is not None and run.is_pooled
        yield ComparedNumber(cell.name, label, *published, repeats, ours, point, scored, pooled)


def _compare_traces(cell: CellRecord, folder: Path) -> Iterator[ComparedTrace]:
    runs = cell.runs(folder)
    for number in cell.traced:
        run = runs.get(number["method"])
        ours = None if run is None else last_traced(run, number["trace"], number["times"])
        about = number["what"], number["table"], number["mean"]
        yield ComparedTrace(cell.name, number["method"], *about, ours)


def rows_of_trace(traces: pd.DataFrame, name: str, client: int | None) -> pd.DataFrame:
    """The rows with a value of a trace, of all clients or of one."""
    rows = traces[traces["name"] == name].dropna(subset=["value"])
    return rows if client is None else rows[rows["client"] == client]


def last_traced(run: Records, trace: str, times: float, client: int | None = None) -> Interval | None:
    """The mean of a trace over the clients of the last traced round, or of one client, over seeds; None without it."""
    rows = rows_of_trace(run.traces(), trace, client)
    last = rows[rows["round"] == rows.groupby("seed")["round"].transform("max")]
    return interval((last.groupby("seed")["value"].mean() * times).tolist()) if len(last) else None


def _point(point: str, run: Records) -> str:
    """The evaluation point, or after aggregation for a method without it."""
    return point if point in set(run.metrics()["point"]) else "after_agg"


def score_of(cell: CellRecord, point: str, run: Records) -> Interval | None:
    """The score of a method in percent: mean over clients, over all their test images, or of one client."""
    metric = run.metric()
    rows = chosen_rows(metric, run.metrics(), point, cell.choice)
    if rows.empty:
        return None
    scores = clients_at(run.scores(metric.name, "test"), rows)
    if cell.client is not None:
        scores = scores[scores["client"] == cell.client]
    by_seed = (group for _, group in scores.groupby("seed"))
    means = [np.average(group["value"], weights=group["n"] if cell.pooled else None) for group in by_seed]
    least, most = (None if bound is None else bound * metric.factor for bound in metric.bounds)
    return interval([float(mean) * metric.factor for mean in means], bounds=(least, most))


def metric_of(runs: Mapping[str, Records]) -> Metric:
    """The primary metric of runs; accuracy if there are none yet."""
    return next((run.metric() for run in runs.values()), tasks.load("classification").primary)


def _scoring_note(cell: CellRecord, run: Records) -> str:
    """How ours is scored, unless by the plain mean over clients in the last round."""
    options = run.config().get("evaluate") or {}
    remarks = [f"mean over batches of {options.get('batch_size')}"] if options.get("accuracy") == "batches" else []
    remarks += ["pooled over all test samples"] if cell.pooled else []
    remarks += [f"client {cell.client}"] if cell.client is not None else []
    remarks += ["best round on test"] if cell.choice != LAST else []
    return ", ".join(remarks)
