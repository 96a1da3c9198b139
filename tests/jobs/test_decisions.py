"""What is said of a method and its runs beside their numbers."""

import pytest

from fedbench import methods
from fedbench.config import TrainConfig
from fedbench.jobs.decisions import decisions, training_deviations
from fedbench.methods.base import Method


@pytest.mark.parametrize(
    ("options", "reading"),
    [
        ({}, "literal"),
        ({"server_rule": "per_index", "merge_mask": "client", "loo_update": "same_round"}, "working"),
        ({"server_rule": "per_index"}, "neither literal nor working"),
    ],
)
def test_a_run_of_co_pfl_names_its_reading_first(options, reading):
    chosen = methods.load("co-pfl").Options(**options)
    first, *others = decisions("co-pfl", chosen, TrainConfig())
    assert first.startswith(f"Reading: {reading} (server_rule=")
    assert any(line.startswith("The working reading is `server_rule=per_index") for line in others)


@pytest.mark.parametrize(
    ("method", "train", "said"),
    [
        ("fedcac", {}, ["train.lr 0.1, not 0.01", "train.batch_size 100, not 50"]),
        ("fedcac", {"lr": 0.1, "batch_size": 100}, []),
        (
            "fedobp",
            {},
            ["train.momentum 0, not 0.5", "train.weight_decay 0, not 0.0005", "train.batch_size 32, not 50"],
        ),
        ("fedobp", {"momentum": 0.0, "weight_decay": 0.0, "batch_size": 32}, []),
        (
            "fedct",
            {"optimizer": "sgd", "lr": 0.05},
            ["train.optimizer adam, not sgd", "train.lr 0.001 or 0.01, not 0.05"],
        ),
        ("local", {}, []),
    ],
)
def test_training_that_is_not_the_papers_is_said(method, train, said):
    train = TrainConfig(**train)
    lines = training_deviations(method, train)
    assert len(lines) == bool(said)
    assert all(part in lines[0] for part in said)
    assert decisions(method, methods.load(method).Options(), train)[-1:] == lines or not said


class Own(Method):
    """A method of one's own, of whose file nothing is known."""


def test_of_a_method_of_ones_own_nothing_is_said_that_its_file_does_not_say():
    assert decisions(f"{__name__}:Own", Own.Options(), TrainConfig()) == []
