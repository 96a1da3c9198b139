import doctest

import numpy as np
import pandas as pd
import pytest

import fedbench
from fedbench.checks.check import DoesNotApply
from fedbench.checks.suite import check, method_runs_of
from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.user_code import name_of
from tests.checks.wrong_methods import StaleModel
from tests.checks.wrong_models import Net


def test_a_method_a_model_and_data_together():
    seen = []
    report = check(StaleModel, model=Net, data="digits", only=["fresh", "random", "finite"], watch=seen.append)
    assert [(r.subject, r.name, r.outcome) for r in report.results] == [
        ("method", "fresh", "failed"),
        ("model", "random", "passed"),
        ("data", "finite", "passed"),
    ]
    assert seen == list(report.results)
    assert (
        report.title == "method tests.checks.wrong_methods:StaleModel, model tests.checks.wrong_models:Net, data digits"
    )


class Late(Net):
    """Refuses data that have other than two classes."""

    def __init__(self, classes: int) -> None:
        if classes != 2:
            raise ValueError("two classes, please")
        super().__init__(classes)


def images(rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(rows).random((rows, 64), dtype=np.float32), np.arange(rows) % 2


def test_a_method_runs_on_the_model_and_data_beside_it():
    report = check(
        "fedper", model={"name": name_of(Late), "head": "head"}, data=images(2000), only=["private", "shared"]
    )
    assert [result.outcome for result in report.results] == ["passed", "passed"]
    assert report.results[0].line == "26 numbers stay"
    assert "fedper shares 780 numbers, 26 stay" in report.results[1].line


def test_targets_without_classes_are_dealt_evenly():
    samples, _ = images(300)
    runs = method_runs_of(Config(method="fedavg", data=(samples, samples.sum(1))))
    assert runs.config("plain").partition.name == "iid"
    assert runs.config("tiny").partition.clients == 3
    with pytest.raises(DoesNotApply, match="leave out model and data"):
        runs.config("odd")


def test_of_many_samples_clients_get_few_and_take_few_steps():
    runs = method_runs_of(Config(method="fedavg", data=images(2000), train={"lr": 0.3}))
    config = runs.config("plain", rounds=1)
    assert (config.partition.total, config.train.steps, config.train.lr) == (1200, 4, 0.3)
    assert method_runs_of(Config(method="fedavg", train={"lr": 0.3})).config("plain").train.lr == 0.1


def test_what_does_not_run_is_said_once():
    report = check("fedavg", model=Late, only=["runs", "kept", "random"])
    found = [(result.subject, result.outcome, result.line) for result in report.results]
    assert "two classes, please" in found[0][2]
    assert "two classes, please" in found[2][2]
    assert [outcome for _, outcome, _ in found] == ["failed", "does not apply", "failed", "does not apply"]
    assert found[1] == ("method", "does not apply", "it does not run")


def test_data_that_cannot_be_read_are_refused_in_one_line():
    with pytest.raises(ConfigError, match="no value"):
        check("fedavg", data=pd.DataFrame({"a": [1.0, None] * 20, "label": [0, 1] * 20}))


def test_it_is_found_in_the_package():
    assert fedbench.check is check
    (found,) = doctest.DocTestFinder(recurse=False).find(check, "check", globs={"check": check})
    assert doctest.DocTestRunner().run(found).failed == 0


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ConfigError, match="give a method, a model or data"):
        check()
    with pytest.raises(ConfigError, match="check wieghts: did you mean weights"):
        check("fedavg", only=["wieghts"])
