"""Pages say which kinds of chance intervals cover, and how many test samples stand behind them."""

from dataclasses import replace

import numpy as np

from fedbench.report.evidence import client_evidence, samples_text
from fedbench.report.study import Study
from fedbench.results.outcomes import MetricOutcomes
from fedbench.results.sample_error import Evidence
from tests.report.conftest import write_comparison

LEVELS = {"local": 0.6, "fedcac": 0.9}


def test_samples_are_counted_over_all_seeds_and_by_seed():
    assert samples_text(Evidence(4, 360, 360.0)) == "Behind them stand 360 test samples, the same in all seeds"
    text = samples_text(Evidence(4, 1797, 359.5, 113, 22.25))
    assert (
        text
        == "Behind them stand 1797 different test samples (113 positive); a seed has 359.5 (22.25) of them on average"
    )


def test_every_client_has_its_test_samples_and_the_positive_ones_of_the_seeds(tmp_path):
    study = Study.load(write_comparison(tmp_path, LEVELS, asked={"": {"outcomes": True}}))
    first = MetricOutcomes(*map(np.array, ([0, 0, 2], [4, 5, 9], [4, 5, 9], [1.0, 0.0, 1.0], [True, False, True])))
    second = MetricOutcomes(*map(np.array, ([0, 2, 2], [4, 8, 9], [4, 8, 9], [1.0, 0.0, 1.0], [True, False, True])))
    scores = replace(study.scores, outcomes={"local": {(0, study.point): first, (1, study.point): second}})
    study.__dict__ |= {"scores": scores, "partition": {"0": {"names": ["aachen", "", ""]}}}
    assert client_evidence(study) == [("aachen", "1 to 2", "1"), ("client 2", "1 to 2", "1")]
    study.__dict__["scores"] = replace(scores, outcomes={"local": {(0, study.point): replace(first, positive=None)}})
    assert client_evidence(study) == [("aachen", "2", ""), ("client 2", "1", "")]


def test_no_outcomes_no_clients(tmp_path):
    assert client_evidence(Study.load(write_comparison(tmp_path, LEVELS))) == []
