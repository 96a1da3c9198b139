"""The sections of a report over settings: ranks, scores over the values of each key, and gains over all settings.

The summaries of gains name nobody: verdicts do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import product
from operator import itemgetter
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from fedbench.config.words import plural
from fedbench.report.comparisons import figure_of_intervals
from fedbench.report.curves import add_band, add_line, is_loud, round_values
from fedbench.report.leaderboard import run_cost
from fedbench.report.parts import ChartSection, charts
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.theme import LETTER, LIGHT, axis, figure, hover, score_axis, show_legend
from fedbench.report.typeset import join_words, sentence
from fedbench.results.plan import is_number, key_name, point_name, text_of
from fedbench.results.settings_file import Setting
from fedbench.results.settings_summary import SettingsSummary
from fedbench.results.statistics import Interval, ends_of
from fedbench.results.tables import BASELINE
from fedbench.tasks import Metric

FILE = "over_settings.csv"
FAR_APART = 10
"""The axis is logarithmic if the largest value is this many times the smallest."""


def settings_sections(survey: SettingsStudy) -> list[ChartSection]:
    """The sections in order; those without data have no charts."""
    return [rank_part(survey), keys_part(survey), summary_part(survey)]


def rank_part(survey: SettingsStudy) -> ChartSection:
    if survey.is_sequential:
        return ChartSection("ranks", "Ranks")
    apart = [join_words([*pair]) for pair in survey.ranking.not_joined()]
    either = f" No bar can join {'; '.join(apart)}, which cannot be told apart either." if apart else ""
    intro = (
        f"Mean rank over settings and seeds, best to the left. A bar joins methods that cannot be told apart.{either}"
    )
    return ChartSection("ranks", "Ranks", charts(("ranks", "", critical_difference(survey), ""), wide=True), intro)


def critical_difference(survey: SettingsStudy) -> go.Figure | None:
    """Mean ranks on a line, best to the left; a bar joins methods that cannot be told apart (after Demsar 2006)."""
    ranks, groups, names = survey.ranking.ranks, survey.ranking.groups, [*survey.ranking.ranks]
    if len(names) < 2 or not survey.ranking.blocks:
        return None
    half = (len(names) + 1) // 2
    fig = figure(110 + 22 * half + 14 * len(groups))
    top = len(groups) + 1
    span = [min(ranks.values()) - 0.3, max(ranks.values()) + 0.3]
    wide = round(LETTER * max(map(len, names)) + 50)
    fig.update_layout(
        margin={"l": wide, "r": wide, "t": 40, "b": 12},
        xaxis=axis("mean rank", side="top", range=span, showgrid=False, dtick=1 if span[1] - span[0] > 2 else None),
        yaxis=axis(range=[-half - 0.5, top], visible=False),
    )
    for level, group in enumerate(groups):
        ends = [ranks[group[0]] - 0.04, ranks[group[-1]] + 0.04]
        fig.add_scatter(x=ends, y=[top - 1 - level] * 2, mode="lines", line={"color": LIGHT["accent"], "width": 6})
        fig.data[-1].hovertemplate = f"{escape(join_words(group))}: not told apart<extra></extra>"
    for i, name in enumerate(names):
        left = i < half
        y, rank = -(i if left else len(names) - 1 - i) - 0.2, ranks[name]
        colour = LIGHT["local"] if name == BASELINE else LIGHT["ink"]
        fig.add_scatter(x=[rank, rank, span[0] if left else span[1]], y=[top, y, y], mode="lines", hoverinfo="skip")
        fig.data[-1].line = {"color": LIGHT["quiet"], "width": 1}
        fig.add_annotation(
            x=0 if left else 1,
            xref="paper",
            y=y,
            text=f"{escape(name)} {rank:.2f}",
            showarrow=False,
            xanchor="right" if left else "left",
            font={"color": colour, "size": 13},
        )
    return fig


def keys_part(survey: SettingsStudy) -> ChartSection:
    """One chart for every key and every combination of the other keys."""
    if not survey.settings:
        return ChartSection("over", "Scores over settings")
    bands = (
        ""
        if survey.is_sequential
        else "; bands: 95\u00a0% interval over seeds, and test samples where their outcomes were kept"
    )
    metric, point = survey.first_study.metric, POINT_NAMES[survey.first_study.point]
    intro = f"Test {metric.label} {point}, mean over clients and seeds{bands}."
    made = charts(*key_charts(survey))
    return ChartSection("over", f"{sentence(metric.label)} over settings", made, intro)


def key_charts(survey: SettingsStudy) -> Iterator[tuple[str, str, go.Figure, str]]:
    """Name, title, figure and caption of every chart."""
    over = survey.file.over
    for key in over:
        others = [other for other in over if other != key]
        for values in product(*(over[other] for other in others)):
            fixed = dict(zip(others, values, strict=True))
            along = [s for s in survey.settings if all(s.values[other] == fixed[other] for other in others)]
            if len(along) > 1:
                where = f",{point_name(fixed)}" if fixed else ""
                yield f"over-{key_name(key)}{where}", where.lstrip(","), along_key(survey, key, along), ""
                spent = along_spent(survey, key, along) if key.partition(".")[0] in SPENT else None
                if spent is not None:
                    yield f"spent-{key_name(key)}{where}", where.lstrip(","), spent, ""


def along_key(survey: SettingsStudy, key: str, settings: Sequence[Setting]) -> go.Figure:
    """The score of every method over the values of a key, with its interval."""
    if all(map(is_number, (setting.values[key] for setting in settings))):
        settings = sorted(settings, key=lambda setting: float(setting.values[key]))
    xs, ticks = axis_places([setting.values[key] for setting in settings])
    kind = {"type": "log"} if ticks is None else {}
    shown = {"tickvals": xs, "ticktext": [escape(text) for text in ticks or map(text_of, xs)]}
    xaxis = axis(escape(key_name(key).replace("_", " ")), showgrid=False, **shown, **kind)
    return score_lines(
        survey,
        {
            label: [(x, survey.boards[s.name][label].score, "") for x, s in zip(xs, settings, strict=True)]
            for label in survey.ordered
        },
        xaxis,
    )


def along_spent(survey: SettingsStudy, key: str, settings: Sequence[Setting]) -> go.Figure | None:
    """The score of every method over what each value of a key has cost, on a logarithmic axis; None if nothing has."""
    title, spent = SPENT[key.partition(".")[0]]
    points: dict[str, list[Point]] = {}
    for label in survey.ordered:
        for setting in settings:
            cost = spent(survey.studies[setting.name], label)
            if cost:
                score = survey.boards[setting.name][label].score
                points.setdefault(label, []).append((cost, score, f"{key_name(key)}={text_of(setting.values[key])}"))
    if not points:
        return None
    ordered = {label: sorted(scores, key=itemgetter(0)) for label, scores in points.items()}
    return score_lines(survey, ordered, axis(title, type="log"))


def epsilon_spent(study: Study, label: str) -> float | None:
    """Epsilon of a method after the last round, mean over seeds; None without noise."""
    traces = study.runs[label].traces()
    rows = traces[(traces["name"] == "epsilon") & (traces["client"] < 0)].dropna(subset=["value"])
    last = rows.sort_values("round").groupby("seed")["value"].last()
    return float(last.mean()) if len(last) else None


def megabytes_sent(study: Study, label: str) -> float | None:
    """Megabytes that a client has sent in the whole run; None if unknown."""
    sent = run_cost(study, label, "bytes_up")
    return None if sent is None else sent / 1e6


SPENT: dict[str, tuple[str, Callable[[Study, str], float | None]]] = {
    "privacy": ("epsilon after the last round", epsilon_spent),
    "compression": ("MB sent per client", megabytes_sent),
}
"""The cost that the keys of a section trade for the score: the title of its axis, and the number of a method."""

Point = tuple[float, Interval, str]
"""A place, the score there, and what the tooltip adds."""


def score_lines(survey: SettingsStudy, points: Mapping[str, Sequence[Point]], xaxis: dict[str, Any]) -> go.Figure:
    """The scores of every method as a line, with their intervals as bands."""
    metric, colours, dashes = survey.first_study.metric, survey.first_study.colours, survey.first_study.dashes
    ends = {
        label: [
            [score.mean if end is None or survey.is_sequential else end for end in (score.low, score.high)]
            for _, score, _ in score_points
        ]
        for label, score_points in points.items()
    }
    limits = [metric.factor * value for pairs in ends.values() for pair in pairs for value in pair]
    fig = figure(360, xaxis=xaxis, yaxis=score_axis(metric, limits), hovermode="closest")
    for label in sorted(points, key=lambda label: is_loud(colours[label])):
        places, scores, more = zip(*points[label], strict=True)
        low, high = ([metric.factor * pair[i] for pair in ends[label]] for i in (0, 1))
        add_band(fig, label, places, low, high, colours[label])
        means = [metric.factor * score.mean for score in scores]
        add_line(fig, label, places, means, colours[label], dashes[label], mode="lines+markers", marker={"size": 8})
        fig.data[-1].hovertemplate = f"{escape(label)}: {hover(metric)}<extra></extra>"
        if any(more):
            fig.data[-1].text = [*map(escape, more)]
            fig.data[-1].hovertemplate = f"{escape(label)}, %{{text}}: {hover(metric)}<extra></extra>"
    show_legend(fig)
    return fig


def axis_places(values: Sequence[Any]) -> tuple[list[float], list[str] | None]:
    """Places along an axis and the texts there, which are None where the axis is logarithmic.

    Numbers are where they belong, all else is beside each other in the order in which it was given.
    """
    if not all(map(is_number, values)):
        return [float(position) for position in range(len(values))], [text_of(value) for value in values]
    places = [float(value) for value in values]
    if min(places) > 0 and max(places) / min(places) >= FAR_APART:
        return places, None
    return places, [text_of(value) for value in places]


def summary_part(survey: SettingsStudy) -> ChartSection:
    """Interquartile means, probabilities of improvement and performance profiles."""
    summary = survey.summary
    if summary is None:
        return ChartSection("over-settings", "Gains over all settings")
    metric, colours = survey.first_study.metric, survey.first_study.colours
    made = charts(
        ("middle-gains", "Interquartile mean", middle_gains(summary, metric), "Mean of the middle half of all runs."),
        (
            "improvement",
            "Probability of improvement",
            improvement(summary),
            "How often a method is better than local training at the same seed; a tie counts half. An interval without "
            "width says that the seeds of each setting agree, not that this is certain.",
        ),
    ) + charts(
        (
            "profiles",
            "Performance profiles",
            profiles(summary, metric, colours),
            "Higher is better; where curves cross, neither method is better throughout.",
        ),
        wide=True,
    )
    return ChartSection("over-settings", "Gains over all settings", made, words_of_gains(summary, metric), files=[FILE])


def words_of_gains(summary: SettingsSummary, metric: Metric) -> str:
    """Says which runs are summarised, and how the intervals are to be read."""
    runs = f"{plural(summary.settings, 'setting')} and {plural(summary.seeds, 'seed')} that all methods have"
    means = "gains over local training at the same seed, so that easy and hard settings count alike"
    if not metric.higher:
        means += "; in % of local training's error in the setting, which takes out the unit of its targets"
    sure = (
        "95\u00a0% intervals over resampled seeds of every setting"
        if summary.seeds > 1
        else "one seed, so no intervals"
    )
    return (
        f"Runs of {runs}: {means}. {sure[0].upper()}{sure[1:]}: they are about these settings, are not corrected for "
        "the number of methods, and no verdict depends on them (Agarwal et al., 2021)."
    )


def unit_of(metric: Metric) -> tuple[str, float]:
    """The unit of gains, and the factor to it."""
    if not metric.higher:
        return "% of its error", 100.0
    return ("points", 100.0) if metric.share else (metric.label, 1.0)


def middle_gains(summary: SettingsSummary, metric: Metric) -> go.Figure:
    """The interquartile mean of every method."""
    unit, factor = unit_of(metric)
    return _estimates(summary.means, f"gain over local training, {unit}", factor, 0.0)


def improvement(summary: SettingsSummary) -> go.Figure:
    """The probability of improvement over local training of every method."""
    return _estimates(summary.ahead, "better than local training, % of runs", 100.0, 50.0)


def _estimates(known: Mapping[str, Interval], title: str, factor: float, middle: float) -> go.Figure:
    """Numbers by label with their intervals, the highest on top; a line where a method is as good as local training."""
    estimates = dict(sorted(known.items(), key=lambda item: -item[1].mean))
    ends = [(e.mean, e.mean) if e.low is None or e.high is None else (e.low, e.high) for e in estimates.values()]
    shown = [["" if v is None else f"{factor * v:.3g}" for v in (e.mean, e.low, e.high)] for e in estimates.values()]
    fig = figure_of_intervals(
        axis(title),
        [*estimates],
        [factor * e.mean for e in estimates.values()],
        thick=[(factor * low, factor * high) for low, high in ends],
        heads=["method", title, "from", "to"],
        values=shown,
    )
    fig.data[-1].text = [f"{v} ({a} to {b})" if a else v for v, a, b in shown]
    fig.add_vline(x=middle, line={"color": LIGHT["ink"], "width": 1})
    return fig


def profiles(summary: SettingsSummary, metric: Metric, colours: Mapping[str, str]) -> go.Figure:
    """The share of runs with a gain above tau, one curve per method with its band."""
    unit, factor = unit_of(metric)
    x = round_values(factor * summary.thresholds)
    fig = figure(360, xaxis=axis(f"gain over local training above, {unit}", showgrid=False))
    fig.update_layout(yaxis=axis("share of runs, %", range=[-2, 102]), hovermode="closest")
    for label, profile in sorted(summary.profiles.items(), key=lambda item: is_loud(colours[item[0]])):
        if summary.seeds > 1:
            add_band(fig, label, x, 100 * profile.low, 100 * profile.high, colours[label])
        add_line(fig, label, x, 100 * profile.shares, colours[label], line_shape="hv")
        fig.data[-1].hovertemplate = f"{escape(label)}: %{{y:.0f}} % above %{{x:.3g}}<extra></extra>"
    show_legend(fig)
    shares = [round_values(100 * profile.shares) for profile in summary.profiles.values()]
    rows = [list(line) for line in zip(x, *shares, strict=True)]
    fig.update_layout(meta={"table": {"heads": ["above", *map(escape, summary.profiles)], "rows": rows}})
    return fig


def summary_frame(summary: SettingsSummary) -> pd.DataFrame:
    """Numbers: one row per method."""
    return pd.DataFrame(
        [
            {
                "method": label,
                "settings": summary.settings,
                "seeds": summary.seeds,
                **ends_of("interquartile_mean", mean),
                **ends_of("better_than_local", summary.ahead[label]),
            }
            for label, mean in summary.means.items()
        ]
    )
