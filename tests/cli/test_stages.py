"""What grids and comparisons have in common on the command line."""

import pytest

from fedbench.cli.stages import read_count, read_space, read_values, trial_remarks
from fedbench.errors import ConfigError
from fedbench.results.plan import Entry, Plan


def test_counts_are_read():
    assert read_count("trials", "3") == 3
    assert read_count("trials", "auto") is read_count("trials", None) is None


def test_a_space_is_values_distributions_or_the_papers_grid():
    assert read_space(["paper"]) == "paper"
    assert read_space([]) is None
    found = read_space(["train.lr=loguniform(1e-3, 1)", "train.epochs=1,5"])
    assert (found["train.lr"].lower, found["train.epochs"]) == (1e-3, [1, 5])
    with pytest.raises(ConfigError, match="--space paper: is the whole space"):
        read_space(["paper", "train.epochs=1,5"])


def test_what_failed_was_stopped_or_left_out_is_named():
    became = {0.1: ("done", None), 0.2: ("failed", "loss is NaN"), 0.3: ("stopped", "stopped after round 1 of 9")}
    entries = [Entry("candidate", "fedper", {"train.lr": lr}, 90, "x", *found) for lr, found in became.items()]
    entries += [Entry("candidate", "ditto", {"train.lr": lr}, 90, "x", "failed", "a shape") for lr in (1, 2, 3)]
    more = dict(refused=[["fedper", "lr=-1", "must be > 0"]], gpu_full={"fedper lr=0.1 seed 90": [0.5, 1.0]})
    more |= dict(choices={"fedper": {"train.lr": 0.1}}, rounds_saved=(6, 54))
    lines = list(trial_remarks(Plan("grid", "fedper", {}, entries, **more)))
    assert lines == [
        "failed:  fedper lr=0.2 seed 90: loss is NaN",
        "failed:  ditto lr=1 seed 90 and 2 more runs: a shape",
        "stopped: 1 of 6 trials stopped early, the worse half of their method's candidates: 6 of 54 rounds of tuning "
        "were not run.",
        "left out: fedper lr=-1: must be > 0",
        "again:   1 trial ran out of GPU memory and went on with a larger share of a GPU: fedper lr=0.1 seed 90 (0.5, "
        "then 1).",
    ]


@pytest.mark.parametrize("text", ["0", "many", "1.5", "true"])
def test_counts_that_are_none(text):
    with pytest.raises(ConfigError, match=f"--trials {text}: must be a whole number >= 1"):
        read_count("trials", text)


def test_keys_with_values_are_read():
    assert read_values("over", ["method.tau=0.3,0.5", "data=digits"]) == {"method.tau": [0.3, 0.5], "data": ["digits"]}
    assert read_values("over", []) is None


@pytest.mark.parametrize("texts", [["tau"], ["tau="], ["=1"], ["tau=0.1", "tau=0.2"]])
def test_mistakes_in_them_are_refused(texts):
    with pytest.raises(ConfigError, match="--over"):
        read_values("over", texts)
