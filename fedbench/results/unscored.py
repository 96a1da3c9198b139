"""Words for clients without a score, and for the number of clients behind a mean."""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from fedbench.config.words import plural, range_of
from fedbench.results.schema import count_key
from fedbench.tasks import Metric

MOST_NAMED = 5
"""Number of clients that a line names for one reason."""


def unknown_line(what: str, reasons: Mapping[int, str], clients: int, name: Callable[[int], str]) -> str:
    """`AUROC is unknown at 1 of 8 clients (fulda: one class)`.

    what: the metric. reasons: why, by client; empty if nobody knows. clients: the number of all.
    """
    by_reason: dict[str, list[int]] = {}
    for client in sorted(reasons):
        by_reason.setdefault(reasons[client], []).append(client)
    text = "; ".join(_names(same, name) + (f": {why}" if why else "") for why, same in by_reason.items())
    return f"{what} is unknown at {len(reasons)} of {plural(clients, 'client')} ({text})"


def _names(clients: Sequence[int], name: Callable[[int], str]) -> str:
    more = len(clients) - MOST_NAMED
    return ", ".join(map(name, clients[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def scored_counts(rows: pd.DataFrame, metric: Metric) -> list[int]:
    """How many clients have a test score in each of these rows of metrics."""
    key = count_key("test", metric.name)
    scored = rows[key].fillna(rows["clients"]) if key in rows else rows["clients"]
    return [int(count) for count in scored]


def scored_text(counts: Sequence[int], clients: int) -> str:
    """`7 of 8 clients`, `6 to 7 of 8 clients`; empty if all have a score everywhere."""
    if not counts or min(counts) >= clients:
        return ""
    return f"{range_of(counts)} of {plural(clients, 'client')}"


def worst_label(counts: Sequence[int]) -> str:
    """Names the mean of the worst tenth of so many clients: of fewer than 20, one client or two.

    counts: of each row of a table, the clients with a score.
    """
    if counts and max(counts) <= 10:
        return "worst client"
    if counts and max(counts) < 20 and min(counts) > 10:
        return f"worst 2 of {counts[0]} clients" if len(set(counts)) == 1 else "worst 2 clients"
    return "worst tenth"
