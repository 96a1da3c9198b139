"""The page of the field, its tables as files, all made of field.parquet."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from fedbench.config.words import plural
from fedbench.report.parts import ChartSection, charts
from fedbench.report.table import Column, Table
from fedbench.report.template import page_of
from fedbench.report.theme import LIGHT, axis, figure, show_legend
from fedbench.report.typeset import Cell, sentence
from fedbench.report.verdicts import BETTER, SEQUENTIAL_TONES, WORSE
from fedbench.results.files import write_atomically
from fedbench.results.tables import BASELINE
from fedbench_papers.field.findings import better_than_local, findings
from fedbench_papers.field.guide import guide
from fedbench_papers.field.measures import FINE_TUNED, NEWCOMERS
from fedbench_papers.field.record import COLUMNS, FIELD_FILE, QUANTITIES, FieldRecord
from fedbench_papers.field.standings import POOLED, Field, family_of, kind_of

TONES = {"better": "above", "worse": "below"}
MAP_NOTES = (
    "Test score in %, mean over clients and seeds; in bold where the method is among the possible best of its setting, "
    "because no other one is surely above it",
    "* better than local training, † worse; scores are of different numbers of seeds, so that differences count, which "
    "are paired",
    "in brackets: not judged, because the method was not at work (degenerate), failed in some seeds, or is worse but "
    "for a doubt; –: it does not apply, or failed",
    f"{POOLED} trains on the data of all clients and does not compete",
)
MOST_NAMED = 8
"""Methods that the answer names."""
NEWCOMERS_NOTE = (
    "Scores of newcomers are tested over seeds alone, as many as the participants' own verdicts took; intervals are "
    "corrected for methods and looks."
)
ADDED_NOTE = (
    "added: compared with the best of the others by the recorded scores of the same seeds alone, and with local "
    "training in a comparison of its own"
)
ASKED = (
    "Which method of personalised federated learning helps where, with the same partitions, models and tuning for all, "
    "and with a test behind every verdict."
)


def write_field(folder: Path) -> Path:
    """Writes page and tables beside field.parquet and returns the page's path."""
    field = Field(FieldRecord.read(folder / FIELD_FILE))
    table = map_table(field)
    for ending, form in {"md": "markdown", "tex": "latex"}.items():
        write_atomically(folder / f"map.{ending}", table.typeset(form))
    write_atomically(folder / "dictionary.md", dictionary())
    write_atomically(folder / "report.html", as_page(field))
    return folder / "report.html"


def as_page(field: Field) -> str:
    """The page as text."""
    return page_of(
        Path(__file__).with_name("field.html.j2"),
        title="The state of the field",
        kind="field",
        asked=ASKED,
        answer=answer(field),
        besides=[budget(field)],
        map=map_table(field),
        guide=guide(field),
        findings=findings(field),
        settings=[(name, field.about(name), settings_line(field, name)) for name in field.settings],
        refused=refusals(field),
        parts=[chart_section(field)],
        tones=SEQUENTIAL_TONES,
        columns=COLUMNS,
        quantities=QUANTITIES,
        files=[FIELD_FILE, "map.md", "map.tex", "dictionary.md"],
    )


def answer(field: Field) -> str:
    """The result in two sentences."""
    settings = field.settings
    if not settings:
        return "Nothing has been compared yet."
    pays = [name for name in settings if better_than_local(field, name)]
    gains = {name: [field.gain(name, one.method, FINE_TUNED) for one in field.rivals(name)] for name in settings}
    tuned = [name for name in settings if any(gain is not None and gain.is_better for gain in gains[name])]
    text = f"In {len(pays)} of {plural(len(settings), 'setting')} a method was shown to be better than local training, "
    text += f"and in {len(tuned)} one was shown to be better than {FINE_TUNED}, a shared model that every client "
    text += "fine-tunes."
    possible = [{one.method for one in field.possible_best(name)} for name in settings]
    everywhere = [method for method in field.competing if all(method in names for names in possible)]
    if len(everywhere) > MOST_NAMED:
        return (
            f"{text} {len(everywhere)} of {len(field.competing)} methods are among the possible best in every setting."
        )
    if everywhere:
        return f"{text} Among the possible best in every setting: {', '.join(everywhere)}."
    return f"{text} No method is among the possible best in every setting."


def budget(field: Field) -> str:
    """What stands behind the page."""
    runs, hours = (sum(field.about(name)[key] for name in field.settings) for key in ("runs", "hours"))
    size = f"{plural(len(field.competing), 'method')}, {plural(len(field.settings), 'setting')}"
    return f"{size}, {runs:,} runs in {hours:.1f} hours of a core."


def map_table(field: Field) -> Table:
    """Methods by settings: score, whether it is better than local training, and whether it may be the best."""
    columns = [
        Column[str]("method", partial(_head_of, field)),
        Column[str]("family", family_of),
        Column[str]("possible best", partial(_count_of_best, field)),
        *(Column[str](field.title(name), partial(map_cell, field, name)) for name in field.settings),
    ]
    notes = [*MAP_NOTES, *([ADDED_NOTE] if any(field.about(name).get("added") for name in field.settings) else [])]
    table = Table.of(columns, field.methods, least=3, title="Methods by settings", name="map", notes=notes)
    return replace(table, left=2)


def _head_of(field: Field, method: str) -> Cell:
    is_added = any(method in field.about(name).get("added", ()) for name in field.settings)
    return Cell(f"{method} (added)" if is_added else method, method=method)


def _count_of_best(field: Field, method: str) -> str:
    judged = [one for one in field.of_method(method) if one.may_be_best is not None]
    return f"{sum(bool(one.may_be_best) for one in judged)} of {len(judged)}" if judged else ""


def map_cell(field: Field, setting: str, method: str) -> Cell:
    """A method in a setting; why it has no score there."""
    standing, about = field.standings.get((setting, method)), field.about(setting)
    if standing is None:
        why = about["refused"].get(method) or about["failed"].get(method) or ""
        return Cell("–" if why else "", title=why, tone="quiet")
    gain, why = standing.over_local, why_not_judged(about, method)
    relation = "open" if gain is None else gain.relation
    tone = "quiet" if why else "baseline" if method in (BASELINE, POOLED) else TONES.get(relation, "open")
    told = plural(standing.seeds, "seed")
    told += "" if gain is None else f"; over local training {gain.text()} points, {plural(gain.seeds, 'seed')}"
    mark = "" if method == POOLED else {"better": BETTER, "worse": WORSE}.get(relation, "")
    text = f"{100 * standing.score:.1f}"
    if why:
        return Cell(f"({text})", tone=tone, mark=mark, title=f"not judged: {why}; {told}")
    return Cell(text, place=int(bool(standing.may_be_best)), tone=tone, mark=mark, title=told)


def why_not_judged(about: Mapping[str, Any], method: str) -> str:
    """Why nothing is said of a method that has a score; empty if it is judged. about: of the setting."""
    if method in about["degenerate"]:
        return "it was not at work (degenerate)"
    return str(about["failed"].get(method) or about["doubts"].get(method) or "")


def settings_line(field: Field, name: str) -> str:
    """What a setting is."""
    about = field.about(name)
    config, distance = about["config"], about["heterogeneity"]
    estimate = "" if about.get("estimate") is None else f", {about['estimate']:.1f} were estimated"
    facts = [
        plural(about["clients"], "client"),
        "" if about["samples"] is None else f"{about['samples']:.0f} training samples each in the median",
        "" if distance is None else f"class distributions differ by {distance:.2f} (total variation)",
        f"{config['model']['name']}, {plural(config['rounds'], 'round')}",
        f"{about['metric']} decides",
        f"a difference below {100 * about['margin']:g} points is too small to matter",
        f"{plural(about['runs'], 'run')} in {about['hours']:.1f} hours of a core{estimate}",
        f"{len(field.possible_best(name))} of {plural(len(field.judged(name)), 'method')} may be the best",
        str(about["date"])[:10],
    ]
    note = f" {NEWCOMERS_NOTE}" if field.point(name) == NEWCOMERS else ""
    return sentence("; ".join(filter(None, facts))) + "." + note


def refusals(field: Field) -> list[tuple[str, str, str]]:
    """Methods that are not judged, by setting, with the reason."""
    return [
        (field.title(name), method, why)
        for name in field.settings
        for about in [field.about(name)]
        for method in dict.fromkeys([*about["refused"], *about["failed"], *about["degenerate"], *about["doubts"]])
        if (why := about["refused"].get(method) or why_not_judged(about, method))
    ]


def chart_section(field: Field) -> ChartSection:
    """Where collaboration pays, and what methods cost."""
    against = "over local training, of the best shared model, the best personal one, and the model of all data"
    pictures = charts(
        ("heterogeneity", "Gain by heterogeneity", gain_figure(field, "heterogeneity"), ""),
        ("samples", "Gain by training samples of a client", gain_figure(field, "samples"), ""),
        (
            "cost",
            "Gain by processor time",
            cost_figure(field),
            "A point is a method that runs in every setting, mean over these.",
        ),
    )
    return ChartSection(
        "where", "Where collaboration pays", pictures, f"Points gained {against}; a point is a setting."
    )


def gain_figure(field: Field, fact: str) -> go.Figure | None:
    """Gains over local training of three kinds of methods, by a fact of the settings."""
    titles = {
        "heterogeneity": "distance of class distributions (total variation)",
        "samples": "training samples of a client, median",
    }
    kinds = {"shared": "c4", "personal": "accent", "pooled": "quiet"}
    fig = figure(360, xaxis=axis(titles[fact]), yaxis=axis("gain over local training, points", zeroline=True))
    for kind, colour in kinds.items():
        spots = []
        for name in field.settings:
            best = field.standings.get((name, POOLED)) if kind == "pooled" else field.best_of(name, kind)
            gain = None if best is None else field.difference(name, best.method, BASELINE)
            if best is not None and gain is not None and field.about(name)[fact] is not None:
                spots.append((field.about(name)[fact], 100 * gain, f"{field.title(name)}: {best.method}"))
        if spots:
            x, y, names = zip(*sorted(spots), strict=True)
            marker = {"color": LIGHT[colour], "size": 10}
            fig.add_scatter(x=x, y=y, text=[escape(n) for n in names], name=kind, mode="markers", marker=marker)
    show_legend(fig)
    return fig if fig.data else None


def cost_figure(field: Field) -> go.Figure | None:
    """Mean gain over local training by processor time in multiples of a fine-tuned shared model's."""
    points = field.costs_and_gains(field.settings)
    if not points:
        return None
    names = sorted(points, key=lambda method: points[method])
    across = axis(f"processor time, times that of {FINE_TUNED}", type="log")
    fig = figure(360, xaxis=across, yaxis=axis("gain over local training, points"))
    colours = [LIGHT["c4"] if kind_of(name) == "shared" else LIGHT["accent"] for name in names]
    x, y = [points[name][0] for name in names], [100 * points[name][1] for name in names]
    fig.add_scatter(x=x, y=y, text=[escape(n) for n in names], mode="markers", marker={"color": colours, "size": 9})
    return fig


def dictionary() -> str:
    """What the columns of field.parquet mean."""
    lines: list[Any] = ["# field.parquet", "", "A row is one number.", "", "| column | |", "| --- | --- |"]
    lines += [f"| {name} | {words} |" for name, words in COLUMNS.items()]
    lines += ["", "| quantity | |", "| --- | --- |", *(f"| {name} | {words} |" for name, words in QUANTITIES.items())]
    return "\n".join(lines) + "\n"
