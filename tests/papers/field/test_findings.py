"""What the field says, with the test behind it."""

import pandas as pd
import pytest
from scipy import stats

from fedbench_papers.field.findings import OF_PAPERS, findings, paper_line
from fedbench_papers.field.record import FieldRecord
from fedbench_papers.field.standings import Field
from tests.papers.field.made import DOWN, OPEN, SCORES, UP, about, made_record, rows_of


def said(field: Field) -> dict[str, str]:
    return {one.title: one.text for one in findings(field)}


def many(settings: int) -> Field:
    """Settings in which the gain of fedper falls as heterogeneity rises."""
    record = FieldRecord()
    for number in range(settings):
        top = 0.9 - 0.02 * number
        scores = {"local": [0.5, 0.5], "fedavg": [0.4, 0.4], "fedavg-ft": [0.6, 0.6], "fedper": [top, top]}
        gains = {"fedavg": DOWN, "fedavg-ft": UP, "fedper": (top - 0.5, top - 0.52, top - 0.48)}
        rows = rows_of(f"s{number}", scores, gains, ["fedper"], {"fedper": UP, "fedavg": DOWN})
        record = record.with_setting(f"s{number}", rows, about(f"S{number}", heterogeneity=0.1 * number))
    return Field(record)


def test_where_collaboration_pays():
    text = said(Field(made_record()))["Where does collaboration pay?"]
    assert "In 1 of 2 settings a method was shown to be better than local training." in text
    assert "in 'Clothes': +5.0 (+3.0 to +7.0) points; as the largest of many it is flattered." in text
    assert "Clothes 2 of 3" in text
    assert text.endswith("In Lungs none was.")


def test_which_methods_are_better_than_fine_tuning():
    text = said(Field(made_record()))["Which methods are better than fedavg-ft?"]
    assert "2 of 2 methods were in no setting shown to be better than fedavg-ft" in text
    assert "1 of these are worse somewhere" in text
    assert "Better in S0; S1; S2; S3: fedper." in said(many(4))["Which methods are better than fedavg-ft?"]


def test_the_worst_off_clients():
    text = said(Field(made_record()))["Do the worst-off clients gain?"]
    assert "in 1 of 2 cases, but not with fedper in Clothes." in text
    assert text.startswith("Where a method is better than local training on average")


def test_rank_correlations_need_settings():
    assert "Does the gain grow with heterogeneity?" not in said(many(3))
    text = said(many(6))["Does the gain grow with heterogeneity?"]
    assert "the smaller is the gain" in text
    assert "-1.00" in text


def test_settings_that_are_alike_have_no_correlation():
    record = many(6).record
    alike = {name: {**told, "heterogeneity": 0.5} for name, told in record.about.items()}
    assert "Does the gain grow with heterogeneity?" not in said(Field(FieldRecord(record.numbers, alike)))


def test_the_best_of_both_kinds_are_compared_over_settings():
    (finding,) = [one for one in findings(many(6)) if one.title.startswith("One model")]
    assert "in 6 of 6 settings, by 45.0 points in the median" in finding.text
    assert f"p = {stats.wilcoxon([0.5, 0.48, 0.46, 0.44, 0.42, 0.4]).pvalue:.3f}" in finding.test
    assert "The best of 2 personal methods against that of 1 shared ones" in finding.test


def test_the_ranking_over_settings():
    text = said(many(6))["Is there a best method over all settings?"]
    assert "fedper (1.0), fedavg-ft (2.0), local (3.0) and fedavg (4.0)" in text
    assert (
        "0 of 6 pairs are told apart over settings, which 6 settings cannot do: p of a pair is 0.19 at least." in text
    )


def test_what_turns_with_the_evaluation_point():
    first = rows_of("a", SCORES, {"fedper": DOWN, "fedavg": UP})
    after = rows_of("a", {}, {"fedper": UP, "fedavg": UP}, point="after_fit")
    record = FieldRecord().with_setting("a", pd.concat([first, after]), about("A"))
    text = said(Field(record))["What turns with the evaluation point?"]
    assert "Of 2 verdicts against local training 1 differ" in text
    assert "1 turn round: fedper in A." in text


def test_cost_and_gain_over_methods():
    assert "Does it pay to spend more?" not in said(Field(made_record()))  # of three methods
    seconds = {"local": 1, "fedavg": 0.5, "fedavg-ft": 1.0, "fedper": 2.0, "fedrep": 3.0, "ditto": 5.0}
    scores = {"local": 0.5, "fedavg": 0.4, "fedavg-ft": 0.51, "fedper": 0.55, "fedrep": 0.56, "ditto": 0.7}
    rows = rows_of("a", {name: [score] for name, score in scores.items()}, {}, seconds=seconds)
    text = said(Field(FieldRecord().with_setting("a", rows, about("A"))))["Does it pay to spend more?"]
    assert "0.5 to 5.0 times" in text
    assert "Slower ones gain more (rank correlation +1.00)" in text


@pytest.mark.parametrize("paper", OF_PAPERS)
def test_a_paper_whose_method_was_not_compared_has_no_line(paper):
    assert paper_line(Field(made_record()), paper, OF_PAPERS[paper]) == ""


def test_a_papers_method_stands_in_a_sentence():
    assert paper_line(Field(made_record()), "FedPer", "fedper") == (
        "FedPer: in 2 settings where it was judged, better than local training in 1 and worse in 0, better than "
        "fedavg-ft in 0 and worse in 0; among the possible best in Clothes; Lungs."
    )


def plain() -> Field:
    """In A fedper is fedavg, and fedrep local training; in B both are themselves."""
    local, shared, own = [0.5, 0.5, 0.6], [0.7, 0.7, 0.8], [0.6, 0.7, 0.9]
    base = {"local": local, "fedavg": shared, "fedavg-ft": [0.6, 0.6, 0.7]}
    record, gains = FieldRecord(), {"fedavg": UP, "fedper": UP, "fedrep": OPEN}
    for name, given in {"a": {"fedper": shared, "fedrep": local}, "b": {"fedper": own, "fedrep": own}}.items():
        rows = rows_of(name, {**base, **given}, gains, ["fedavg", "fedper"], {"fedavg": UP, "fedper": UP})
        record = record.with_setting(name, rows, about(name.upper()))
    return Field(record)


def test_what_a_papers_method_has_from_a_plain_one_is_named_and_not_counted():
    assert paper_line(plain(), "FedPer", "fedper") == (
        "FedPer: in 1 setting where it was judged, better than local training in 1 and worse in 0, better than "
        "fedavg-ft in 1 and worse in 0; among the possible best in B. Not counted, because it is fedavg there, with "
        "the same scores in every seed: A."
    )
    assert paper_line(plain(), "FedRep", "fedrep").endswith(
        "nowhere among the possible best. Not counted, because it is local training there, with the same scores in "
        "every seed: A."
    )


def test_methods_that_are_a_plain_one_are_named():
    texts = said(plain())
    named = texts["Which methods are fedavg or local training themselves?"]
    assert named.endswith("fedper is fedavg in A. fedrep is local training in A.")
    assert "Which methods are fedavg or local training themselves?" not in said(Field(made_record()))
    assert "A 2 of 4 (1 of them fedavg itself); B 2 of 4." in texts["Where does collaboration pay?"]
    better = texts["Which methods are better than fedavg-ft?"]
    assert "Better in A; B: fedavg. Better in B: fedper." in better
    assert better.endswith("Where a method is fedavg or local training itself, it is not counted.")


def test_a_papers_method_that_is_judged_nowhere():
    rows = rows_of("a", {"local": [0.5, 0.6], "fedper": [0.7, 0.8]}, {})
    rows = rows[(rows["method"] != "fedper") | (rows["quantity"] != "may_be_best")]
    field = Field(FieldRecord().with_setting("a", rows, about("A", doubts={"fedper": "its best rate is at the edge"})))
    line = "FedPer: judged in none of 1 setting, for the reasons that the page names."
    assert paper_line(field, "FedPer", "fedper") == line


def test_an_empty_record_says_nothing():
    assert said(Field(FieldRecord())) == {
        "Where does collaboration pay?": "In 0 of 0 settings a method was shown to be better than local training."
    }
