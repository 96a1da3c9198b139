"""summary.json: the summary of a run's records."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.checksums import KEY, changes, checksums, others_in
from fedbench.config.counts import count_of, newcomer_count
from fedbench.results.degenerate import degenerate_seeds
from fedbench.results.files import write_json_atomically
from fedbench.results.newcomers import newcomer_summary
from fedbench.results.outcomes import OUTCOMES_FOLDER
from fedbench.results.predictions import PREDICTIONS_FOLDER
from fedbench.results.reader import Records
from fedbench.results.remarks import doubts_in
from fedbench.results.schema import POINTS, SUMMED_COSTS
from fedbench.results.statistics import interval
from fedbench.results.tables import BEST_VAL, LAST, FinalScores, pooled_scores, weighted_scores
from fedbench.results.unscored import scored_counts, scored_text

RECORDS = (
    *("metrics.jsonl", "timings.jsonl", "clients.parquet", "traces.parquet", "newcomers.parquet"),
    *("partition.json", "partition.npz", "environment.json", "config.yaml"),
)
"""Files of a finished run that never change again."""


def write_summary(run: Records, warnings: Sequence[str]) -> None:
    """Writes summary.json, which marks a run as finished, with the checksums of its files."""
    kept = [path for name in (OUTCOMES_FOLDER, PREDICTIONS_FOLDER) for path in sorted((run.path / name).glob("*.npz"))]
    known = checksums(run.path, [*RECORDS, *(path.relative_to(run.path).as_posix() for path in kept)])
    write_json_atomically(run.path / "summary.json", {**summarise(run, warnings), KEY: known}, own_checksum=True)


def damages_in(folder: Path, summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Files of a finished run that have changed, and what is wrong with them.

    For a run without checksums, tables that cannot be read.
    """
    if not (known := others_in(summary, "summary.json")):
        run = Records(folder)
        for name, table in (("clients.parquet", run.clients), ("traces.parquet", run.traces)):
            table()
            yield from ((name, problem) for problem in run.problems)
    yield from changes(folder, known)


def summarise(
    run: Records, warnings: Sequence[str] = (), scores: bool = True, pooled: bool | None = None
) -> dict[str, Any]:
    """The summary, from metrics.jsonl, clients.parquet, timings.jsonl and config.yaml.

    scores: whether to include those of all points, which take the time. pooled: whether one model was trained on the
    data of all clients; by default as the run says.
    """
    config, metrics, metric = run.config(), run.metrics(), run.metric()
    method = dict(config.get("method") or {})
    clients = run.clients()
    known = FinalScores.of(metric, {"": metrics}, {"": clients}, {"": run.outcomes()})
    points = {point: _point(known, point) for point in POINTS if scores and (metrics["point"] == point).any()}
    return {
        "name": config.get("name") or run.path.name,
        "method": method.pop("name", None),
        "method_options": method,
        **{key: (config.get(key) or {}).get("name") for key in ("data", "partition", "model")},
        "task": run.task().name,
        "metric": metric.name,
        "seeds": config.get("seeds") or sorted({int(seed) for seed in metrics["seed"]}),
        "rounds": config.get("rounds"),
        "points": points,
        **({"new_clients": newcomer_summary(metric, later)} if len(later := run.newcomers()) else {}),
        **_cost(run, clients, config, metrics, run.is_pooled if pooled is None else pooled),
        "warnings": list(warnings),
        "doubts": doubts_in(warnings),
        **({"degenerate": seeds} if (seeds := degenerate_seeds(metrics, run.traces())) else {}),
        "failed": failures(metrics),
        "complete": run.complete(),
    }


def failures(metrics: pd.DataFrame) -> list[list[Any]]:
    """`[seed, round, client, reason]` of every client that was left out of a round, each once."""
    rows = metrics[["seed", "round", "failed"]].itertuples(index=False)
    entries = [(int(s), int(r), client, reason) for s, r, failed in rows for client, reason in _as_list(failed)]
    return [list(entry) for entry in dict.fromkeys(entries)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _point(known: FinalScores, point: str) -> dict[str, Any]:
    out = {name: _intervals(known, point, choice) for name, choice in {"last": LAST, "best_val": BEST_VAL}.items()}
    if out["best_val"]:
        out["best_val"]["rounds"] = known.rows["", point, BEST_VAL]["round"].tolist()
    return out


def _intervals(known: FinalScores, point: str, choice: str) -> dict[str, Any]:
    if (rows := known.rows.get(("", point, choice))) is None:
        return {}
    metric, clients = known.metric, known.clients["", point, choice]
    error = known.error("", point) if choice == LAST else None
    names = (f"test_{metric.name}", f"val_{metric.name}", "test_worst_tenth")
    values_by_name = {name: rows[name].tolist() for name in names if rows[name].notna().any()}
    values_by_name |= {"test_pooled": values} if (values := pooled_scores(metric, clients, rows)) else {}
    values_by_name |= {"test_weighted": values} if (values := weighted_scores(metric, clients)) else {}
    counts = scored_counts(rows, metric)
    scored = {"scored_clients": counts} if scored_text(counts, int(rows["clients"].max())) else {}
    return scored | {
        name: interval(values, samples=error if name == f"test_{metric.name}" else None, bounds=metric.bounds).to_dict()
        for name, values in values_by_name.items()
    }


def _cost(
    run: Records, clients: pd.DataFrame, config: dict[str, Any], metrics: pd.DataFrame, pooled: bool
) -> dict[str, Any]:
    """Bytes and steps of a participant of a round, and the share of clients in a round.

    Each times that share and the rounds is what the run has cost a client, mean over all. Seconds are the median over
    rounds, which ignores warm-up.
    """
    rounds = metrics[(metrics["point"] == "after_fit") & (metrics["round"] > 0)]
    seconds = run.timings()[["total", "cpu"]].apply(pd.to_numeric).median()
    cost = {
        **per_participant(clients, config, rounds, pooled),
        "participation": participation(clients, config, rounds, pooled),
        "seconds_per_round": seconds["total"],
        "cpu_seconds_per_round": seconds["cpu"],
    }
    return {str(key): None if pd.isna(value) else float(value) for key, value in cost.items()}


def per_participant(clients: pd.DataFrame, config: dict[str, Any], rounds: pd.DataFrame, pooled: bool) -> pd.Series:
    """bytes_up, bytes_down and steps of a participant of a round: the sums over rounds by the number of participants.

    rounds: rows of metrics. pooled: whether a single model was trained on the data of all clients; its own steps count
    whole.
    """
    costs, behind = rounds[[*SUMMED_COSTS]], rounds_behind(rounds)
    shared = costs.notna().mul(counted_participants(clients, config, rounds) * behind, axis=0)
    if pooled:
        shared["steps"] = costs["steps"].notna() * behind
    return costs.mul(behind, axis=0).sum() / shared.sum()


def participation(clients: pd.DataFrame, config: dict[str, Any], rounds: pd.DataFrame, pooled: bool) -> float:
    """The share of clients that take part in a round, mean over all rounds; 1 if unknown.

    rounds: rows of metrics. pooled: whether a single model was trained on the data of all clients, which counts as one
    that always does.
    """
    total, behind = _trained_clients(config), rounds_behind(rounds)
    if pooled or not total:
        return 1.0
    shared = counted_participants(clients, config, rounds) * behind
    return float(shared.sum() / (total * behind.sum())) if len(rounds) else nan


def costs_of_a_client(
    clients: pd.DataFrame, config: dict[str, Any], rounds: pd.DataFrame, pooled: bool
) -> pd.DataFrame:
    """bytes_up, bytes_down and steps of a client, mean over all, in the rounds for which each row of metrics stands.

    pooled: as in `per_participant`; of such a run, and if the number of clients is unknown, mean over participants.
    """
    total = None if pooled else _trained_clients(config)
    costs = rounds[[*SUMMED_COSTS]].mul(rounds_behind(rounds), axis=0)
    shares = costs.div(total or counted_participants(clients, config, rounds), axis=0)
    return shares.assign(steps=costs["steps"]) if pooled else shares


def rounds_behind(rounds: pd.DataFrame) -> pd.Series:
    """For how many rounds the costs in each of these rows of metrics stand: those since its seed's row before."""
    return (rounds["round"] - rounds.groupby("seed")["round"].shift(fill_value=0)).astype(float)


def _trained_clients(config: dict[str, Any]) -> int | None:
    """The number of clients without newcomers, if the configuration says it."""
    dealt = config.get("partition") or {}
    total = dealt.get("clients")
    return total and total - newcomer_count(total, dealt.get("new_clients") or 0)


def counted_participants(clients: pd.DataFrame, config: dict[str, Any], rounds: pd.DataFrame) -> pd.Series:
    """The number of participants of each of these rounds (rows of metrics), aligned to their index.

    Counted where the rows of clients tell all of them, else as many as the configuration has drawn.
    """
    total, share = _trained_clients(config), config.get("participation") or 1.0
    drawn = rounds["clients"].map(lambda clients: float(count_of(total or clients, share)))
    if not _tells_participants(config):
        return drawn
    took_part = clients["participated"].to_numpy(dtype=bool)
    known = clients.loc[took_part, ["seed", "round", "client"]].drop_duplicates()
    counted = Counter(zip(known["seed"].tolist(), known["round"].tolist(), strict=True))
    keys = zip(rounds["seed"].tolist(), rounds["round"].tolist(), strict=True)
    return pd.Series([float(counted.get(key, nan)) for key in keys], rounds.index, dtype=float).fillna(drawn)


def _tells_participants(config: dict[str, Any]) -> bool:
    """Whether every participant has rows that say so: all are evaluated, none is malicious, and no upload gets lost."""
    are_evaluated = (config.get("evaluate") or {}).get("clients") in (None, "all")
    attack = (config.get("attack") or {}).get("name") or "none"
    return are_evaluated and attack == "none" and not config.get("dropout")
