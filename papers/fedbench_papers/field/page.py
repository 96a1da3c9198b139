"""The page of the field, its tables as files, all made of field.parquet."""

from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fedbench.config.words import plural
from fedbench.report.parts import ChartSection, charts
from fedbench.report.table import Column, Table
from fedbench.report.template import page_of
from fedbench.report.theme import LIGHT, axis, figure, show_legend
from fedbench.report.typeset import Cell, sentence
from fedbench.report.verdicts import SEQUENTIAL_TONES
from fedbench.results.files import write_atomically
from fedbench.results.tables import BASELINE
from fedbench_papers.field.findings import findings
from fedbench_papers.field.guide import guide
from fedbench_papers.field.measures import FINE_TUNED
from fedbench_papers.field.record import COLUMNS, FIELD_FILE, QUANTITIES, FieldRecord
from fedbench_papers.field.standings import POOLED, Field, Standing, family_of, kind_of

TONES = {"better": "above", "worse": "below"}
MAP_NOTES = (
    "Test score in %, mean over clients and seeds, beside it the number of seeds; in bold where the method may be the "
    "best of its setting, because no other one is surely better.",
    "A setting adds seeds until it is decided who is best and who is better than local training, or it is given up.",
    f"{POOLED} trains on the data of all clients and does not compete.",
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
    pays = [name for name in settings if any(s.over_local and s.over_local.is_better for s in field.rivals(name))]
    tuned = [
        name
        for name in settings
        if any((g := field.gain(name, s.method, FINE_TUNED)) and g.is_better for s in field.rivals(name))
    ]
    text = f"In {len(pays)} of {plural(len(settings), 'setting')} collaborating is better than local training, and in "
    text += f"{len(tuned)} some method is better than {FINE_TUNED}, a shared model that every client fine-tunes."
    everywhere = [
        m
        for m in field.competing
        if (own := field.of_method(m)) and all(s.may_be_best for s in own) and len(own) == len(settings)
    ]
    text += (
        f" May be the best in every setting: {', '.join(everywhere)}."
        if everywhere
        else " No method may be the best in every setting."
    )
    return text


def budget(field: Field) -> str:
    """What stands behind the page."""
    runs = sum(field.about(name)["runs"] for name in field.settings)
    seeds = sum(standing.seeds for standing in field.standings.values())
    size = f"{plural(len(field.competing), 'method')}, {plural(len(field.settings), 'setting')}"
    return f"{size}, {seeds:,} final runs of {runs:,} in all."


def map_table(field: Field) -> Table:
    """Methods by settings: score, whether it is better than local training, and whether it may be the best."""
    columns = [
        Column[str]("method", lambda method: Cell(method, method=method, title=family_of(method))),
        Column[str]("family", family_of),
        Column[str]("may be best", partial(_count_of_best, field)),
        *(Column[str](field.title(name), partial(map_cell, field, name)) for name in field.settings),
    ]
    table = Table.of(columns, field.methods, least=3, title="Methods by settings", name="map", notes=list(MAP_NOTES))
    return Table(table.heads, table.lines, 2, table.title, notes=table.notes, name=table.name)


def _count_of_best(field: Field, method: str) -> str:
    own = field.of_method(method)
    return "" if method == POOLED else f"{sum(one.may_be_best for one in own)} of {len(own)}"


def map_cell(field: Field, setting: str, method: str) -> Cell:
    """A method in a setting; why it has no score there."""
    standing, about = field.standings.get((setting, method)), field.about(setting)
    if standing is None:
        why = about["refused"].get(method) or about["failed"].get(method) or ""
        return Cell("–" if why else "", title=why, tone="quiet")
    gain = standing.over_local
    if method in about["degenerate"]:
        words = "degenerate: it was not at work, so that it is not judged"
        return Cell(f"({100 * standing.score:.1f})", tone="quiet", title=words)
    tone = "baseline" if method in (BASELINE, POOLED) else TONES.get(gain.relation, "open") if gain else "open"
    told = "" if gain is None else f"over local training {gain.text()} points"
    place = int(standing.may_be_best)
    return Cell(f"{100 * standing.score:.1f}", place=place, tone=tone, small=str(standing.seeds), title=told)


def settings_line(field: Field, name: str) -> str:
    """What a setting is."""
    about = field.about(name)
    config, distance = about["config"], about["heterogeneity"]
    estimate = "" if about.get("estimate") is None else f", {about['estimate']:.1f} were estimated"
    facts = [
        f"{about['clients']} clients",
        "" if about["samples"] is None else f"{about['samples']:.0f} training samples each in the median",
        "" if distance is None else f"class distributions differ by {distance:.2f} (total variation)",
        f"{config['model']['name']}, {plural(config['rounds'], 'round')}",
        f"{about['metric']} decides",
        f"a difference below {100 * about['margin']:g} points is too small to matter",
        f"{plural(about['runs'], 'run')} in {about['hours']:.1f} hours of a core{estimate}",
        str(about["date"]),
    ]
    return sentence("; ".join(filter(None, facts))) + "."


def refusals(field: Field) -> list[tuple[str, str, str]]:
    """Methods without a score, by setting, with the reason."""
    return [
        (field.title(name), method, why)
        for name in field.settings
        for method, why in {**field.about(name)["refused"], **field.about(name)["failed"]}.items()
    ]


def chart_section(field: Field) -> ChartSection:
    """Where collaboration pays, and what methods cost."""
    against = "over local training, of the best shared model, the best personal one, and the model of all data"
    pictures = charts(
        ("heterogeneity", "Gain by heterogeneity", gain_figure(field, "heterogeneity"), ""),
        ("samples", "Gain by training samples of a client", gain_figure(field, "samples"), ""),
        ("cost", "Gain by processor time", cost_figure(field), "A point is a method, mean over its settings."),
    )
    return ChartSection(
        "where", "Where collaboration pays", pictures, f"Points gained {against}; a place is a setting."
    )


def gain_figure(field: Field, fact: str) -> go.Figure | None:
    """Gains over local training of three kinds of methods, by a fact of the settings."""
    titles = {
        "heterogeneity": "distance of class distributions (total variation)",
        "samples": "training samples of a client, median",
    }
    kinds = {"shared": "c4", "personal": "accent", "pooled": "quiet"}
    fig = figure(360, xaxis=axis(titles[fact]), yaxis=axis("gain over local training, points", zeroline=True))
    drawn = False
    for kind, colour in kinds.items():
        spots = []
        for name in field.settings:
            value, local = field.about(name)[fact], field.standings.get((name, BASELINE))
            best = field.standings.get((name, POOLED)) if kind == "pooled" else field.best_of(name, kind)
            if value is not None and local is not None and best is not None:
                spots.append((value, 100 * (best.score - local.score), f"{field.title(name)}: {best.method}"))
        if spots:
            drawn = True
            x, y, names = zip(*sorted(spots), strict=True)
            marker = {"color": LIGHT[colour], "size": 10}
            fig.add_scatter(x=x, y=y, text=[escape(n) for n in names], name=kind, mode="markers", marker=marker)
    show_legend(fig)
    return fig if drawn else None


def cost_figure(field: Field) -> go.Figure | None:
    """Mean gain over local training by processor time in multiples of a fine-tuned shared model's."""
    spots = []
    for method in field.competing:
        ratios, gains = _costs(field, field.of_method(method))
        if ratios:
            spots.append((float(np.mean(ratios)), 100 * float(np.mean(gains)), method))
    if not spots:
        return None
    x, y, names = zip(*sorted(spots), strict=True)
    across = axis(f"processor time, times that of {FINE_TUNED}", type="log")
    fig = figure(360, xaxis=across, yaxis=axis("gain over local training, points"))
    colours = [LIGHT["c4"] if kind_of(name) == "shared" else LIGHT["accent"] for name in names]
    fig.add_scatter(x=x, y=y, text=[escape(n) for n in names], mode="markers", marker={"color": colours, "size": 9})
    return fig


def _costs(field: Field, standings: Sequence[Standing]) -> tuple[list[float], list[float]]:
    ratios, gains = [], []
    for one in standings:
        ours, base = (field.number(one.setting, m, "seconds") for m in (one.method, FINE_TUNED))
        if ours and base and one.over_local is not None:
            ratios.append(ours / base)
            gains.append(one.over_local.mean)
    return ratios, gains


def dictionary() -> str:
    """What the columns of field.parquet mean."""
    lines: list[Any] = ["# field.parquet", "", "A row is one number.", "", "| column | |", "| --- | --- |"]
    lines += [f"| {name} | {words} |" for name, words in COLUMNS.items()]
    lines += ["", "| quantity | |", "| --- | --- |", *(f"| {name} | {words} |" for name, words in QUANTITIES.items())]
    return "\n".join(lines) + "\n"
