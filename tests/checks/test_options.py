from typing import Literal

from pydantic import Field

from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.options import REFUSED, Trials, ends, names_in_code, noting, other_values
from fedbench.methods import load
from fedbench.methods.base import Method
from tests.checks.wrong_methods import OptionUnread, Right


class Options(Method.Options):
    share: float = Field(0.5, gt=0, le=1)
    count: int = Field(2, ge=1)
    kind: Literal["a", "b"] = "a"
    most: int | None = Field(None, ge=0)
    on: bool = True


FIELDS = Options.model_fields


def test_values_are_the_ends_other_choices_and_another_number():
    assert ends(FIELDS["share"]) == {"smallest": 0.001, "largest": 1.0}
    assert other_values(FIELDS["share"], 0.5) == [0.001, 1.0, 2.0]
    assert other_values(FIELDS["count"], 2) == [1, 5]
    assert other_values(FIELDS["kind"], "a") == ["b"]
    assert other_values(FIELDS["on"], True) == [False]
    assert other_values(FIELDS["most"], None) == [0, 1]


def test_options_note_what_is_read():
    read: set[str] = set()
    options = noting(Options(), read)
    assert options.share + options.count == 2.5
    assert read == {"share", "count"}


def test_names_in_the_code_of_a_method():
    assert "mu" in names_in_code(load("fedprox"))
    assert "rate" in names_in_code(Right)
    assert "mu" not in names_in_code(OptionUnread)


def test_a_refused_option_is_an_outcome():
    with MethodRuns("fedprox") as runs:
        trials = Trials(runs)
        assert trials.outcome(mu=-1) == REFUSED
        assert trials.outcome(mu=0.0) != trials.outcome(mu=1.0)
        assert "mu" in trials.read
