import ast
from typing import Literal

import pytest
from pydantic import Field

from fedbench.checks.check import CheckFailure
from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.options import (
    REFUSED,
    Trials,
    ends,
    every_option_changes_something,
    modules_of,
    noting,
    options_in_code,
    other_values,
    read_of_options,
)
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
    assert other_values(FIELDS["most"], None) == [0, 1, 3]


def test_options_note_what_is_read():
    read: set[str] = set()
    options = noting(Options(), read)
    assert options.share + options.count == 2.5
    assert read == {"share", "count"}


def test_names_that_code_reads_of_options():
    assert "mu" in options_in_code(load("fedprox"))
    assert "rate" in options_in_code(Right)
    assert "mu" not in options_in_code(OptionUnread)
    code = """
def train(self, client, given: Method.Options):
    own = self.options
    return own.a + given.b + getattr(self.options, "c") + client.lr + self.context.options.d
"""
    assert read_of_options(ast.parse(code)) == {"a", "b", "c", "d"}


def test_modules_are_those_of_the_classes_and_beside_them():
    found = [module.__name__ for module in modules_of(load("fedprox"))]
    assert found[0] == "fedbench.methods.fedprox"
    assert "fedbench.methods.messages" in found
    assert not any(name.startswith(("fedbench.engine", "torch")) for name in found)


class Beside(Method):
    """scale is read where kind = scaled only, epochs by nobody, although a name of the training is the same."""

    class Options(Method.Options):
        kind: Literal["plain", "scaled"] = "plain"
        scale: float = Field(0.5, gt=0, description="factor of the update")

    def train(self, client, received):
        trained = client.fit(received, client.train)
        if self.options.kind == "scaled":
            moved = received.params + self.options.scale * (trained.params - received.params)
            trained = trained.replace(params=moved)
        return self.upload(client, trained)


class UnreadNamesake(Beside):
    class Options(Beside.Options):
        epochs: int = Field(2, ge=1, description="of another fit")

    def train(self, client, received):
        self.context.train.epochs  # noqa: B018  of the training, not of the method
        return super().train(client, received)


def test_an_option_that_another_ones_value_turns_on_has_its_effect():
    with MethodRuns(Beside) as runs:
        line = every_option_changes_something(runs)
    count = len(Beside.Options.model_fields)
    assert line == f"{count} of {count} options change numbers"


def test_a_namesake_that_is_read_reads_no_option():
    with MethodRuns(UnreadNamesake) as runs, pytest.raises(CheckFailure, match=r"no code reads method\.epochs"):
        every_option_changes_something(runs)


def test_a_refused_option_is_an_outcome():
    with MethodRuns("fedprox") as runs:
        trials = Trials(runs)
        assert trials.outcome(mu=-1) == REFUSED
        assert trials.outcome(mu=0.0) != trials.outcome(mu=1.0)
        assert "mu" in trials.read
