"""The page and the tables, made of field.parquet alone."""

import re
from statistics import fmean

import pandas as pd
import pytest

from fedbench_papers.field.page import (
    answer,
    as_page,
    budget,
    map_cell,
    map_table,
    refusals,
    settings_line,
    write_field,
)
from fedbench_papers.field.plan import FieldPlan
from fedbench_papers.field.record import FIELD_FILE, RECORDED, FieldRecord
from fedbench_papers.field.standings import Field
from fedbench_papers.field.study import require_same_protocol
from tests.papers.field.made import about, made_record, rows_of

CELL = re.compile(r"\(?([\d.]+)\)?")


@pytest.fixture
def field():
    return Field(made_record())


def test_page_and_tables_stand_beside_the_record(tmp_path):
    made_record().write(tmp_path / FIELD_FILE)
    page = write_field(tmp_path).read_text()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {FIELD_FILE, "report.html", "map.md", "map.tex", "dictionary.md"}
    for section in ("map", "where", "findings", "guide", "settings", "refused", "data"):
        assert f'<section id="{section}">' in page
    assert r"\begin{table*}" in (tmp_path / "map.tex").read_text()
    assert "| against |" in (tmp_path / "dictionary.md").read_text()


def test_a_cell_has_the_score_the_seeds_and_the_verdict(field):
    cell = map_cell(field, "clothes", "fedper")
    assert (cell.text, cell.mark, cell.tone, cell.place) == ("77.0", "*", "above", 1)
    assert cell.title == "2 seeds; over local training +5.0 (+3.0 to +7.0) points, 5 seeds"
    assert map_cell(field, "clothes", "fedavg").tone == "below"
    assert map_cell(field, "clothes", "local").tone == "baseline"
    assert map_cell(field, "lungs", "fedper").tone == "open"


def test_a_method_that_does_not_apply_says_why(field):
    cell = map_cell(field, "lungs", "fedbn")
    assert (cell.text, cell.title) == ("–", "no BatchNorm")
    assert refusals(field) == [("Lungs", "fedbn", "no BatchNorm")]
    assert map_cell(field, "clothes", "fedbn").text == ""


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"degenerate": ["fedper"]}, "it was not at work (degenerate)"),
        (
            {"failed": {"fedper": "1 of 5 seeds of fedper failed: no memory"}},
            "1 of 5 seeds of fedper failed: no memory",
        ),
        ({"doubts": {"fedper": "its best rate is at the edge"}}, "its best rate is at the edge"),
    ],
)
def test_a_method_that_is_not_judged_says_why(more, why):
    record = made_record()
    rows = record.numbers[record.numbers["setting"] == "clothes"]
    field = Field(record.with_setting("clothes", rows, {**record.about["clothes"], **more}))
    cell = map_cell(field, "clothes", "fedper")
    assert (cell.text, cell.place) == ("(77.0)", 0)
    assert cell.title.startswith(f"not judged: {why}; ")
    assert ("Clothes", "fedper", why) in refusals(field)
    assert ("fedper" in {one.method for one in field.rivals("clothes")}) == ("doubts" in more)


def test_the_answer_counts_settings(field):
    assert answer(field) == (
        "In 1 of 2 settings a method was shown to be better than local training, and in 0 one was shown to be better "
        "than fedavg-ft, a shared model that every client fine-tunes. Among the possible best in every setting: "
        "fedavg-ft, fedper."
    )
    many = {
        name: [0.5] for name in ("local", "fedavg", "fedper", "fedrep", "ditto", "apfl", "fedbn", "moon", "fedprox")
    }
    alike = FieldRecord().with_setting("a", rows_of("a", many, {}, [*many]), about("A"))
    assert answer(Field(alike)).endswith("9 of 9 methods are among the possible best in every setting.")
    assert answer(Field(FieldRecord())) == "Nothing has been compared yet."
    assert budget(field) == "4 methods, 2 settings, 60 runs in 1.0 hours of a core."


def test_a_setting_is_told_in_a_line(field):
    assert settings_line(field, "clothes") == (
        "5 clients; 40 training samples each in the median; class distributions differ by 0.50 (total variation); mlp, "
        "20 rounds; accuracy decides; a difference below 2 points is too small to matter; 30 runs in 0.5 hours of a "
        "core, 0.4 were estimated; 2 of 4 methods may be the best; 2026-01-01."
    )


def test_every_number_of_the_shipped_map_is_in_the_parquet():
    """Recomputed from the file by pandas alone."""
    field = Field(FieldRecord.read(RECORDED))
    frame = pd.read_parquet(RECORDED)
    frame = frame.astype(dict.fromkeys(("setting", "method", "against", "point", "quantity"), object))
    table = map_table(field)
    titles = {field.title(name): name for name in field.settings}
    shown = 0
    for line in table.lines:
        method = line[0].text
        for head, cell in zip(table.heads[3:], line[3:], strict=True):
            setting = titles[head]
            here = frame[(frame["setting"] == setting) & (frame["method"] == method)]
            scores = here[(here["quantity"] == "score") & (here["point"] == field.about(setting)["point"])]["value"]
            known = CELL.fullmatch(cell.text)
            assert (known is None) == scores.empty
            if known is None:
                continue
            shown += 1
            assert abs(float(known[1]) - 100 * scores.mean()) < 0.05 + 1e-9, "a mean may lie in the middle of two"
            gains = here[(here["against"] == "local") & (here["point"] == field.about(setting)["point"])]
            ends = gains.set_index("quantity")["value"]
            if {"gain", "gain_low", "gain_high"} <= set(ends.index) and "withheld" not in ends[ends == 1].index:
                is_better, is_worse = ends["gain_low"] > 0, ends["gain_high"] < 0
                if cell.tone in ("above", "below", "open"):
                    assert cell.tone == ("above" if is_better else "below" if is_worse else "open")
            best = here[here["quantity"] == "may_be_best"]["value"]
            assert cell.place == (int(best.iloc[0]) if len(best) else 0)
    assert shown == len(field.standings)


def test_mean_gains_of_the_shipped_record_are_those_of_its_seeds():
    """A verdict's mean is the mean paired difference over the seeds that both have, up to clients without a score."""
    record = FieldRecord.read(RECORDED)
    field, checked = Field(record), 0
    for (setting, method), standing in field.standings.items():
        ours, local = (field.by_seed(setting, m, "score", field.point(setting)) for m in (method, "local"))
        both = [ours[seed] - local[seed] for seed in ours.keys() & local.keys()]
        if standing.over_local is not None and len(both) == min(len(ours), len(local)):
            checked += 1
            assert standing.over_local.mean == pytest.approx(fmean(both), abs=0.03)
    assert checked


def test_newcomers_and_added_methods_have_a_note():
    record = made_record()
    told = {**record.about, "lungs": {**record.about["lungs"], "added": ["fedper"]}}
    table = map_table(Field(FieldRecord(record.numbers, told)))
    assert any(line[0].text == "fedper (added)" for line in table.lines)
    assert any(note.startswith("added: compared with the best") for note in table.notes)
    later = {**record.about["lungs"], "point": "newcomers"}
    field = Field(FieldRecord(record.numbers, {**record.about, "lungs": later}))
    assert settings_line(field, "lungs").endswith("intervals are corrected for methods and looks.")


def test_the_shipped_settings_are_those_of_the_plan():
    record, plan = FieldRecord.read(RECORDED), FieldPlan.read()
    places = {name: f"/{name}" for name in plan.sets()}
    assert set(record.about) <= set(plan.settings)
    for name in record.about:
        require_same_protocol(record, name, plan.config(name, places))


def test_the_whole_page_can_be_drawn_from_the_shipped_record():
    page = as_page(Field(FieldRecord.read(RECORDED)))
    assert page.count("<h3>") > 3
