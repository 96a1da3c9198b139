"""The sections of a report with figures of one study, and of a run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from fedbench.report import curves, figures, grids, headline, searches, traces
from fedbench.report.comparisons import behind_best, client_gains, forest, tuning_strip
from fedbench.report.leaderboard import LeaderboardRow
from fedbench.report.parts import ChartSection, charts
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.tuning_budget import budget_charts
from fedbench.report.typeset import sentence
from fedbench.results.tables import BASELINE

MOST_SLOPES = 6
"""Maximum number of methods whose clients are drawn, best first."""


def study_sections(study: Study, rows: Sequence[LeaderboardRow]) -> Iterator[ChartSection]:
    """The sections in order; those without data have no charts. rows: the leaderboard, if methods are compared."""
    if rows:
        yield _difference_part(study, rows)
        yield _tuning_part(study, rows)
    if study.plan.subject and study.plan.points():
        yield _choice_part(study)
    yield _search_part(study)
    if study.metrics:
        yield _curve_part(study)
        yield _client_part(study)
        yield _newcomer_part(study)
        yield from traces.trace_sections(study)
        yield _cost_part(study)
    yield _partition_part(study)


CONTRASTS_INTRO = (
    "Paired by seed and client. Thick: 95 % interval (Student t); thin: over resampled seeds and clients. Filled "
    "dot: clear after the correction for the number of comparisons (blue: better, red: worse); "
    "hollow: clear by itself only; grey: open or in doubt."
)
CONTRASTS_ASIDE = (
    "Values: both intervals, the difference below which these seeds tell nothing, and how many seeds would tell "
    "the observed one with a probability of 80 %, after the correction."
)
SEQUENTIAL_INTRO = (
    "Paired by seed. Bars: the simultaneous interval at the look that decided, or at the last one. Filled "
    "dot: it excludes 0 (blue: better, red: worse); grey: open or in doubt."
)


def _difference_part(study: Study, rows: Sequence[LeaderboardRow]) -> ChartSection:
    intro, aside = (SEQUENTIAL_INTRO, "") if study.sequential_test is not None else (CONTRASTS_INTRO, CONTRASTS_ASIDE)
    of_clients = "Thin: from the smallest to the largest gain of a client; thick: the middle half; dot: the median."
    shown = charts(
        ("forest", "", forest(study, rows), ""),
        ("behind", "Against the best", behind_best(study, rows), ""),
        ("gains", "Gains of clients", client_gains(study, rows), of_clients),
        wide=True,
    )
    for chart in shown:
        chart.apart = chart.id == "gains"
    return ChartSection("differences", "Differences to local training and to the best", shown, intro, aside)


def _tuning_part(study: Study, rows: Sequence[LeaderboardRow]) -> ChartSection:
    spent = sum(len(study.plan.points(row.label)) for row in rows)
    intro = (
        f"{spent} candidates in total, chosen on validation {POINT_NAMES[study.point]}{headline.seeds_remark(study)}; "
        "filled: the chosen ones. "
        "A wide spread means that the method is sensitive to its tuning."
    )
    shown = charts(("tuning", "", tuning_strip(study, rows), ""), wide=True) + budget_charts(study)
    return ChartSection("tuning", "Effect of tuning", shown, intro)


def _choice_part(study: Study) -> ChartSection:
    panels = list(grids.grid_panels(study))
    shown = charts(*((f"grid-{i}", title, fig, "") for i, (title, fig) in enumerate(panels)), wide=len(panels) == 1)
    over = "Every candidate over rounds; hover over a grey curve to see its name."
    shown += charts(("tried", "Scores over rounds", curves.tried_curves(study), over), wide=len(panels) == 1)
    shown += budget_charts(study)
    intro = f"Validation {study.metric.title} {POINT_NAMES[study.point]}; the chosen candidate is marked."
    if study.plan.as_good(study.method):
        intro += " Dotted frames, or the same colour: candidates with exactly the same score."
    return ChartSection("grid", "The grid", shown, intro)


def _search_part(study: Study) -> ChartSection:
    intro = searches.intro(study.plan)
    return ChartSection("search", "Effect of the hyperparameters", charts(*searches.search_charts(study)), intro)


def _curve_part(study: Study) -> ChartSection:
    if len(study.metrics) == 1:
        shown = charts(("curve", "", curves.point_curves(study), ""), wide=True)
    else:
        limits = curves.curve_limits(study)
        names = {point: POINT_NAMES[point].capitalize() for point in ("after_agg", "after_fit")}
        shown = charts(*((f"curve-{p}", t, curves.method_curves(study, p, limits), "") for p, t in names.items()))
    shown += charts(("train-loss", "Training loss", curves.loss_curves(study), "Each method's own loss."))
    several = max(len(study.last_rows(method, p)) for method in study.metrics for p in POINT_NAMES) > 1
    band = "; bands: lowest to highest seed" if several else ""
    intro = f"Mean over clients and seeds{band}."
    title, files = f"{sentence(study.metric.label)} over rounds", picture_files(study.folder, "curves")
    return ChartSection("curves", title, shown, intro, files=files)


def picture_files(folder: Path, name: str) -> list[str]:
    """The existing files from `write_pictures`."""
    return [file for kind in ("png", "svg") if (folder / (file := f"{name}.{kind}")).exists()]


def _client_part(study: Study) -> ChartSection:
    part = ChartSection("clients", "Clients")
    methods = [m for m in study.ordered if m != BASELINE][:MOST_SLOPES]
    paired = {m: rows for m in methods if len(rows := _pairs_with_baseline(study, m))}
    if paired:
        part.small = True
        part.intro = (
            "Each line is one client of one seed, from local training through both evaluation points; "
            "clients that do not gain are dotted and red; the thick line is the mean."
        )
        values: Any = pd.concat(paired.values()).drop(columns="gains").stack()
        limits = [float(values.min()), float(values.max())]
        shown = ((f"clients-{i}", *_slope(study, m, paired[m], limits)) for i, m in enumerate(paired))
        part.charts = [replace(chart, method=m) for m, chart in zip(paired, charts(*shown), strict=True)]
    elif study.method in study.metrics:
        part.intro = "Each dot is one client of one seed at the last round; the worst tenth is shaded."
        part.charts = charts(("clients", "", figures.client_strip(study), ""), wide=True)
    return part


def _pairs_with_baseline(study: Study, method: str) -> pd.DataFrame:
    return figures.paired_clients(study, method) if BASELINE in study.metrics else pd.DataFrame()


def _slope(study: Study, method: str, paired: pd.DataFrame, limits: list[float]) -> tuple[str, go.Figure, str]:
    caption = f"{int(paired['gains'].sum())} of {len(paired)} gain over local"
    return method, figures.slopes(study.metric, paired, study.colours[method], limits), caption


def _newcomer_part(study: Study) -> ChartSection:
    intro = (
        "Test score of clients that took no part in training and joined after the last round. Mean over newcomers and "
        "seeds, each number of epochs from the start."
    )
    shown = charts(("newcomers", "", curves.newcomer_curves(study), ""), wide=True)
    return ChartSection("joining", "Newcomers over their local epochs", shown, intro)


def _cost_part(study: Study) -> ChartSection:
    shown = charts(
        (
            "traffic",
            f"{sentence(study.metric.label)} against traffic",
            curves.cost_curves(study, "sent"),
            "Bytes as the method would encode them.",
        ),
        (
            "steps",
            f"{sentence(study.metric.label)} against gradient steps",
            curves.cost_curves(study, "steps"),
            "Steps of a participant, or of the pooled model.",
        ),
        ("seconds", "Seconds per round", figures.time_bars(study), "Mean over rounds and seeds, on this machine."),
    )
    return ChartSection("cost", "Cost", shown, files=picture_files(study.folder, "costs"))


def _partition_part(study: Study) -> ChartSection:
    dots = figures.partition_dots(study)
    counts = (next(iter(study.partition.values()), None) or {}).get("class_counts") or []
    most = max((max(row, default=0) for row in counts), default=0)
    more = f" The first {figures.MOST_ROWS} of {len(counts)} clients." if len(counts) > figures.MOST_ROWS else ""
    seed = next(iter(study.partition), "")
    intro = f"Training samples per client and class, seed {seed}; the largest dot is {most} samples.{more}"
    return ChartSection("partition", "Partition", charts(("partition", "", dots, ""), wide=True), intro)
