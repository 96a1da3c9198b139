"""The classes of public sets, which some figures show: counted without a run, and drawn."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fedbench.config import Config
from fedbench.config.keys import flat, nest
from fedbench.data import Dataset, partition
from fedbench.report.theme import SCALE, axis, figure
from fedbench_papers.tables.figure import Figure


def public_sets(dataset: Dataset, config: Config, drawn: Figure, scale: str) -> list[dict[str, Any]]:
    """The images of each class in the public set at every value of the figure's option, by seed: `at`, `seed`,
    `classes`. Raises ConfigError for a set that cannot be drawn.
    """
    names = dataset.class_names or tuple(map(str, range(dataset.classes)))
    sets = []
    for value in drawn.at(scale):
        config_at = Config(**nest({**flat(config.given()), **drawn.keys_of(value)}))
        for seed in config_at.seeds:
            labels = dataset.targets[partition(dataset, config_at, seed).public]
            counts = np.bincount(labels, minlength=dataset.classes).tolist()
            at = drawn.value_name(value)
            sets.append({"at": at, "seed": seed, "classes": dict(zip(names, counts, strict=True))})
    return sets


def public_chart(sets: Sequence[Mapping[str, Any]], title: str) -> go.Figure:
    """The images of each class, a row for each of the sets."""
    rows, columns = [entry["at"] for entry in sets], list(sets[0]["classes"])
    fig = figure(96 + 54 * len(rows), xaxis=axis(escape(title), showgrid=False, type="category"))
    fig.update_layout(yaxis=axis("", showgrid=False, type="category", autorange="reversed"))
    counts = [[entry["classes"][name] for name in columns] for entry in sets]
    fig.add_heatmap(x=columns, y=rows, z=counts, colorscale=SCALE, xgap=3, ygap=3, showscale=False)
    fig.data[-1].update(texttemplate="%{z}", hovertemplate="%{y}, %{x}: %{z}<extra></extra>")
    return fig
