"""Words for clients without a score, and for the number of clients behind a mean."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from fedbench.config.words import plural
from fedbench.results.schema import count_key
from fedbench.tasks import Metric

MOST_NAMED = 5
"""Number of clients that a line names for one reason."""


def unknown_line(what: str, found: Mapping[int, str], clients: int, name: Callable[[int], str]) -> str:
    """`AUROC is unknown at 1 of 8 clients (fulda: one class)`.

    what: the metric. found: why, by client; empty if nobody knows. clients: the number of all.
    """
    by_reason: dict[str, list[int]] = {}
    for client in sorted(found):
        by_reason.setdefault(found[client], []).append(client)
    said = "; ".join(_names(own, name) + (f": {why}" if why else "") for why, own in by_reason.items())
    return f"{what} is unknown at {len(found)} of {plural(clients, 'client')} ({said})"


def _names(clients: Sequence[int], name: Callable[[int], str]) -> str:
    more = len(clients) - MOST_NAMED
    return ", ".join(map(name, clients[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def scored_counts(rows: pd.DataFrame, metric: Metric, every: pd.DataFrame) -> tuple[list[int], int]:
    """How many clients have a test score in each of these rows of metrics, and how many are evaluated.

    every: all rows of the run; the most clients of any of them are those that are evaluated.
    """
    key = count_key("test", metric.name)
    scored = rows[key].fillna(rows["clients"]) if key in rows else rows["clients"]
    return [int(count) for count in scored], int(every["clients"].max())


def scored_text(counts: Sequence[int], clients: int) -> str:
    """`7 of 8 clients`, `6 to 7 of 8 clients`; empty if all have a score everywhere."""
    if not counts or min(counts) >= clients:
        return ""
    ends = dict.fromkeys((min(counts), max(counts)))
    return f"{' to '.join(map(str, ends))} of {plural(clients, 'client')}"


def line_text(line: Mapping[str, Any], metric: Metric) -> str:
    """The same of one line of metrics.jsonl."""
    count = line.get(count_key("test", metric.name))
    return "" if count is None else scored_text([count], line["clients"])
