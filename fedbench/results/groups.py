"""Scores of labels, classes and domains, combined over clients and seeds."""

from collections.abc import Mapping, Sequence

import pandas as pd

from fedbench.results.schema import POINTS
from fedbench.results.statistics import INTERVAL_COLUMNS, interval, pooled_values
from fedbench.results.tables import LAST, chosen_rows, clients_at
from fedbench.tasks import Metric

GROUP_COLUMNS = ["method", "point", "by", "group", "name", *INTERVAL_COLUMNS, "client_mean", "samples", "clients"]

NUMBERED = ("class", "label")
"""Groups that are known by their number."""


def group_table(
    metric: Metric,
    metrics: Mapping[str, pd.DataFrame],
    groups: Mapping[str, pd.DataFrame],
    names: Sequence[str] = (),
) -> pd.DataFrame:
    """The test metric of each method, point, and label, class or domain, at the last round.

    groups: `Records.groups` by method. names: of the classes or labels, by number, if they have names of their own.
    Columns: method, point, by (`label`, `class` or `domain`), group (a number, or a domain), its name, seeds (count);
    mean, sd, low, high over seeds of the score pooled over all test samples of the group (for labels: the mean over
    clients, weighted by their samples); client_mean, over the clients with such samples; samples and clients, means
    over seeds.
    """
    rows = []
    for method, frame in groups.items():
        for point in POINTS if len(frame) else ():
            clients_of_rounds = clients_at(frame, chosen_rows(metric, metrics[method], point, LAST))
            parts = sorted(clients_of_rounds.groupby(["by", "group"]), key=lambda part: _sort_key(*map(str, part[0])))
            keys = {"method": method, "point": point}
            for (by, group), members in parts:
                name = names[int(str(group))] if by in NUMBERED and int(str(group)) < len(names) else group
                rows.append({**keys, "by": by, "group": group, "name": name, **_row(metric, members)})
    return pd.DataFrame(rows, columns=GROUP_COLUMNS)


def _sort_key(by: str, group: str) -> tuple[str, int, str]:
    """Sort key: classes and labels by number, domains by name."""
    return by, int(group) if by in NUMBERED else 0, group


def _row(metric: Metric, members: pd.DataFrame) -> dict[str, float | None]:
    seeds = members.groupby("seed")
    return {
        **interval(
            pooled_values(metric, members["seed"], members["value"], members["n"]).tolist(), bounds=metric.bounds
        ).columns(),
        "client_mean": seeds["value"].mean().mean(),
        "samples": seeds["n"].sum().mean(),
        "clients": seeds["client"].nunique().mean(),
    }
