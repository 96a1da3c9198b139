"""The tables of scores: what a number is a mean over, and single classes and domains."""

import pandas as pd
import pytest

from fedbench.report.scores import (
    final,
    final_table_text,
    newcomers_text,
    of_groups,
    of_newcomers,
    without_validation,
)
from fedbench.report.study import Study
from fedbench.results.reader import Records
from fedbench.results.tables import FinalScores, final_table
from tests.report.conftest import add_newcomers
from tests.report.reading import Make, page_of
from tests.results.tabled import ACCURACY, ERROR, both, of_errors, unvalidated

BATCHES = {"evaluate": {"accuracy": "batches", "batch_size": 32}}
BOTH = {"evaluate": {"by": ["class", "domain"]}}
LEVELS = {"local": 0.6, "fedper": 0.7, "fedcac": 0.9}


def test_the_final_table_has_the_spread_and_the_score_over_all_samples(make_run: Make) -> None:
    study = Study.load(make_run())
    table = final(study)
    assert table.heads[1:] == [
        "last round",
        "sd",
        "pooled",
        "worst client",
        "client sd",
        "best-val round",
        "best on test*",
    ]
    last = study.last_rows("fedcac")
    rows = study.clients["fedcac"].merge(last[["seed", "round", "point"]])
    correct = (rows["test_accuracy"] * rows["test_n"]).groupby(rows["seed"]).sum()
    pooled = (correct / rows.groupby("seed")["test_n"].sum()).mean()
    shown = dict(zip(table.heads[1:], table.by_group["after aggregation"][0][1:], strict=True))
    assert shown["pooled"].text == f"{100 * pooled:.1f}"
    assert shown["sd"].text == f"{100 * last['test_accuracy'].std():.1f}"
    assert shown["last round"].text == f"{100 * last['test_accuracy'].mean():.1f}"
    each = rows.groupby("seed")["test_accuracy"]
    assert shown["client sd"].text == f"{100 * each.std(ddof=0).mean():.1f}"
    assert shown["worst client"].text == f"{100 * each.min().mean():.1f}"
    assert shown["worst client"].small == f"± {100 * 4.302653 * each.min().sem():.1f}"  # t of 2 degrees of freedom
    assert any("client sd: standard deviation over a seed's clients" in note for note in table.notes)


def test_one_seed_has_no_spread(make_run: Make) -> None:
    assert "sd" not in final(Study.load(make_run(seeds=(0,)))).heads


def test_batches_are_said_wherever_their_mean_is_shown(make_run: Make) -> None:
    folder = make_run(**BATCHES)
    page, table = page_of(folder), final(Study.load(folder))
    assert "seeds 0 to 2; accuracy as mean over batches of 32" in page.text
    assert "Accuracy as mean over batches of 32." in table.notes
    assert "pooled" not in table.heads


def test_rows_over_samples_and_over_batches_are_marked_and_make_no_winner(make_comparison: Make) -> None:
    folder = make_comparison(LEVELS, spread=0.0, asked={"fedcac": BATCHES})
    page, study = page_of(folder), Study.load(folder)
    labels = [line[0].text for line in final(study).by_group["after aggregation"]]
    assert labels == ["fedcac (mean over batches of 32)", "fedper (mean over samples)", "local (mean over samples)"]
    reason = "but fedcac is scored by the mean over batches of 32 and fedper by the mean over samples"
    assert page.answer.endswith(f"{reason}, so no winner is named.")
    table = pd.read_csv(folder / "table.csv").set_index("method")
    assert table["estimator"].to_dict() == {"fedcac": "batches of 32", "fedper": "samples", "local": "samples"}
    for name in ("table.md", "table.tex"):
        assert "fedcac (mean over batches of 32)" in (folder / name).read_text()
        assert "rows with different marks are not comparable" in (folder / name).read_text()


def test_text_is_aligned_and_in_percent() -> None:
    lines = final_table_text(both(), ACCURACY).splitlines()
    assert lines[2].startswith("fedcac  after_fit  75.0 (18.3 to 97.6)  ")
    assert lines[2].endswith("  +10.0 +- 0.0")
    assert lines[4].startswith("local   after_fit  65.0 (")
    assert lines[4].endswith("  -"), "local is no better than itself"
    assert len({len(text) for text in lines[:-1]}) == 1
    assert lines[-1].endswith("; * chosen on test: optimistic")


def test_text_says_what_scores_are_means_over_and_marks_rows_that_differ() -> None:
    text = final_table_text(both(fedcac="batches of 32", local="batches of 32"), ACCURACY)
    assert text.endswith("; accuracy as mean over batches of 32")
    assert "pooled" not in text
    lines = final_table_text(both(fedcac="batches of 32"), ACCURACY).splitlines()
    assert lines[2].startswith("fedcac (mean over batches of 32)  after_fit")
    assert lines[4].startswith("local (mean over samples)  ")
    assert "rows with different marks are not comparable" in lines[-1]


def test_columns_without_numbers_are_absent_from_the_text() -> None:
    text = final_table_text(unvalidated(), ACCURACY)
    assert "best-val" not in text
    assert "over local" not in text


def test_text_of_no_scores_says_why_there_are_none() -> None:
    text = final_table_text(final_table(FinalScores.of(ACCURACY, {})), ACCURACY)
    assert text == "no scores: in no round is the mean of test accuracy over clients a finite number"


def test_text_of_errors_has_no_percent_and_names_them() -> None:
    text = final_table_text(of_errors(), ERROR)
    assert "0.75 +- 0.635" in text
    assert "-0.1 +- " in text
    assert "test mean squared error, mean over clients" in text


def test_classes_and_domains_of_a_run_at_every_point(make_run: Make) -> None:
    folder = make_run(**BOTH)
    study, page = Study.load(folder), page_of(folder)
    classes, domains = of_groups(study)
    assert (classes.heads, domains.heads) == (["method", "class 9", "class 10"], ["method", "photo", "sketch"])
    assert list(domains.by_group) == ["after aggregation", "after local training"]
    rows = study.clients["fedcac"].merge(study.last_rows("fedcac")[["seed", "round", "point"]]).query("client % 2 == 1")
    correct = (rows["test_accuracy"] * rows["test_n"]).groupby(rows["seed"]).sum()
    sketch = domains.by_group["after aggregation"][0][2]
    assert sketch.text == f"{100 * (correct / rows.groupby('seed')['test_n'].sum()).mean():.1f}"
    assert sketch.title.startswith("525 samples of 5 clients; mean over clients ")
    assert page.sections.index("by-class") < page.sections.index("by-domain") < page.sections.index("curves")
    assert set(pd.read_csv(folder / "groups.csv")["group"]) == {"9", "10", "photo", "sketch"}


def test_classes_are_called_as_the_data_call_them(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Records, "output_names", [f"kind {number}" for number in range(1, 12)])
    study = Study.load(make_run(**BOTH))
    assert of_groups(study)[0].heads == ["method", "class kind 10", "class kind 11"]
    assert dict(zip(study.groups["group"], study.groups["name"], strict=True))["9"] == "kind 10"


def test_those_of_a_comparison_at_its_point_the_best_method_first(make_comparison: Make) -> None:
    study = Study.load(make_comparison(LEVELS, spread=0.0, asked={"": BOTH}, point="after_fit"))
    for table in of_groups(study):
        assert list(table.by_group) == ["after local training"]
        assert [line[0].method for line in table.lines] == ["fedcac", "fedper", "local"]


def test_without_such_records_there_is_no_section_and_no_file(make_run: Make) -> None:
    folder = make_run()
    assert not any(section.startswith("by-") for section in page_of(folder).sections)
    assert not (folder / "groups.csv").exists()


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.1, ""),
        (
            0.0,
            "Final runs train on all training samples, so there is no best-val round; candidates were tried with 10 %",
        ),
    ],
)
def test_a_missing_best_val_round_is_explained(make_comparison: Make, share: float, said: str) -> None:
    study = Study.load(make_comparison(LEVELS, asked={"": {"data": {"name": "digits", "val": share}}}))
    assert without_validation(study).startswith(said)
    assert bool(without_validation(study)) == bool(said)


def test_a_run_without_validation_images_says_so(make_run: Make) -> None:
    study = Study.load(make_run(data={"name": "digits", "val": 0}))
    assert without_validation(study) == "No samples are held out for validation, so there is no best-val round."


def test_newcomers_have_a_table_by_epochs_and_by_images(make_run: Make) -> None:
    folder = make_run()
    assert not of_newcomers(Study.load(folder)).lines
    assert newcomers_text(Study.load(folder).newcomers, ACCURACY) == ""
    add_newcomers(folder, 0.7)
    study = Study.load(folder)
    table = of_newcomers(study)
    ((_, *cells),) = table.lines
    assert table.heads[1:] == ["0 epochs", "1 epoch", "2 epochs", "1 sample"]
    assert [cell.text for cell in cells] == ["52.0", "62.0", "72.0", "62.0"]  # 0.5 to 0.52, and 0.52 to 0.54
    assert cells[2].small == f"± {4.302653 * 1 / 3**0.5:.1f}"  # t of 2 degrees of freedom, points
    assert cells[0].title == "standard deviation over newcomers 1.0"
    assert "of 2 clients that took no part in training" in table.intro
    text = newcomers_text(study.newcomers, study.metric).splitlines()
    assert text[0].split() == ["newcomers", "0", "epochs", "1", "epoch", "2", "epochs", "1", "sample"]
    assert text[2].startswith("fedcac     52.0 +- 2.5  ")
