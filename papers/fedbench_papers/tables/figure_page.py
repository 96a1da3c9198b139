"""The page of a paper's figure: a chart for each cell, drawn from our runs, and its numbers as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from fedbench.config.words import plural
from fedbench.report.curves import round_values, thin_out
from fedbench.report.parts import ChartSection, charts
from fedbench.report.study import POINT_NAMES
from fedbench.report.theme import LIGHT, METHOD_COLOURS, axis, figure, round_axis, score_axis, show_legend
from fedbench.report.typeset import Cell
from fedbench.results.curves import seed_curve
from fedbench.results.reader import Records
from fedbench.results.statistics import Interval, interval
from fedbench.results.tables import BEST_TEST, LAST
from fedbench.tasks import Metric
from fedbench_papers.tables.content import NumberTable, PageContent, interval_columns, ours_text, seeds_text
from fedbench_papers.tables.figure import Figure
from fedbench_papers.tables.public_set import public_chart
from fedbench_papers.tables.reproduction import (
    CellRecord,
    ReproductionRecord,
    last_traced,
    metric_of,
    rows_of_trace,
    score_of,
)

HEADS = ("cell", "line", "at", "ours", "seeds")
COLOURS = [LIGHT[name] for name in ("accent", *METHOD_COLOURS, "alarm", "local")]
DASHES = ("solid", "dash", "dot")
ROUND_NAMES = {LAST: "last round", BEST_TEST: "best round on test"}


@dataclass(frozen=True)
class FigureNumber:
    """A number of a figure: a line at a value of the option, or at the end of a curve. ours: over seeds, if run."""

    cell: str
    line: str
    at: str
    ours: Interval | None


@dataclass(frozen=True)
class FigureCell:
    """A cell of a figure, with its finished runs by label."""

    cell: CellRecord
    figure: Figure
    scale: str
    runs: dict[str, Records]
    metric: Metric

    @classmethod
    def of(cls, made: ReproductionRecord, cell: CellRecord, folder: Path) -> "FigureCell":
        runs = cell.runs(folder)
        return cls(cell, Figure.of(made.figure or {}), made.scale, runs, metric_of(runs))

    def numbers(self) -> Iterator[FigureNumber]:
        """The numbers of the table."""
        if self.figure.draw == "public":
            yield from self.public_numbers()
            return
        if self.figure.draw == "traces":
            for line, run in self.runs.items():
                for name, client in self.drawn_traces(run):
                    drawn_line = f"{line} {line_name(name, client)}"
                    yield FigureNumber(self.cell.name, drawn_line, "last round", last_traced(run, name, 1.0, client))
            return
        for label in self.cell.methods or self.figure.runs(self.scale):
            line, _, value = label.partition(" ") if self.figure.draw == "values" else (label, "", "")
            ours = score_of(self.cell, self.cell.point, self.runs[label]) if label in self.runs else None
            yield FigureNumber(self.cell.name, line, value or ROUND_NAMES[self.cell.choice], ours)

    def public_numbers(self) -> Iterator[FigureNumber]:
        """The images of each class in the public set at every value, over seeds."""
        for at in dict.fromkeys(entry["at"] for entry in self.cell.public):
            sets = [entry["classes"] for entry in self.cell.public if entry["at"] == at]
            for name in sets[0]:
                yield FigureNumber(self.cell.name, at, name, interval([float(classes[name]) for classes in sets]))

    def drawn_traces(self, run: Records) -> list[tuple[str, int | None]]:
        """The drawn traces of a run: name and client, or None for the mean over clients."""
        known = sorted(run.traces()["name"].unique())
        names = [name for pattern in self.figure.traces for name in known if matches(name, pattern)]
        return [(name, client) for name in names for client in (self.figure.clients or (None,))]

    def charts(self) -> Iterator[tuple[str, go.Figure | None]]:
        """The pictures with their titles: one, or one for each seed of public sets; None without runs."""
        if self.figure.draw == "public":
            for seed in dict.fromkeys(entry["seed"] for entry in self.cell.public):
                sets = [entry for entry in self.cell.public if entry["seed"] == seed]
                yield f"{self.cell.name}, seed {seed}", public_chart(sets, self.figure.axis)
        elif not self.runs:
            yield self.cell.name, None
        else:
            yield self.cell.name, self.over_values() if self.figure.draw == "values" else self.over_rounds()

    def over_rounds(self) -> go.Figure | None:
        """Accuracy or traces over rounds, mean over seeds."""
        draws_traces = self.figure.draw == "traces"
        curves = dict(self.trace_curves() if draws_traces else self.score_curves())
        if not curves:
            return None
        last = max(int(curve.index.max()) for curve in curves.values())
        ends = [value for curve in curves.values() for value in curve]
        vertical = axis(escape(self.figure.axis)) if draws_traces else score_axis(self.metric, ends)
        fig = figure(380, xaxis=round_axis(last), yaxis=vertical)
        for number, (label, curve) in enumerate(curves.items()):
            add_numbered_line(fig, label, curve.index.tolist(), curve.tolist(), number)
        return with_legend(fig)

    def score_curves(self) -> Iterator[tuple[str, pd.Series]]:
        """Accuracy by round of every label."""
        for label, run in self.runs.items():
            curve = seed_curve(self.metric, run.metrics(), self.cell.point)
            if len(curve):
                yield label, thin_out(curve).set_index("round")["mean"]

    def trace_curves(self) -> Iterator[tuple[str, pd.Series]]:
        """Means by round of the drawn traces."""
        for line, run in self.runs.items():
            traces = run.traces()
            for name, client in self.drawn_traces(run):
                label = f"{line} {line_name(name, client)}" if len(self.runs) > 1 else line_name(name, client)
                means = rows_of_trace(traces, name, client).groupby("round")["value"].mean()
                if len(means):
                    yield label, means

    def over_values(self) -> go.Figure | None:
        """Accuracy over the values of the option, with half of the interval over seeds."""
        names = [f"{value:g}" for value in self.figure.at(self.scale)]
        estimates = {(p.line, p.at.partition("=")[2]): p.ours for p in self.numbers() if p.ours is not None}
        if not estimates:
            return None
        ends = [end for one in estimates.values() for end in (one.mean - (one.half or 0), one.mean + (one.half or 0))]
        fig = figure(380, xaxis=axis(escape(self.figure.axis or self.figure.over), type="category"))
        fig.update_layout(yaxis=score_axis(self.metric, ends))
        for number, line in enumerate((*self.figure.lines, *self.figure.levels)):
            row = [estimates.get((line, name if line in self.figure.lines else "")) for name in names]
            if any(row):
                means = [one and one.mean for one in row]
                add_numbered_line(fig, line, names, means, number, [(one and one.half) or 0 for one in row])
        return with_legend(fig)


def matches(name: str, pattern: str) -> bool:
    """Whether a trace is asked for, by its name or as one of `NAME/*`."""
    return name.startswith(pattern[:-1]) if pattern.endswith("/*") else name == pattern


def line_name(name: str, client: int | None) -> str:
    """`loss_public, client 0`; of `personal_location/head` the part after the slash."""
    return (name.partition("/")[2] or name) + ("" if client is None else f", client {client}")


def add_numbered_line(
    fig: go.Figure, name: str, x: list[Any], y: list[Any], number: int, halves: list[float] | None = None
) -> None:
    """A curve with its own colour, and beyond the colours with its own dash."""
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    mode = "lines+markers" if halves is not None or len(x) == 1 else "lines"
    fig.add_scatter(
        x=x, y=round_values(y), mode=mode, name=escape(name), line={"color": colour, "width": 2.2, "dash": dash}
    )
    if halves is not None:
        fig.data[-1].error_y = {"array": round_values(halves), "color": colour, "thickness": 1, "width": 0}


def with_legend(fig: go.Figure) -> go.Figure:
    show_legend(fig)
    fig.update_layout(hovermode="closest", margin_t=64)
    return fig


def figure_content(made: ReproductionRecord, folder: Path) -> PageContent:
    """A chart for each cell, and the numbers of all."""
    cells = [FigureCell.of(made, cell, folder) for cell in made.cells]
    numbers = [number for one in cells for number in one.numbers()]
    drawings = [drawing for one in cells for drawing in one.charts()]
    pictures = charts(*((f"figure-{i}", title, chart, "") for i, (title, chart) in enumerate(drawings)), wide=True)
    drawn = picture_words(made)
    return PageContent(
        [figure_table(numbers)],
        [ChartSection("figure", "Figure", pictures, drawn)],
        figure_answer(made, numbers),
        drawn=drawn,
        charts_first=True,
    )


def figure_table(numbers: Sequence[FigureNumber]) -> NumberTable:
    """The numbers: accuracies in percent, traces as recorded."""
    rows: list[dict[str, Any]] = [
        {"cell": one.cell, "line": one.line, "at": one.at, **interval_columns(one.ours, "mean")} for one in numbers
    ]
    frame = pd.DataFrame(rows, columns=["cell", "line", "at", "mean", "low", "high", "seeds"])
    intro = "Accuracies in %, traces as recorded, images as counted; ± half of the 95\u00a0% interval over seeds."
    return NumberTable("table", "Numbers", intro, HEADS, list(map(number_line, numbers)), frame)


def number_line(one: FigureNumber) -> list[Cell]:
    """A number as text."""
    return list(map(Cell, (one.cell, one.line, one.at, ours_text(one.ours, ".4g", ".2g"), seeds_text(one.ours))))


def picture_words(made: ReproductionRecord) -> str:
    """What is drawn, and at which point."""
    drawn, point = Figure.of(made.figure or {}), POINT_NAMES[made.cells[0].point]
    if drawn.draw == "public":
        return "Images of each class in the public set, without training."
    if drawn.draw == "traces":
        return "Means over seeds" + ("." if drawn.clients else " and clients.")
    bars = "; bars: half of the 95 % interval over seeds" if drawn.draw == "values" else ""
    return f"Test accuracy {point}, mean over clients and seeds{bars}."


def figure_answer(made: ReproductionRecord, numbers: Sequence[FigureNumber]) -> str:
    """What of the figure was run."""
    if Figure.of(made.figure or {}).draw == "public":
        return f"{made.id}: {plural(len(numbers), 'number')} counted, in {plural(len(made.cells), 'panel')}."
    done = sum(number.ours is not None for number in numbers)
    if not done:
        return f"Nothing of {made.id} has been run yet."
    return f"{made.id}: {done} of {plural(len(numbers), 'number')} run, in {plural(len(made.cells), 'panel')}."
