"""Schemas of the records of a run (docs/reference.md)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,  # pydantic requires these below Python 3.12
    get_type_hints,
)

import pyarrow as pa
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from fedbench.results.trace import Trace
from fedbench.tasks import Task

RecordPoint = Literal["after_fit", "after_agg", "global"]
POINTS: tuple[RecordPoint, ...] = ("after_fit", "after_agg", "global")
SPLITS = ("val", "test")
COMMON = "common"
"""The split of the test samples of all clients together, which is recorded with `evaluate.common_test`."""
POOLED = "pooled"
"""Begins the key of the primary metric over the test samples of all clients together, if it is no mean over samples."""
SUMMED_COSTS = ("steps", "bytes_up", "bytes_down")
"""Costs of participants, which add up over rounds; a line has their mean over the rounds since the line before."""
COST_KEYS = ("train_loss", *SUMMED_COSTS)
TIMINGS = (
    *("seed", "exchange", "train", "comm", "server", "eval", "log", "total", "cpu", "host_busy"),
    *("rss_mb", "gpu_mb"),
)

CLIENTS_SCHEMA = pa.schema(
    [
        ("seed", pa.int32()),
        ("round", pa.int32()),
        ("client", pa.int32()),
        ("point", pa.string()),
        ("split", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("n", pa.int32()),
        ("participated", pa.bool_()),
    ]
)
TRACES_SCHEMA = pa.schema(
    [
        ("seed", pa.int32()),
        ("round", pa.int32()),
        ("client", pa.int32()),
        ("name", pa.string()),
        ("value", pa.float64()),
    ]
)

NEWCOMERS_SCHEMA = pa.schema(
    [
        ("seed", pa.int32()),
        ("client", pa.int32()),
        ("epochs", pa.int32()),
        ("images", pa.int32()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("n", pa.int32()),
    ]
)
"""Test scores of newcomers after `epochs` local epochs on so many training images; 0: on all."""

MetricsLine = dict[str, Any]
"""A line of metrics.jsonl."""


class LineShape(TypedDict):
    """The required keys of a line of metrics.jsonl, besides numbers. failed: pairs of client and reason."""

    seed: Annotated[int, Field(ge=0, lt=2**31)]
    round: Annotated[int, Field(ge=0, lt=2**31)]
    point: str
    failed: NotRequired[list[Annotated[list[int | str], Field(min_length=2, max_length=2)]]]


@cache
def line_shape(numbers: tuple[str, ...]) -> TypeAdapter[dict[str, Any]]:
    """The shape of a line of metrics.jsonl. numbers: the names of scores and costs, which may be missing."""
    fields = {**get_type_hints(LineShape, include_extras=True), **dict.fromkeys(numbers, NotRequired[float | None])}
    return TypeAdapter(TypedDict("Line", fields))  # type: ignore[operator]


ConfigSection = dict[str, Any] | None


@dataclass(frozen=True)
class ConfigShape:
    """The part of config.yaml that is read here: integers, and sections."""

    rounds: int | None = None
    seeds: list[int] | None = None
    participation: float | None = None
    name: str | None = None
    method: ConfigSection = None
    data: ConfigSection = None
    partition: ConfigSection = None
    model: ConfigSection = None
    train: ConfigSection = None
    evaluate: ConfigSection = None


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a client's model: all parameters, and those that clients share."""

    parameters: int
    shared: int


@dataclass(frozen=True)
class ShownShape:
    """A few samples: pairs of a target and a picture, or a table."""

    pictures: list[tuple[str, str]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class DataShape:
    """The data that were read, as pairs of a name and a text."""

    rows: list[tuple[str, str]]
    shown: ShownShape


@dataclass(frozen=True)
class EnvironmentShape:
    """The part of environment.json of which reports make more than text. models: by their names."""

    decisions: list[str] = field(default_factory=list)
    data: DataShape | None = None
    models: dict[str, ModelShape] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)


@dataclass(frozen=True)
class DealtShape:
    """The part of partition.json that is read here, for one seed."""

    clients: list[dict[str, Any]]
    class_counts: list[list[int]] | None = None
    names: list[str] | None = None


def score_keys(task: Task) -> list[str]:
    """The scores in a line: every metric on both splits, and how clients differ."""
    return [
        *(f"{split}_{metric.name}" for metric in task.metrics for split in SPLITS),
        "test_worst_tenth",
        "test_spread",
    ]


def count_key(split: str, metric: str) -> str:
    """The key of the number of clients behind a mean, in lines where it is smaller than `clients`."""
    return f"{split}_{metric}_clients"


def metrics_line(
    task: Task,
    seed: int,
    round: int,
    point: str,
    scores: Mapping[str, float],
    clients: int = 0,
    costs: Mapping[str, Any] | None = None,
    failed: Sequence[tuple[int, str]] = (),
) -> MetricsLine:
    """A line with its keys in order; what only some lines have comes last.

    scores: means over clients; shares, such as accuracies, are in [0, 1]. costs: at after_fit only.
    """
    known, spent = (
        {key: scores.get(key) for key in score_keys(task)},
        {key: (costs or {}).get(key) for key in COST_KEYS},
    )
    more = {key: value for key, value in scores.items() if key not in known}
    line = {"seed": seed, "round": round, "point": point, **known, "clients": clients, **spent, "failed": list(failed)}
    return line | more


def as_json(line: MetricsLine) -> str:
    """JSON without line breaks; numbers that are not finite become null."""
    return json.dumps({key: _finite(value) for key, value in line.items()})


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
