"""The words and tables of a race say what its state says, and nothing else."""

from dataclasses import replace

import pytest

from fedbench.report.answer import subtitle
from fedbench.report.comparisons import behind_best, forest
from fedbench.report.leaderboard import leaderboard, leaderboard_frame, score_table
from fedbench.report.page import page_text
from fedbench.report.race import RACE_HEADS, guarantee, race_order
from fedbench.report.study import Study
from fedbench.report.verdicts import comparison_answer, comparison_notes
from fedbench.results.race import Bound, VerdictOverLocal

LEVELS = {"local": 0.6, "fedper": 0.7, "fedcac": 0.8, "centralized": 0.95}


@pytest.fixture
def raced(make_comparison):
    """A comparison that added seeds until it was decided, with a margin of some points."""

    def make(margin: float = 2.0, seeds: int = 8, most: int = 8, **more) -> Study:
        levels = more.pop("levels", LEVELS)
        study = Study.load(make_comparison(levels, seeds=tuple(range(seeds)), **{"spread": 0.01, **more}))
        study.plan.race = {"margin": margin, "most": most}
        finals = [entry for entry in study.plan.entries if entry.role == "final"]
        tried = [entry for entry in study.plan.entries if entry.role != "final"]
        study.plan.entries = [*tried, *(replace(entry, seed=seed) for entry in finals for seed in range(seeds))]
        return study

    return make


def said(study: Study) -> tuple[str, list[str]]:
    rows = leaderboard(study)
    return comparison_answer(study, rows), comparison_notes(study, rows)


def test_a_winner_is_named_with_the_seeds_that_it_took(raced):
    study = raced()
    answer, notes = said(study)
    assert study.race.ending == "winner"
    assert answer.startswith("fedcac reached ")
    assert answer.endswith(f": it is the best, decided after {study.race.seeds['fedcac']} seeds.")
    assert notes[0].startswith("Better than local training: ")
    assert "with a probability of at most 5\u00a0%" in " ".join(notes)


def test_tuned_points_are_a_premise_only_where_something_was_tuned(raced):
    study = raced()
    assert "given the chosen candidates and the clients, and if differences" in guarantee(study)
    study.plan.entries = [entry for entry in study.plan.entries if entry.role == "final"]
    assert "given the clients, and if differences" in guarantee(study)


def test_a_wide_margin_ends_in_a_tie(raced):
    study = raced(margin=50.0)
    answer, notes = said(study)
    assert study.race.ending in ("tie", "winner")
    study.race.ending, study.race.candidates = "tie", ["fedcac", "fedper"]
    study.race.behind = {"fedper": Bound(-0.01, -0.02, 0.0, 0.003, 5)}
    answer, notes = said(study)
    assert "; equal to it within 50 points: fedper, decided after" in answer
    assert notes[0] == "Difference from fedcac: fedper (\u22122.0 to +0.0)."


def test_what_is_open_says_how_it_goes_on(raced):
    study = raced(seeds=5, most=40, levels={"local": 0.6, "fedper": 0.70, "fedcac": 0.701}, spread=0.08)
    answer, notes = said(study)
    assert answer.startswith("Not decided after 5 seeds: ")
    assert "the same command continues with 8 seeds of" in " ".join(notes)


def test_before_the_first_look_nothing_is_said(raced):
    study = raced(seeds=3)
    answer, notes = said(study)
    assert answer == "Not decided yet: the first look is at 5 seeds."
    assert not any("probability" in note for note in notes)


def test_verdicts_stand_in_the_table_in_place_of_p_values(raced):
    study = raced()
    rows = leaderboard(study)
    heads, lines = score_table(rows, study.metric)
    assert set(RACE_HEADS) <= set(heads)
    assert not any("Holm" in head for head in heads)
    by_label = {line[0].text: dict(zip(heads, line, strict=True)) for line in lines}
    assert by_label["fedcac"]["who is best"].text == "best"
    assert by_label["fedper"]["who is best"].text == "not the best"
    assert by_label["fedper"]["against local"].text == "better"
    assert by_label["fedper"]["score"].tone == "above"
    assert not any("±" in cell.text for line in lines for cell in line), "intervals of a fixed number of seeds"
    frame = leaderboard_frame(rows).set_index("method")
    assert frame.loc["fedcac", "race_who_is_best"] == "best"
    assert frame.loc["fedper", "race_over_local_low"] > 0


def test_colours_follow_verdicts_alone(raced):
    study = raced()
    study.race.over_local["fedper"] = VerdictOverLocal("equal", Bound(0.01, -0.01, 0.02, 0.004, 8))
    (row,) = [row for row in leaderboard(study) if row.label == "fedper"]
    assert row.verdicts is not None
    assert (row.tone, row.verdicts.against_local) == ("open", "equal within 2 points")


def test_methods_are_ordered_by_their_paired_difference(raced):
    study = raced()
    assert race_order(study, study.race) == ["fedcac", "fedper", "local", "centralized"]


def test_no_winner_where_a_rival_may_not_be_at_its_best(raced):
    answer, _ = said(raced(ends={"fedper": ["train.lr"]}))
    assert answer.endswith("is at the edge of its search range (train.lr = 0.01), so no winner is named.")


def test_what_was_withheld_or_given_up_is_said(raced):
    study = raced()
    bound = Bound(0.01, -0.01, 0.03, 0.008, 8)
    study.race.undecided, study.race.over_local = {"fedper": bound, "fedcac": bound}, {}
    study.race.given_up, study.race.withheld = {"fedper": 0.1}, {("local", "fedcac"): "better"}
    notes = " ".join(said(study)[1])
    assert "with a probability below 20\u00a0%: fedper (\u22121.0 to +3.0)." in notes
    assert "Withheld, because it does not hold without an outlying seed: fedcac, better than local training." in notes


def test_the_page_has_the_answer_and_the_bars(raced):
    text = page_text(study := raced(), leaderboard(study))
    assert "it is the best, decided after" in text
    assert "Bars: the simultaneous interval at the look that decided" in text
    assert "Holm" not in text
    assert "Colours show what was decided" in text


def test_each_difference_to_the_best_has_the_name_of_the_other_method(raced):
    study = raced(levels={"local": 0.8, "fedper": 0.7, "fedcac": 0.6})
    rows = leaderboard(study)
    assert rows[0].label == "local"
    for drawn in (forest(study, rows), behind_best(study, rows)):
        assert [*drawn.data[-1].y] == [one for one, *_ in drawn.layout.meta["table"]["rows"]] == ["fedper", "fedcac"]


def test_seeds_that_were_added_are_named(raced):
    study = raced()
    study.plan.config = {**study.plan.config, "seeds": [0, 1, 2, 3, 4]}
    assert "seeds 0 to 7" in subtitle(study)


def test_the_page_of_a_grid_has_the_same_answer(raced):
    study = raced()
    study.plan.subject = "fedcac"
    assert "it is the best, decided after" in page_text(study)


def test_with_nothing_to_compare_nothing_is_decided(raced):
    study = raced(fail={"fedper": tuple(range(8)), "fedcac": tuple(range(8))})
    assert said(study)[0] == "Nothing can be decided: there is no run to compare local with."
