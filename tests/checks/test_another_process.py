from os import environ, getpid

import pytest

from fedbench.checks.another_process import records_of_another_process
from fedbench.checks.check import CheckFailure, DoesNotApply
from fedbench.checks.method_runs import MethodRuns
from fedbench.methods.base import Method

HERE = "FEDBENCH_TEST_PROCESS"


class RunsHereAlone(Method):
    """A method that fails in another process."""

    def train(self, client, received):
        if environ[HERE] != str(getpid()):
            raise ValueError("not here")
        return super().train(client, received)


def test_what_runs_here_alone_fails(monkeypatch):
    monkeypatch.setenv(HERE, str(getpid()))
    with MethodRuns(RunsHereAlone) as runs, pytest.raises(CheckFailure, match=r"fails in another process: .*not here"):
        records_of_another_process(runs)


def test_a_class_that_another_process_cannot_have_is_not_asked():
    class Mine(Method):
        """A class inside a function."""

    with MethodRuns(Mine) as runs, pytest.raises(DoesNotApply, match="Mine is in no file"):
        records_of_another_process(runs)


def test_objects_stay_in_their_process():
    with MethodRuns("fedavg", given={"model": object()}) as runs, pytest.raises(DoesNotApply, match="are objects"):
        records_of_another_process(runs)
