"""Results and models are taken up again from their folders."""

import importlib
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import fedbench
from fedbench.errors import ConfigError
from fedbench.studies.export import export
from fedbench.studies.run import Result
from tests.runtime.rounds import small


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A finished run that kept its models."""
    out = tmp_path_factory.mktemp("kept") / "out"
    return fedbench.run(small("fedper", rounds=1, seeds=[4], save_models=True, out=str(out)))


def test_a_run_is_what_it_was(kept):
    found = fedbench.load(kept.folder)
    assert isinstance(found, Result)
    assert found.config.key() == kept.config.key()
    pd.testing.assert_frame_equal(found.metrics, kept.metrics)
    assert set(found.table["method"]) == {"fedper"}
    assert found.answer.startswith("fedper reached ")


@pytest.mark.parametrize("point", ["after_agg", "after_fit"])
def test_a_model_that_was_kept_predicts_with_its_own_numbers(kept, point):
    client = int(kept.clients["client"].iloc[0])
    model = fedbench.load_model(kept.folder, client, point=point)
    saved = load_file(kept.models / "seed-4" / f"client-{client}" / f"{point}.safetensors")
    assert not model.training
    assert model.state_dict().keys() == saved.keys()
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in saved.items())
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_a_model_that_was_not_kept_is_said(kept, tmp_path):
    line = r"safetensors: no model was kept .* there are 20, such as client-0 after_agg"
    for client in (99, "global"):
        with pytest.raises(ConfigError, match=line):
            fedbench.load_model(kept.folder, client)
    with pytest.raises(ConfigError, match="no such folder"):
        fedbench.load(tmp_path / "nothing")


@pytest.mark.parametrize("client", ["client-1", "", 1.7, 1.0, -1, True, None, [1]])
def test_a_client_that_is_no_number_is_refused(kept, client):
    said = re.escape(f"client = {client!r}: must be the number of a client, such as 3, or 'global'")
    with pytest.raises(ConfigError, match=said):
        fedbench.load_model(kept.folder, client)


SCALED = """
import torch
from lightning import LightningModule
class Net(LightningModule):
    def __init__(self, classes=10):
        super().__init__()
        self.head = torch.nn.Linear(64, classes)
    def forward(self, x):
        return self.head(x.flatten(1) * {by})
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""


def test_a_model_whose_code_has_changed_since_is_warned_of(tmp_path, monkeypatch, caplog):
    """Also in an export; a remark in the file is no change."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is written several times within a second

    def write(text):
        (tmp_path / "scaled_net.py").write_text(text)
        sys.modules.pop("scaled_net", None)
        importlib.invalidate_caches()

    write(SCALED.format(by=1))
    own = {"model": {"name": "scaled_net:Net"}, "save_models": True}
    done = fedbench.run(small(rounds=1, out=tmp_path / "out", **own), report=False)
    caplog.clear()
    write(SCALED.format(by=1) + "# a remark\n")
    before = fedbench.load_model(done.folder, 3)(torch.ones(1, 1, 8, 8))
    assert not caplog.messages
    write(SCALED.format(by=-1))
    assert not torch.equal(fedbench.load_model(done.folder, 3)(torch.ones(1, 1, 8, 8)), before)
    export(done.folder, 3)
    assert caplog.messages == 2 * [
        "scaled_net.py has changed since: the kept weights of model scaled_net:Net are used all the same, by the code "
        "of now"
    ]


def test_a_built_in_model_is_no_code_of_the_users_whatever_else_is(tmp_path, monkeypatch, caplog):
    """The task, whose code has no part in what the model computes, is another one."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = "from fedbench.tasks.classification import Classification\nclass Own(Classification):\n    size = {}\n"
    (tmp_path / "sized_task.py").write_text(text.format(1))
    asked = small(rounds=1, out=tmp_path / "out", save_models=True, data={"name": "digits", "task": "sized_task:Own"})
    done = fedbench.run(asked, report=False)
    (tmp_path / "sized_task.py").write_text(text.format(2))
    sys.modules.pop("sized_task", None)
    importlib.invalidate_caches()
    caplog.clear()
    fedbench.load_model(done.folder, 3)
    assert not caplog.messages


def test_hooks_that_a_run_calls_before_forward_are_named(tmp_path, caplog):
    own = {"model": {"name": "tests.runtime.observers.test_kept_models:Hooked"}, "save_models": True}
    done = fedbench.run(small(rounds=1, out=tmp_path / "out", **own), report=False)
    caplog.clear()
    fedbench.load_model(done.folder, 3)
    assert caplog.messages == [
        "model Hooked has transfer hooks (on_after_batch_transfer), which a run calls before forward: call them before "
        "it, on batches of samples and targets"
    ]


def test_other_types_and_points_are_refused(kept):
    for folder, hint in ((None, ""), (3, ""), (kept, "; pass its .folder")):
        with pytest.raises(ConfigError, match=f"must be the path of a folder of results{hint}$"):
            fedbench.load(folder)
        with pytest.raises(ConfigError, match="must be the path of a folder of results"):
            fedbench.load_model(folder, 1)
    with pytest.raises(ConfigError, match="seed = '4': must be a whole number, as 4"):
        fedbench.load_model(kept.folder, 1, seed="4")
    for point in ("global", None):
        with pytest.raises(ConfigError, match=f"point = {point!r}: must be after_agg or after_fit"):
            fedbench.load_model(kept.folder, 1, point=point)


def test_a_result_stays_readable_in_another_folder(kept, tmp_path, monkeypatch):
    monkeypatch.chdir(kept.folder.parent)
    found = fedbench.load(kept.folder.name)
    monkeypatch.chdir(tmp_path)
    assert len(found.table) == len(kept.table)


def test_a_client_may_be_a_number_of_numpy_or_its_text(kept):
    one, other = (
        fedbench.load_model(kept.folder, client, seed=np.int64(4)).state_dict() for client in (np.int64(3), "3")
    )
    assert all(map(torch.equal, one.values(), other.values()))


def test_the_version_is_that_of_the_package():
    assert fedbench.__version__.count(".") == 2
