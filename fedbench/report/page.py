"""The report of a study: one self-contained HTML page with texts, tables, figures and configuration."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import yaml

from fedbench.config import Config
from fedbench.config.keys import flat
from fedbench.installation import install, missing
from fedbench.report import curves, figures, grids, headline, scores, searches, traces
from fedbench.report.answer import answer
from fedbench.report.comparisons import behind_best, client_gains, forest, tuning_strip
from fedbench.report.evidence import client_evidence
from fedbench.report.leaderboard import LeaderboardRow, leaderboard
from fedbench.report.leaderboard_table import SPENT, cost_table, point_suffix, score_table, write_tables
from fedbench.report.notes import notes
from fedbench.report.parts import LEAST_CHOSEN, ChartSection, charts
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.template import page_of
from fedbench.report.theme import LIGHT
from fedbench.report.tuning_budget import budget_charts
from fedbench.report.typeset import sentence
from fedbench.report.verdicts import RACE_TONES, TONES
from fedbench.results.files import write_atomically
from fedbench.results.quantities import seed_range
from fedbench.results.remarks import with_methods
from fedbench.results.tables import BASELINE

log = logging.getLogger("fedbench")

MOST_SLOPES = 6
"""Maximum number of methods whose clients are drawn, best first."""
DECISIONS, DATA = "decisions", "data"
"""Keys in environment.json that have sections of their own."""
PLACE_KEYS = ("out", "name", "resources.", "checkpoint.", "loggers", "wandb.")


def write_page(folder: Path) -> Path:
    """Writes report.html into the folder of a run, grid or comparison and returns its path."""
    study = Study.load(folder)
    rows = leaderboard(study) if study.plan.subject is None else []
    if study.plan.subject is None and (rows or study.failures):
        write_tables(study, rows)
    if rows and missing("plots"):
        for stale in (*_pictures(folder, "curves"), *_pictures(folder, "costs")):
            (folder / stale).unlink()
        log.info(f"the curves are on the page, and not in files: these need matplotlib ({install('plots')})")
    elif rows:
        from fedbench.report.pictures import write_pictures

        write_pictures(study, folder)
    if len(study.groups):
        write_atomically(folder / "groups.csv", study.groups.to_csv(index=False))
    if len(study.newcomers):
        write_atomically(folder / "newcomers.csv", study.newcomers.to_csv(index=False))
    path = folder / "report.html"
    write_atomically(path, page_text(study, rows))
    for line in study.problems:
        log.warning("%s", line)
    return path


def page_text(study: Study, rows: Sequence[LeaderboardRow] = ()) -> str:
    """The HTML of the report. rows: the leaderboard, if there is no subject."""
    alike = study.plan.subject is None
    leaders = score_table(study, rows)
    what = f"{len(study.plan.labels())} methods" if alike else study.method
    return page_of(
        "page.html.j2",
        kind=study.plan.kind,
        title=f"{what} on {(study.config.get('data') or {}).get('name', study.folder.name)}",
        asked=headline.subtitle(study),
        answer=answer(study, rows),
        besides=notes(study, rows),
        tiles=[] if alike else headline.answer_tiles(study),
        rows=rows,
        leaders=leaders,
        failures=study.failures if alike else {},
        leaders_intro=f"Test {study.metric.title} at the last round,{point_suffix(study, rows)}. "
        f"{'; '.join(leaders.notes)}.",
        costs=cost_table(rows),
        tones=TONES if study.race is None else RACE_TONES,
        cost_intro=f"{sentence(SPENT)}.",
        table=scores.final(study),
        groups=scores.of_groups(study),
        newcomers=scores.of_newcomers(study),
        tested=client_evidence(study),
        colours=study.colours,
        parts=[part for part in chart_sections(study, rows) if part.charts],
        chips=chips(study),
        quiet=LIGHT["quiet"],
        differences=changed_settings(study.config),
        config=yaml.safe_dump(study.config, sort_keys=False) if study.config else "",
        environment=environment_facts(study),
        warnings=study_warnings(study),
        failed=failure_lines(study),
        decisions=decision_groups(study),
        data=what_was_read(study),
    )


def chips(study: Study) -> list[str]:
    """The methods from which a reader can choose; none if there are few curves."""
    return study.ordered if len(study.ordered) >= LEAST_CHOSEN else []


def chart_sections(study: Study, rows: Sequence[LeaderboardRow]) -> Iterator[ChartSection]:
    """The sections with figures in order; sections without data have no charts."""
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
        yield traces.lambda_part(study)
        yield traces.inside_part(study)
        yield _cost_part(study)
    yield _partition_part(study)


CONTRASTS_INTRO = (
    "Paired by seed and client. Thick: 95 % interval (Student t); thin: over resampled seeds and clients. Filled "
    "dot: clear after the correction for the number of comparisons (blue: better, red: worse); "
    "hollow: clear by itself only; grey: open or in doubt."
)
CONTRASTS_ASIDE = (
    "Values: both intervals, the smallest difference that these seeds can detect, and how many seeds would tell "
    "the observed one with a probability of 80 %, after the correction."
)
RACE_INTRO = (
    "Paired by seed. Bars: the simultaneous interval at the look that decided, or at the last one. Filled "
    "dot: it excludes 0 (blue: better, red: worse); grey: open or in doubt."
)


def _difference_part(study: Study, rows: Sequence[LeaderboardRow]) -> ChartSection:
    intro, aside = (RACE_INTRO, "") if study.race is not None else (CONTRASTS_INTRO, CONTRASTS_ASIDE)
    of_clients = "Thin: from the smallest to the largest gain of a client; thick: the middle half; dot: the median."
    made = charts(
        ("forest", "", forest(study, rows), ""),
        ("behind", "Against the best", behind_best(study, rows), ""),
        ("gains", "Gains of clients", client_gains(study, rows), of_clients),
        wide=True,
    )
    for chart in made:
        chart.apart = chart.id == "gains"
    return ChartSection("differences", "Differences to local training and to the best", made, intro, aside)


def _tuning_part(study: Study, rows: Sequence[LeaderboardRow]) -> ChartSection:
    spent = sum(len(study.plan.points(row.label)) for row in rows)
    intro = (
        f"{spent} candidates in total, chosen on validation {POINT_NAMES[study.point]}{headline.seeds_remark(study)}; "
        "filled: the chosen ones. "
        "A wide spread means that the method is sensitive to its tuning."
    )
    made = charts(("tuning", "", tuning_strip(study, rows), ""), wide=True) + budget_charts(study)
    return ChartSection("tuning", "Effect of tuning", made, intro)


def _choice_part(study: Study) -> ChartSection:
    panels = list(grids.grid_panels(study))
    made = charts(*((f"grid-{i}", title, fig, "") for i, (title, fig) in enumerate(panels)), wide=len(panels) == 1)
    over = "Every candidate over rounds; hover over a grey curve to see its name."
    made += charts(("tried", "Scores over rounds", curves.tried_curves(study), over), wide=len(panels) == 1)
    made += budget_charts(study)
    intro = f"Validation {study.metric.title} {POINT_NAMES[study.point]}; the chosen candidate is marked."
    if study.plan.as_good(study.method):
        intro += " Dotted frames, or the same colour: candidates with exactly the same score."
    return ChartSection("grid", "The grid", made, intro)


def _search_part(study: Study) -> ChartSection:
    intro = searches.intro(study.plan)
    return ChartSection("search", "Effect of the hyperparameters", charts(*searches.search_charts(study)), intro)


def _curve_part(study: Study) -> ChartSection:
    if len(study.metrics) == 1:
        made = charts(("curve", "", curves.point_curves(study), ""), wide=True)
    else:
        limits = curves.curve_limits(study)
        names = {point: POINT_NAMES[point].capitalize() for point in ("after_agg", "after_fit")}
        made = charts(*((f"curve-{p}", t, curves.method_curves(study, p, limits), "") for p, t in names.items()))
    made += charts(("train-loss", "Training loss", curves.loss_curves(study), "Each method's own loss."))
    several = max(len(study.last_rows(method, p)) for method in study.metrics for p in POINT_NAMES) > 1
    band = "; bands: lowest to highest seed" if several else ""
    intro = f"Mean over clients and seeds{band}."
    title, files = f"{sentence(study.metric.label)} over rounds", _pictures(study.folder, "curves")
    return ChartSection("curves", title, made, intro, files=files)


def _pictures(folder: Path, name: str) -> list[str]:
    """The existing files from `write_pictures`."""
    return [file for kind in ("png", "svg") if (folder / (file := f"{name}.{kind}")).exists()]


def _client_part(study: Study) -> ChartSection:
    part = ChartSection("clients", "Clients")
    shown = [m for m in study.ordered if m != BASELINE][:MOST_SLOPES]
    paired = {m: rows for m in shown if len(rows := _pairs_with_baseline(study, m))}
    if paired:
        part.small = True
        part.intro = (
            "Each line is one client of one seed, from local training through both evaluation points; "
            "clients that do not gain are dotted and red; the thick line is the mean."
        )
        values: Any = pd.concat(paired.values()).drop(columns="gains").stack()
        limits = [float(values.min()), float(values.max())]
        made = ((f"clients-{i}", *_slope(study, m, paired[m], limits)) for i, m in enumerate(paired))
        part.charts = [replace(chart, method=m) for m, chart in zip(paired, charts(*made), strict=True)]
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
    made = charts(("newcomers", "", curves.newcomer_curves(study), ""), wide=True)
    return ChartSection("joining", "Newcomers over their local epochs", made, intro)


def _cost_part(study: Study) -> ChartSection:
    made = charts(
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
    return ChartSection("cost", "Cost", made, files=_pictures(study.folder, "costs"))


def _partition_part(study: Study) -> ChartSection:
    dots = figures.partition_dots(study)
    counts = (next(iter(study.partition.values()), None) or {}).get("class_counts") or []
    most = max((max(row, default=0) for row in counts), default=0)
    more = f" The first {figures.MOST_ROWS} of {len(counts)} clients." if len(counts) > figures.MOST_ROWS else ""
    seed = next(iter(study.partition), "")
    intro = f"Training samples per client and class, seed {seed}; the largest dot is {most} samples.{more}"
    return ChartSection("partition", "Partition", charts(("partition", "", dots, ""), wide=True), intro)


def changed_settings(config: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Key, value and default of keys that affect the numbers and differ from their default."""
    defaults = flat(Config().model_dump(mode="json"))
    found = flat(config)
    return [
        (key, value, defaults.get(key, "the method's own"))
        for key, value in found.items()
        if not key.startswith(PLACE_KEYS) and defaults.get(key) != value
    ]


def environment_facts(study: Study) -> list[tuple[str, str]]:
    """The environment of the subject's run as pairs of words."""
    found = study.records.environment() if study.records else {}
    pairs = flat({key: value for key, value in found.items() if key not in (DECISIONS, DATA)}).items()
    return [(key, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for key, v in pairs if v is not None]


def what_was_read(study: Study) -> dict[str, Any]:
    """How the data were read, and a few samples; empty for runs that have no record of it."""
    return next((found for run in study.runs.values() if (found := run.environment().get(DATA))), {})


def decision_groups(study: Study) -> list[tuple[str, tuple[str, ...]]]:
    """What papers leave open or do differently, grouped by methods with the same list."""
    found: dict[tuple[str, ...], list[str]] = {}
    for label, run in study.runs.items():
        if lines := run.environment().get(DECISIONS):
            found.setdefault(tuple(map(str, lines)), []).append(label)
    return [(", ".join(labels), lines) for lines, labels in found.items()]


def study_warnings(study: Study) -> list[str]:
    """Warnings of the runs, unfinished runs, and unreadable files."""
    found = with_methods({method: summary["warnings"] for method, summary in study.summaries.items()})
    for method, summary in study.summaries.items():
        if not summary["complete"] and study.runs[method].finished():
            found.append(
                f"{method}: metrics.jsonl of a finished run ends before the last round; the numbers are those "
                "of the remaining rounds. Restore the file, or delete the folder and run it again."
            )
        elif not summary["complete"]:
            found.append(f"{method}: this run is not complete; the numbers are preliminary.")
        if seeds := study.diverged_seeds(method):
            what = f"no finite test {study.metric.label} at the last evaluated round"
            found.append(f"{method}: {what} of {seed_range(seeds)}; tables omit it.")
    return found + searches.search_notes(study.plan) + study.problems


def failure_lines(study: Study) -> list[str]:
    """Failed points and clients in words."""
    found = [
        f"{'Candidate' if entry.role == 'candidate' else entry.label} {entry.name} failed: "
        f"{entry.error or 'no reason recorded'}"
        for entry in study.plan.failed()
    ]
    for method, summary in study.summaries.items():
        for seed, number, client, reason in summary["failed"]:
            found.append(f"{method}: client {client} was left out in round {number} of seed {seed}: {reason}")
    return found
