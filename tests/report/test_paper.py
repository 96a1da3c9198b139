"""Tables for papers claim what the study's own tests say, and nothing else."""

import re
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fedbench.errors import ConfigError
from fedbench.report.leaderboard import leaderboard
from fedbench.report.paper import by_size, how_settings_are_tested, paper_table, study_scores
from fedbench.report.paper_notes import Choice
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import Study
from fedbench.report.table import Table
from fedbench.report.typeset import Cell
from fedbench.results.settings_file import SettingsFile, settings_of
from tests.report.conftest import set_method, write_comparison, write_grid, write_run
from tests.report.test_paper_notes import LEVELS, is_latex
from tests.report.test_settings_tables import write_matrix


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """fedcac is best by far, and every method differs from every other."""
    return write_comparison(tmp_path_factory.mktemp("paper") / "compare", LEVELS, seeds=range(5))


def cells(table: Table) -> dict[str, Cell]:
    """The scores by method."""
    return {line[0].text: line[1] for line in table.lines}


def test_settings_that_are_tested_differently_say_so_each():
    class One:
        def __init__(self, words: str) -> None:
            self.how = lambda: words

    assert how_settings_are_tested({"a": One("t test"), "b": One("t test")}) == "t test"
    said = how_settings_are_tested({"a": One("t test"), "b": One(""), "c": One("t test")})
    assert said == "in a and c t test; in b too few seeds for a test"


def test_no_note_on_a_column_that_is_not_there(folder, tmp_path):
    assert "client sd: standard deviation" in " ".join(paper_table(folder, "scores", Choice()).notes).lower()
    survey = SettingsStudy.load(folder)
    for row in survey.rows:
        row.__dict__ |= {"worst": None, "spread": None}
    notes = " ".join(study_scores(survey, Choice()).notes).lower()
    assert "client sd" not in notes
    assert "worst" not in notes


def test_bold_and_marks_are_those_of_the_study_s_tests(folder):
    table = paper_table(folder, "scores", Choice())
    rows = {row.label: row for row in leaderboard(Study.load(folder))}
    found = cells(table)
    assert [*found] == [*rows]
    assert {label for label, cell in found.items() if cell.place} == {"fedcac"}
    assert {label: cell.mark for label, cell in found.items()} == {
        "fedcac": "*",
        "fedper": "*",
        "local": "",
        "ditto": "†",
        "centralized": "",
    }
    assert found["fedper"].text == f"{100 * rows['fedper'].score.mean:.1f} ± {100 * rows['fedper'].score.half:.1f}"
    note = " ".join(table.notes)
    assert "Mean over clients and 5 seeds" in note
    assert "* better and † worse than local: paired t test over seeds, p < 0.05 after correction for 4" in note


def test_without_a_sure_winner_nothing_is_bold_and_the_note_says_why(tmp_path):
    close = {"local": 0.7, "fedper": 0.801, "fedcac": 0.8}
    table = paper_table(write_comparison(tmp_path, close, spread=0.05), "scores", Choice())
    assert not any(cell.place for cell in cells(table).values())
    assert any("Nothing is in bold" in said and "cannot be told from" in said for said in table.notes)
    named = " ".join(paper_table(tmp_path, "scores", Choice(names={"fedper": "FedPer"})).notes)
    assert "FedPer" in named
    assert "fedper" not in named
    assert "fedcac" in named


def test_a_verdict_with_a_doubt_has_a_mark_of_its_own_and_the_note_says_why(tmp_path):
    folder = write_comparison(tmp_path, LEVELS, seeds=range(5), ends={"local": ["train.lr"]})
    table = paper_table(folder, "scores", Choice())
    found = cells(table)
    assert {label: cell.mark for label, cell in found.items()} == {
        "fedcac": "(*)‡",  # ahead of all, local among them
        "fedper": "(*)",
        "local": "",
        "ditto": "†",  # worse than local, which loses nothing by its edge
        "centralized": "",
    }
    assert not any(cell.place for cell in found.values())
    note = " ".join(table.notes)
    assert "In brackets, because there is a doubt: fedper (the best candidate of local is at the edge" in note
    assert "‡ better than every other method, but in doubt: fedcac reached" in note
    assert r"($^{\ast}$)$^{\ddagger}$" in table.typeset("latex")


def test_another_reference_has_marks_of_its_own(folder):
    table = paper_table(folder, "scores", Choice(reference="fedper"))
    marks = {label: cell.mark for label, cell in cells(table).items()}
    assert marks == {"fedcac": "*", "fedper": "", "local": "†", "ditto": "†", "centralized": ""}
    assert table.heads[-1] == "over fedper, points"


def test_few_methods_keep_the_correction_for_all_and_have_other_names(folder):
    table = paper_table(folder, "scores", Choice(["ditto", "fedper"], {"fedper": "FedPer"}))
    assert [*cells(table)] == ["ditto", "FedPer"]
    note = " ".join(table.notes)
    assert "correction for 4 comparisons" in note
    assert "fedcac, the best, is not shown" in note
    assert pd.read_csv(StringIO(table.typeset("csv")))["method"].tolist() == ["ditto", "FedPer"]


def test_a_race_tests_against_local_alone_and_shows_its_own_intervals_of_differences(tmp_path):
    folder = write_comparison(tmp_path, LEVELS, seeds=range(5), stopping_rule={"margin": 1.0, "most": 40})
    table, rows = paper_table(folder, "scores", Choice()), {r.label: r for r in leaderboard(Study.load(folder))}
    found = {line[0].text: dict(zip(table.heads, line, strict=True)) for line in table.lines}["fedcac"]
    score, bound = rows["fedcac"].score, rows["fedcac"].over_local.interval
    assert found["accuracy, %"].text == f"{100 * score.mean:.1f} ± {100 * score.half:.1f}"
    assert found["sd"].text == f"{100 * score.sd:.1f}"
    assert (
        found["over local, points"].text
        == f"+{100 * bound.mean:.1f} (+{100 * bound.low:.1f} to +{100 * bound.high:.1f})"
    )
    assert cells(table)["fedcac"].mark == "*"
    assert "(Student t, each by itself)" in " ".join(table.notes)
    numbers = table.numbers.set_index("method").loc["fedcac"]
    assert numbers["over_local_low"] == numbers["sequential_over_local_low"] == bound.low
    with pytest.raises(
        ConfigError, match="reference = fedper: a comparison with --until-decided tests against local only"
    ):
        paper_table(folder, "scores", Choice(reference="fedper"))


def test_latex_stands_alone_with_booktabs_and_escapes_what_is_special(folder):
    name = r"A_B & 50% #1 {x} ~ ^ \ < λ $"
    text = paper_table(folder, "scores", Choice(names={"fedcac": name})).typeset("latex")
    assert is_latex(text)
    assert r"A\_B \& 50\% \#1 \{x\} \~{} \^{} \textbackslash{} $<$ $\lambda$ \$" in text
    assert re.search(r"\\textbf\{8\d\.\d \$\\pm\$ \d\.\d\}\$\^\{\\ast\}\$", text)
    assert text.isascii()


def test_only_a_wide_table_spans_both_columns_of_a_paper(folder):
    wide = paper_table(folder, "scores", Choice()).typeset("latex")
    narrow = paper_table(folder, "hyperparameters", Choice(methods=["fedcac", "local"])).typeset("latex")
    assert r"\begin{table*}" in wide
    assert r"\begin{table}" in narrow


def test_a_long_table_breaks_over_pages():
    table = [Table(["a"], [[Cell("x")]] * rows, title="Many.", name="t") for rows in (45, 46)]
    short, long = (own.typeset("latex") for own in table)
    assert r"\begin{tabular}{l}" in short
    assert "longtable" not in short
    assert r"\begin{longtable}{l}" in long
    assert r"\caption{Many.}\label{tab:t} \\" in long
    assert r"\endhead" in long


def test_settings_are_columns_with_the_ranks(tmp_path):
    table = paper_table(write_matrix(tmp_path, LEVELS, {**LEVELS, "fedper": 0.6}, spread=0.0), "scores", Choice())
    assert table.heads == ["method", "alpha = 0.1", "alpha = 0.5", "rank"]
    marks = {line[0].text: [cell.mark for cell in line[1:3]] for line in table.lines}
    assert (marks["fedcac"], marks["fedper"]) == (["*", "*"], ["*", "†"])
    assert is_latex(table.typeset("latex"))


def test_a_method_that_failed_in_a_setting_is_left_out_by_name(tmp_path):
    write_matrix(tmp_path, LEVELS, LEVELS)
    write_comparison(next(tmp_path.glob("settings/*0.5")), LEVELS, fail={"fedper": (0, 1, 2)})
    table = paper_table(tmp_path, "scores", Choice())
    assert "fedper" not in cells(table)
    assert "Left out, because it failed: fedper (alpha = 0.5: RuntimeError: boom)" in table.notes
    assert not any("Left out" in note for note in paper_table(tmp_path, "scores", Choice(["fedcac", "local"])).notes)


def test_what_a_study_lacks_is_one_clear_line(folder, tmp_path):
    for what, choice, line in (
        ("scores", Choice(["fedavg"]), r"methods: fedavg: not in this study; it has fedcac, fedper, local"),
        ("scores", Choice(names={"x": "X"}), "names: x: not in this study"),
        ("scores", Choice(reference="x"), "reference: x: not in this study"),
        ("ablation", Choice(), "no ablation here"),
        ("tables", Choice(), "table = tables: must be one of scores, hyperparameters"),
    ):
        with pytest.raises(ConfigError, match=line):
            paper_table(folder, what, choice)
    with pytest.raises(ConfigError, match="no run here"):
        paper_table(tmp_path, "scores", Choice())


def test_hyperparameters_are_the_tried_and_the_chosen_ones(tmp_path):
    folder = write_grid(tmp_path / "grid", space={"method.tau": [0.1, 0.3, 0.5], "train.lr": [0.01, 0.05]})
    table = paper_table(folder, "hyperparameters", Choice(["fedcac"]))
    texts = [[cell.text for cell in line] for line in table.lines]
    assert texts[:2] == [["fedcac", "tau", "0.1, 0.3, 0.5", "0.3", "6"], ["", "lr", "0.01, 0.05", "0.05", ""]]
    assert is_latex(table.typeset("latex"))
    numbers = pd.read_csv(StringIO(table.typeset("csv"))).set_index("key")
    assert numbers.loc["method.tau", ["method", "tried", "chosen"]].tolist() == ["fedcac", "0.1 0.3 0.5", 0.3]


def test_tried_numbers_come_by_size(tmp_path):
    folder = write_grid(tmp_path / "grid", space={"method.tau": [0.3, 0.1, 0.5], "train.lr": [0.05, 0.01]})
    table = paper_table(folder, "hyperparameters", Choice(["fedcac"]))
    assert [line[2].text for line in table.lines[:2]] == ["0.1, 0.3, 0.5", "0.01, 0.05"]
    assert by_size([2, "none", 0.5, 1]) == ["none", 0.5, 1, 2]


def test_without_tuning_the_numbers_are_those_of_the_runs(tmp_path):
    write_run(tmp_path, rounds=1)
    set_method(tmp_path, {"name": "fedcac", "tau": 0.7, "ties": "exact", "beta": None})
    table = paper_table(tmp_path, "hyperparameters", Choice())
    rate = yaml.safe_load((tmp_path / "config.yaml").read_text())["train"]["lr"]
    assert table.heads == ["method", "key", "chosen"]
    assert [[cell.text for cell in line] for line in table.lines] == [
        ["fedcac", "tau", "0.7"],
        ["", "lr", f"{rate:g}" if rate else "none"],
    ]


def write_ablation(folder: Path, over: dict, *levels: float) -> Path:
    """fedcac reaches these levels, local always the same."""
    matrix = SettingsFile({"seeds": [0, 1, 2, 3]}, over, settings_of(over))
    for setting, level in zip(matrix.settings, levels, strict=True):
        place = write_comparison(folder / setting.path, {"local": 0.7, "fedcac": level}, seeds=range(4), spread=0.0)
        set_method(place / "final" / "fedcac", {"name": "fedcac", "tau": level})
    matrix.write(folder)
    return folder


def test_an_ablation_has_a_row_per_value_and_tests_them_against_the_first(tmp_path):
    folder = write_ablation(tmp_path, {"method.tau": [0.1, 0.5, 0.9]}, 0.7, 0.8, 0.75)
    table = paper_table(folder, "ablation", Choice())
    assert table.heads == ["tau", "fedcac"]
    assert [line[0].text for line in table.lines] == ["0.1", "0.5", "0.9"]
    assert [(line[1].mark, line[1].place) for line in table.lines] == [("", 0), ("*", 1), ("*", 0)]
    assert "* better than tau = 0.1: paired t test" in " ".join(table.notes)
    assert is_latex(table.typeset("latex"))
    worse = paper_table(write_ablation(tmp_path / "b", {"method.tau": [0.1, 0.5]}, 0.8, 0.7), "ablation", Choice())
    assert [(line[1].mark, line[1].place) for line in worse.lines] == [("", 1), ("†", 0)]


def test_settings_with_other_partitions_are_not_tested_against_each_other(tmp_path):
    folder = write_ablation(tmp_path, {"partition.alpha": [0.1, 0.5]}, 0.7, 0.8)
    table = paper_table(folder, "ablation", Choice())
    assert table.heads == ["alpha", "fedcac", "local"]
    assert [(cell.mark, cell.place) for line in table.lines for cell in line[1:]] == [("", 0)] * 4
    assert any("rows are not tested against each other" in said for said in table.notes)
