import doctest

import pytest

import fedbench
from fedbench.checks.suite import check
from fedbench.errors import ConfigError
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


def test_it_is_found_in_the_package():
    assert fedbench.check is check
    (found,) = doctest.DocTestFinder(recurse=False).find(check, "check", globs={"check": check})
    assert doctest.DocTestRunner().run(found).failed == 0


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ConfigError, match="give a method, a model or data"):
        check()
    with pytest.raises(ConfigError, match="check wieghts: did you mean weights"):
        check("fedavg", only=["wieghts"])
