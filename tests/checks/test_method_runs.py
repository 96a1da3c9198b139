import pytest

from fedbench.checks.check import DoesNotApply
from fedbench.checks.method_runs import KINDS, MethodRuns
from fedbench.errors import ConfigError, RunError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods.base import Method


class Broken(Method):
    def train(self, client, received):
        raise ValueError("never")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fedavg", "fedmosaic", "pfedgate"])
def test_every_kind_of_run_is_accepted(method, kind):
    with MethodRuns(method) as runs:
        assert check_run(resolve(runs.config(kind)))


def test_a_run_is_made_once_and_its_folder_goes():
    with MethodRuns("local") as runs:
        first = runs.undisturbed("tiny")
        assert runs.undisturbed("tiny") is first
        assert runs.records("tiny")["metrics.jsonl"]
        folder = runs.folder
    assert not folder.exists()


def test_a_method_that_fails_is_said_once():
    with MethodRuns(Broken) as runs:
        with pytest.raises(RunError, match="never"):
            runs.first("tiny")
        with pytest.raises(DoesNotApply, match="as another check says"):
            runs.undisturbed("tiny")


def test_an_unknown_method_is_refused():
    with pytest.raises(ConfigError, match="fedavh"):
        MethodRuns("fedavh")


def test_keys_of_later_layers_win_and_other_names_begin_anew():
    with MethodRuns("fedavg") as runs:
        config = runs.config("awkward", train__lr=0.3, model="mlp")
    assert (config.train.lr, config.train.keep_optimizer, config.model.name) == (0.3, True, "mlp")
    assert config.model.head is None
