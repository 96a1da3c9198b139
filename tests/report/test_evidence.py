"""Pages say which kinds of chance intervals cover, and how many test samples stand behind them."""

from fedbench.report.evidence import BOTH, SEEDS, evidence_lines, over, samples_text
from fedbench.report.study import Study
from fedbench.results.sample_error import Evidence
from tests.report.conftest import write_comparison

LEVELS = {"local": 0.6, "fedcac": 0.9}


def test_samples_are_counted_over_all_seeds_and_by_seed():
    assert samples_text(Evidence(4, 360, 360.0)) == "Behind them stand 360 test samples, the same in all seeds"
    text = samples_text(Evidence(4, 1797, 359.5, 113, 22.25))
    assert text == "Behind them stand 1797 different test samples (113 positive), 359.5 (22.25) in each seed"


def test_a_study_with_outcomes_says_both_kinds_of_chance(tmp_path):
    study = Study.load(write_comparison(tmp_path, LEVELS, asked={"": {"outcomes": True}}))
    assert over(study) == BOTH
    (line,) = evidence_lines(study)
    assert line.startswith(
        "Intervals are over seeds and test samples, for these clients. Behind them stand 50 test samples"
    )


def test_a_study_without_outcomes_says_what_is_left_out(tmp_path):
    study = Study.load(write_comparison(tmp_path, LEVELS))
    assert over(study) == SEEDS
    (line,) = evidence_lines(study)
    assert line.startswith("Intervals are over seeds alone: outcomes of the test samples were not kept")
