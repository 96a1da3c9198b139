import pytest

from fedbench.checks.check import CheckFailure, DoesNotApply
from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.networks import Awkward
from fedbench.checks.reductions import cases_of, degenerate_cases_hold, refuse_difference, words
from fedbench.errors import ConfigError
from fedbench.methods import load
from fedbench.methods.base import Method


class Inherits(load("fedprox")):  # type: ignore[misc]
    """Has the cases of its base no longer."""


class NoLayer(load("fedper")):  # type: ignore[misc]
    REDUCES_TO = {"local": {"method.extra_private": ["neck"]}}  # noqa: RUF012


class Stemmed(Awkward):
    """Has no layer `body`."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.stem = self.body
        del self.body

    def forward(self, x):
        return self.classifier(self.stem(x))


class Strange(Method):
    REDUCES_TO = ["fedavg"]  # type: ignore[assignment]  # noqa: RUF012


class Twice(Method):
    REDUCES_TO = {"fedavg": [{"rounds": 1}, {"train.lr": 0.2}]}  # noqa: RUF012


def test_cases_are_those_of_the_class_itself():
    assert list(cases_of(load("fedprox"))) == [("fedavg", {"method.mu": 0})]
    assert list(cases_of(Inherits)) == []
    assert [keys for _, keys in cases_of(Twice)] == [{"rounds": 1}, {"train.lr": 0.2}]
    with pytest.raises(ConfigError, match="must be a dict such as"):
        list(cases_of(Strange))


def test_a_case_holds_or_says_where_it_does_not():
    with MethodRuns("fedprox") as runs:
        refuse_difference(runs, "fedavg", {"method.mu": 0, "train.lr": 0.2})
        with pytest.raises(CheckFailure, match=r"with method.mu = 5 it is not fedavg: the first other number is the"):
            refuse_difference(runs, "fedavg", {"method.mu": 5})
        refuse_difference(runs, "fedprox:mu=0.5", {"method.mu": 0.5})


def test_a_case_may_hold_of_the_global_model_or_of_one_point_alone():
    """Of fedrod without a balanced loss the global model is fedavg's, and the personal ones are not."""
    keys = {"method.gamma": 0, "method.personal_training": "after"}
    with MethodRuns("fedrod") as runs:
        refuse_difference(runs, "fedavg", {**keys, "point": "global"})
        with pytest.raises(CheckFailure, match=r"the first other number is the .* \(after_fit\)"):
            refuse_difference(runs, "fedavg", keys)
        with pytest.raises(CheckFailure, match=r"point = global it is not fedavg: .* \(after_agg\)"):
            refuse_difference(runs, "fedavg", {**keys, "method.gamma": 1, "point": "global"})
        with pytest.raises(ConfigError, match=r"FedRoD.REDUCES_TO: point = 'last' must be one of global, after_fit"):
            refuse_difference(runs, "fedavg", {**keys, "point": "last"})
    with MethodRuns("fedphp") as runs:
        keys = {"method.lam": 0, "method.mu": 0}
        refuse_difference(runs, "fedavg", {**keys, "point": "after_fit"})
        with pytest.raises(CheckFailure, match=r"\(after_agg\)"):
            refuse_difference(runs, "fedavg", {**keys, "point": "after_agg"})


def test_a_case_that_names_layers_of_another_model_is_not_asked_of_a_given_one():
    given = {"model": {"name": "tests.checks.test_reductions:Stemmed", "head": "classifier"}}
    with MethodRuns("fedper", given=given) as runs, pytest.raises(DoesNotApply, match="none of its cases runs"):
        degenerate_cases_hold(runs)
    with MethodRuns("fedavg", given=given) as runs:
        assert degenerate_cases_hold(runs) == "partition.clients = 1 is local"
    with MethodRuns(NoLayer) as runs, pytest.raises(ConfigError, match="no parameter of the model is under 'neck'"):
        degenerate_cases_hold(runs)


def test_without_cases_there_is_nothing_to_ask():
    with MethodRuns(Inherits) as runs, pytest.raises(DoesNotApply, match="declare some"):
        degenerate_cases_hold(runs)
    with MethodRuns("fedkd") as runs, pytest.raises(DoesNotApply, match="says that there are none"):
        degenerate_cases_hold(runs)
    assert words({}) == "its defaults"
