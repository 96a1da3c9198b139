"""The section of a report that summarises methods over all settings and seeds. It names nobody: verdicts do."""

from collections.abc import Mapping
from html import escape

import pandas as pd
import plotly.graph_objects as go

from fedbench.report.comparisons import figure_of_intervals
from fedbench.report.curves import add_band, add_line, is_loud, round_values
from fedbench.report.parts import ChartSection, charts
from fedbench.report.survey import Survey
from fedbench.report.theme import LIGHT, axis, figure, show_legend
from fedbench.results.over_settings import Estimate, OverSettings
from fedbench.results.quantities import plural
from fedbench.tasks import Metric

FILE = "over_settings.csv"


def summary_part(survey: Survey) -> ChartSection:
    """Interquartile means, probabilities of improvement and performance profiles."""
    found = survey.summary
    if found is None:
        return ChartSection("over-settings", "Gains over all settings")
    metric, colours = survey.first_study.metric, survey.first_study.colours
    made = charts(
        ("middle-gains", "Interquartile mean", middle_gains(found, metric), "Mean of the middle half of all runs."),
        (
            "improvement",
            "Probability of improvement",
            improvement(found),
            "How often a method is better than local training at the same seed; a tie counts half. An interval without "
            "width says that the seeds of each setting agree, not that this is certain.",
        ),
    ) + charts(
        (
            "profiles",
            "Performance profiles",
            profiles(found, metric, colours),
            "Higher is better; where curves cross, neither method is better throughout.",
        ),
        wide=True,
    )
    return ChartSection("over-settings", "Gains over all settings", made, intro(found, metric), files=[FILE])


def intro(found: OverSettings, metric: Metric) -> str:
    """What is summarised, and how its intervals are to be read."""
    runs = f"{plural(found.settings, 'setting')} and {plural(found.seeds, 'seed')} that all methods have"
    means = "gains over local training at the same seed, so that easy and hard settings count alike"
    if not metric.higher:
        means += "; in % of local training's error in the setting, which takes out the unit of its targets"
    sure = (
        "95\u00a0% intervals over resampled seeds of every setting" if found.seeds > 1 else "one seed, so no intervals"
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


def middle_gains(found: OverSettings, metric: Metric) -> go.Figure:
    """The interquartile mean of every method."""
    unit, factor = unit_of(metric)
    return _estimates(found.means, f"gain over local training, {unit}", factor, 0.0)


def improvement(found: OverSettings) -> go.Figure:
    """The probability of improvement over local training of every method."""
    return _estimates(found.ahead, "better than local training, % of runs", 100.0, 50.0)


def _estimates(known: Mapping[str, Estimate], title: str, factor: float, middle: float) -> go.Figure:
    """Numbers by label with their intervals, the highest on top; a line where a method is as good as local training."""
    found = dict(sorted(known.items(), key=lambda item: -item[1].value))
    ends = [(e.value, e.value) if e.low is None or e.high is None else (e.low, e.high) for e in found.values()]
    shown = [["" if v is None else f"{factor * v:.3g}" for v in (e.value, e.low, e.high)] for e in found.values()]
    fig = figure_of_intervals(
        axis(title),
        [*found],
        [factor * e.value for e in found.values()],
        thick=[(factor * low, factor * high) for low, high in ends],
        heads=["method", title, "from", "to"],
        values=shown,
    )
    fig.data[-1].text = [f"{v} ({a} to {b})" if a else v for v, a, b in shown]
    fig.add_vline(x=middle, line={"color": LIGHT["ink"], "width": 1})
    return fig


def profiles(found: OverSettings, metric: Metric, colours: Mapping[str, str]) -> go.Figure:
    """The share of runs with a gain above tau, one curve per method with its band."""
    unit, factor = unit_of(metric)
    x = round_values(factor * found.thresholds)
    fig = figure(360, xaxis=axis(f"gain over local training above, {unit}", showgrid=False))
    fig.update_layout(yaxis=axis("share of runs, %", range=[-2, 102]), hovermode="closest")
    for label, own in sorted(found.profiles.items(), key=lambda item: is_loud(colours[item[0]])):
        if found.seeds > 1:
            add_band(fig, label, x, 100 * own.low, 100 * own.high, colours[label])
        add_line(fig, label, x, 100 * own.shares, colours[label], line_shape="hv")
        fig.data[-1].hovertemplate = f"{escape(label)}: %{{y:.0f}} % above %{{x:.3g}}<extra></extra>"
    show_legend(fig)
    shares = [round_values(100 * own.shares) for own in found.profiles.values()]
    rows = [list(line) for line in zip(x, *shares, strict=True)]
    fig.update_layout(meta={"table": {"heads": ["above", *map(escape, found.profiles)], "rows": rows}})
    return fig


def summary_frame(found: OverSettings) -> pd.DataFrame:
    """Numbers: one row per method."""
    return pd.DataFrame(
        [
            {
                "method": label,
                "settings": found.settings,
                "seeds": found.seeds,
                **_columns("interquartile_mean", mean),
                **_columns("better_than_local", found.ahead[label]),
            }
            for label, mean in found.means.items()
        ]
    )


def _columns(name: str, found: Estimate) -> dict[str, float | None]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
