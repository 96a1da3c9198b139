"""The final table: one row per method, evaluation point and choice of round; shown by the report and the terminal."""

from collections.abc import Mapping

import pandas as pd

from fedbench.results.records import POINTS, at_best_round, at_last_round
from fedbench.results.statistics import Interval, interval, paired_difference, share_that_gains

LAST, BEST_VAL, BEST_TEST = "last", "best_val", "best_test"
CHOICES = {LAST: None, BEST_VAL: "val_accuracy", BEST_TEST: "test_accuracy"}
GAINS = ["gain", "gain_low", "gain_high", "share_gains"]
COLUMNS = ["method", "point", "choice", "seeds", "round", "mean", "low", "high", "worst_tenth", *GAINS]
BASELINE = "local"


def final_table(
    metrics: Mapping[str, pd.DataFrame], clients: Mapping[str, pd.DataFrame] | None = None, baseline: str = BASELINE
) -> pd.DataFrame:
    """Test accuracy (fractions) of each method at the last round, the best-val round and the best round on test.

    Columns: method, point, choice (`last`, `best_val`, `best_test`), seeds (count), round (mean over seeds), mean,
    low, high (95 % Student t over seeds), worst_tenth, and against the baseline, paired client by client: gain,
    gain_low, gain_high, share_gains. Unknown numbers are NaN. `best_test` is chosen on test: optimistic.
    """
    rows = [
        {"method": method, "point": point, "choice": choice, **_row(method, point, choice, metrics, clients, baseline)}
        for method, frame in metrics.items()
        for point in POINTS
        for choice in CHOICES
        if len(chosen(frame, point, choice))
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def chosen(metrics: pd.DataFrame, point: str, choice: str) -> pd.DataFrame:
    """Per seed the metrics row of one point at the chosen round; empty where the choice cannot be made."""
    at_point = metrics[metrics["point"] == point]
    by = CHOICES[choice]
    return at_last_round(at_point) if by is None else at_best_round(at_point, by)


def clients_at(clients: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of clients.parquet at the seeds, rounds and points of the given rows of metrics."""
    return clients.merge(rows[["seed", "round", "point"]], on=["seed", "round", "point"])


def _row(
    method: str,
    point: str,
    choice: str,
    metrics: Mapping[str, pd.DataFrame],
    clients: Mapping[str, pd.DataFrame] | None,
    baseline: str,
) -> dict[str, float | None]:
    rows = chosen(metrics[method], point, choice)
    found = interval(rows["test_accuracy"].tolist())
    row: dict[str, float | None] = {
        "seeds": len(rows),
        "round": rows["round"].mean(),
        "worst_tenth": rows["test_worst_tenth"].mean(),
    }
    row |= {"mean": found.mean, "low": found.low, "high": found.high}
    if clients is None or method == baseline or baseline not in metrics:
        return row
    ours, theirs = pair(method, baseline, point, choice, metrics, clients)
    gain = paired_difference(ours, theirs)
    if gain is not None:
        row |= {"gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high}
        row["share_gains"] = share_that_gains(ours, theirs)
    return row


def pair(
    method: str,
    baseline: str,
    point: str,
    choice: str,
    metrics: Mapping[str, pd.DataFrame],
    clients: Mapping[str, pd.DataFrame],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The clients of a method and of the baseline at one point, each at its own chosen round."""
    other = point if len(chosen(metrics[baseline], point, choice)) else "after_agg"
    ours = clients_at(clients[method], chosen(metrics[method], point, choice))
    return ours, clients_at(clients[baseline], chosen(metrics[baseline], other, choice))


def difference(
    method: str,
    baseline: str,
    point: str,
    metrics: Mapping[str, pd.DataFrame],
    clients: Mapping[str, pd.DataFrame],
) -> Interval | None:
    """Paired difference in test accuracy at the last round; None when nothing can be paired."""
    if baseline not in metrics or method not in metrics:
        return None
    return paired_difference(*pair(method, baseline, point, LAST, metrics, clients))


def as_text(table: pd.DataFrame) -> str:
    """The table as aligned plain text, accuracies in %: one line per method and point."""
    head = ["method", "point", "last round", "worst tenth", "best-val round", "best on test*", "over local"]
    lines = [head, *(_cells(rows) for _, rows in table.groupby(["method", "point"], sort=False))]
    kept = [i for i in range(len(head)) if i < 2 or any(line[i] != "-" for line in lines[1:])]
    widths = [max(len(line[i]) for line in lines) for i in kept]
    text = [_aligned([line[i] for i in kept], widths) for line in lines]
    note = "test accuracy in %, mean over clients and seeds, +- 95 % interval over seeds; * chosen on test: optimistic"
    return "\n".join([text[0], "-" * len(text[0]), *text[1:], note])


def _cells(rows: pd.DataFrame) -> list[str]:
    by = {str(row["choice"]): row for _, row in rows.iterrows()}
    last, best, test = (by.get(choice) for choice in CHOICES)
    first = rows.iloc[0]
    return [
        str(first["method"]),
        str(first["point"]),
        _percent(last, "mean", "high"),
        _percent(last, "worst_tenth"),
        _percent(best, "mean", "high"),
        _percent(test, "mean"),
        _percent(last, "gain", "gain_high", "+.1f"),
    ]


def _percent(row: pd.Series | None, name: str, high: str | None = None, form: str = ".1f") -> str:
    if row is None or pd.isna(row[name]):
        return "-"
    text = f"{100 * row[name]:{form}}"
    return text if high is None or pd.isna(row[high]) else f"{text} +- {100 * (row[high] - row[name]):.1f}"


def _aligned(cells: list[str], widths: list[int]) -> str:
    names = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    numbers = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join([*names, *numbers]).rstrip()
