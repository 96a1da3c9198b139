"""The schema of what a run leaves, its writers and its readers (docs/architecture.md, 'What a run leaves')."""

import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from fedbench.errors import ConfigError
from fedbench.results.statistics import interval

Point = Literal["after_fit", "after_agg", "global"]
POINTS: tuple[Point, ...] = ("after_fit", "after_agg", "global")
SUMMARISED = ("test_accuracy", "val_accuracy", "test_worst_tenth")

CLIENTS_SCHEMA = pa.schema(
    [
        ("seed", pa.int32()),
        ("round", pa.int32()),
        ("client", pa.int32()),
        ("point", pa.string()),
        ("val_accuracy", pa.float64()),
        ("test_accuracy", pa.float64()),
        ("val_loss", pa.float64()),
        ("test_loss", pa.float64()),
        ("val_n", pa.int32()),
        ("test_n", pa.int32()),
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
CLIENTS_KEY = ["seed", "round", "client", "point"]
TRACES_KEY = ["seed", "round", "client", "name"]
METRICS_KEY = ["seed", "round", "point"]
TIMINGS = ("seed", "exchange", "train", "comm", "server", "eval", "log", "total", "host_busy", "rss_mb")


@dataclass
class MetricsLine:
    """One line of metrics.jsonl; the order of the fields is the order of the keys.

    Accuracies are fractions in [0, 1]; `train_loss`, `steps`, `bytes_up` and `bytes_down` belong to after_fit only.
    """

    seed: int
    round: int
    point: Point
    val_accuracy: float | None = None
    test_accuracy: float | None = None
    val_loss: float | None = None
    test_loss: float | None = None
    test_worst_tenth: float | None = None
    test_spread: float | None = None
    clients: int = 0
    train_loss: float | None = None
    steps: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    failed: list[tuple[int, str]] = field(default_factory=list)

    def to_json(self) -> str:
        """One line without its line break; what is not finite becomes null."""
        return json.dumps({key: _finite(value) for key, value in asdict(self).items()})


METRICS = tuple(f.name for f in fields(MetricsLine))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a whole file or leaves the old one: a temporary file beside it, flushed to disk, renamed."""
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp gives 0600, but results are there to be shared
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json_atomically(path: Path, value: Any) -> None:
    """As indented JSON, keys in their own order."""
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def write_parquet_atomically(path: Path, columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> None:
    """Writes equally long columns, one per field of the schema (CLIENTS_SCHEMA or TRACES_SCHEMA)."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(dict(columns), schema=schema), sink)
    write_atomically(path, sink.getvalue().to_pybytes())


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Appends whole lines to a jsonl file and flushes them to disk; a half-written last line is cut off first."""
    text = "".join(line + "\n" for line in lines).encode()
    with open(path, "a+b") as file:
        _cut_half_line(file)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _cut_half_line(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _whole_lines(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The objects of a jsonl file; a half-written last line is ignored, any other bad line is named in `problems`."""
    if not path.exists():
        return []
    *whole, _ = path.read_text(errors="replace").split("\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(whole, 1):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            problems.append(f"{path.name}: line {number} cannot be read and is left out")
    return rows


def _read_table(path: Path, schema: pa.Schema, key: list[str], problems: list[str]) -> pd.DataFrame:
    """A parquet file without doubled rows; an empty frame with the schema's columns when there is none."""
    table = schema.empty_table()
    if path.exists():
        try:
            table = pq.read_table(path).select(schema.names).cast(schema)
        except (pa.ArrowException, OSError, KeyError) as error:
            problems.append(f"{path.name} cannot be read and is left out ({str(error).splitlines()[0]})")
    return table.to_pandas().drop_duplicates(key, keep="last").sort_values(key[:3], kind="stable", ignore_index=True)


def _read_json(path: Path, problems: list[str]) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text())
    except ValueError:
        problems.append(f"{path.name} cannot be read and is left out")
        return {}
    return value if isinstance(value, dict) else {}


class RunFolder:
    """Reads what one run left; missing files give empty frames and dicts, damaged ones are named in `problems`.

    Raises ConfigError when the folder holds no run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problems: list[str] = []
        if not any((self.path / name).exists() for name in ("metrics.jsonl", "config.yaml")):
            raise ConfigError(f"{self.path}: no run here (neither metrics.jsonl nor config.yaml); give a run's folder")

    def metrics(self) -> pd.DataFrame:
        """metrics.jsonl: one row per seed, round and point, in that order; null is NaN."""
        rows = _whole_lines(self.path / "metrics.jsonl", self.problems)
        frame = pd.DataFrame(rows, columns=list(METRICS))
        numbers = [name for name in METRICS if name not in ("seed", "round", "point", "clients", "failed")]
        frame = frame.astype(dict.fromkeys(numbers, "float64"))
        frame = frame.drop_duplicates(METRICS_KEY, keep="last")
        order = {point: i for i, point in enumerate(POINTS)}
        return frame.sort_values(METRICS_KEY, key=lambda c: c.map(order) if c.name == "point" else c, ignore_index=True)

    def clients(self) -> pd.DataFrame:
        """clients.parquet: one row per seed, round, client and point."""
        return _read_table(self.path / "clients.parquet", CLIENTS_SCHEMA, CLIENTS_KEY, self.problems)

    def traces(self) -> pd.DataFrame:
        """traces.parquet: one row per seed, round, client (-1 for the server) and name."""
        return _read_table(self.path / "traces.parquet", TRACES_SCHEMA, TRACES_KEY, self.problems)

    def timings(self) -> pd.DataFrame:
        """timings.jsonl: seconds per seed and exchange; `host_busy` is a list, `rss_mb` megabytes."""
        frame = pd.DataFrame(_whole_lines(self.path / "timings.jsonl", self.problems), columns=list(TIMINGS))
        return frame.drop_duplicates(["seed", "exchange"], keep="last").sort_values(
            ["seed", "exchange"], ignore_index=True
        )

    def complete(self) -> bool:
        """Whether metrics.jsonl holds the last round of every seed and ends with a whole line."""
        return _complete(self, self.config(), self.metrics())

    def summary(self) -> dict[str, Any]:
        """summary.json; empty while the run is not over."""
        return _read_json(self.path / "summary.json", self.problems)

    def config(self) -> dict[str, Any]:
        """The resolved configuration as a tree."""
        path = self.path / "config.yaml"
        if not path.exists():
            return {}
        try:
            tree = yaml.safe_load(path.read_text())
        except yaml.YAMLError:
            self.problems.append("config.yaml cannot be read and is left out")
            return {}
        return tree if isinstance(tree, dict) else {}

    def environment(self) -> dict[str, Any]:
        """environment.json: versions, machine, git, partition_fingerprint, started, finished."""
        return _read_json(self.path / "environment.json", self.problems)

    def partition(self) -> dict[str, Any]:
        """partition.json: per seed (a string) the clients' row numbers and class counts."""
        return _read_json(self.path / "partition.json", self.problems)


class GridFolder:
    """Reads what a grid left. Raises ConfigError when the folder holds no readable grid.json."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problems: list[str] = []
        self._grid = _read_json(self.path / "grid.json", self.problems)
        if not self._grid:
            raise ConfigError(f"{self.path}: no grid here (grid.json is missing or damaged); give a grid's folder")

    def grid(self) -> dict[str, Any]:
        """grid.json as it is."""
        return self._grid

    def space(self) -> dict[str, list[Any]]:
        """The tried values per key."""
        return dict(self._grid.get("space") or {})

    def cells(self) -> pd.DataFrame:
        """One row per cell: name, status, error, val_accuracy, test_accuracy, path, and a column per key."""
        names = ["name", "status", "error", "val_accuracy", "test_accuracy", "path"]
        rows = [{**cell.get("values", {}), **{n: cell.get(n) for n in names}} for cell in self._grid.get("cells", [])]
        # Objects: a value of none must stay None beside numbers.
        return pd.DataFrame(rows, columns=[*names, *self.space()], dtype=object)

    def best(self) -> dict[str, Any] | None:
        """The chosen cell; None when every cell failed."""
        return next((c for c in self._grid.get("cells", []) if c["name"] == self._grid.get("best")), None)

    def final(self) -> dict[str, RunFolder]:
        """The final runs by method, the grid's own method first; those that were never started are left out."""
        paths = self._grid.get("final") or {}
        own = self._grid.get("method")
        order = sorted(paths, key=lambda method: method != own)
        return {method: RunFolder(self.path / paths[method]) for method in order if is_run(self.path / paths[method])}


def is_run(path: Path) -> bool:
    """Whether the folder holds the records of a run."""
    return (path / "metrics.jsonl").exists()


def is_grid(path: Path) -> bool:
    """Whether the folder holds a grid."""
    return (path / "grid.json").exists()


def at_last_round(metrics: pd.DataFrame) -> pd.DataFrame:
    """Per seed and point the row of the last evaluated round."""
    tested = metrics.dropna(subset=["test_accuracy"])
    return tested.loc[tested.groupby(["seed", "point"], sort=False)["round"].idxmax()].reset_index(drop=True)


def at_best_round(metrics: pd.DataFrame, by: str = "val_accuracy") -> pd.DataFrame:
    """Per seed and point the row of the round with the highest `by` (the first of equals); round 0 is no candidate."""
    tested = metrics[metrics["round"] > 0].dropna(subset=["test_accuracy", by])
    return tested.loc[tested.groupby(["seed", "point"], sort=False)[by].idxmax()].reset_index(drop=True)


def summarise(run: RunFolder, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The content of summary.json, derived from metrics.jsonl, clients.parquet, timings.jsonl and config.yaml."""
    config, metrics = run.config(), run.metrics()
    method = dict(config.get("method") or {})
    return {
        "name": config.get("name") or run.path.name,
        "method": method.pop("name", None),
        "method_options": method,
        **{key: (config.get(key) or {}).get("name") for key in ("data", "partition", "model")},
        "seeds": config.get("seeds") or sorted({int(seed) for seed in metrics["seed"]}),
        "rounds": config.get("rounds"),
        "points": {p: _point(metrics[metrics["point"] == p]) for p in POINTS if (metrics["point"] == p).any()},
        **_cost(run, config, metrics),
        "warnings": list(warnings),
        "failed": failures(metrics),
        "complete": _complete(run, config, metrics),
    }


def failures(metrics: pd.DataFrame) -> list[list[Any]]:
    """`[seed, round, client, reason]` of every client that was left out of a round, each once."""
    rows = metrics[["seed", "round", "failed"]].itertuples(index=False)
    found = [(int(s), int(r), client, reason) for s, r, failed in rows for client, reason in _listed(failed)]
    return [list(entry) for entry in dict.fromkeys(found)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _point(metrics: pd.DataFrame) -> dict[str, Any]:
    best = at_best_round(metrics)
    out = {"last": _intervals(at_last_round(metrics)), "best_val": _intervals(best)}
    if out["best_val"]:
        out["best_val"]["rounds"] = best["round"].tolist()
    return out


def _intervals(rows: pd.DataFrame) -> dict[str, Any]:
    known = [name for name in SUMMARISED if rows[name].notna().any()]
    return {name: interval(rows[name].tolist()).to_dict() for name in known}


def _cost(run: RunFolder, config: dict[str, Any], metrics: pd.DataFrame) -> dict[str, Any]:
    """Bytes and steps per client and participated round; seconds as the median over rounds, which spares warm-up."""
    rounds = metrics[(metrics["point"] == "after_fit") & (metrics["round"] > 0)]
    shares = rounds[["bytes_up", "bytes_down", "steps"]].div(participants(run.clients(), config, rounds), axis=0)
    seconds = pd.to_numeric(run.timings()["total"]).median()
    cost = {**shares.mean().to_dict(), "seconds_per_round": seconds}
    return {str(key): None if pd.isna(value) else float(value) for key, value in cost.items()}


def participants(clients: pd.DataFrame, config: dict[str, Any], rounds: pd.DataFrame) -> pd.Series:
    """Clients that took part in each of the given rounds (rows of metrics), aligned to their index.

    Counted where every client was evaluated, else as the configuration asked.
    """
    total = (config.get("partition") or {}).get("clients") or rounds["clients"]
    share = config.get("participation") or 1.0
    asked = pd.Series(share if share > 1 else total * share, index=rounds.index).round().clip(lower=1)
    if (config.get("evaluate") or {}).get("clients"):
        return asked
    counted = clients[clients["participated"]].groupby(["seed", "round"])["client"].nunique().rename("counted")
    return rounds.join(counted, on=["seed", "round"])["counted"].fillna(asked)


def _complete(run: RunFolder, config: dict[str, Any], metrics: pd.DataFrame) -> bool:
    done = metrics[metrics["round"] == config.get("rounds")]["seed"]
    return bool(config) and set(config.get("seeds") or []) <= set(done) and _ends_whole(run.path / "metrics.jsonl")


def _ends_whole(path: Path) -> bool:
    return path.exists() and path.read_bytes().endswith(b"\n")
