"""Exported models predict as the run did, without its data, and programs without fedbench."""

import json
import re
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from lightning import LightningModule
from safetensors.torch import load_file
from torch import nn

from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError
from fedbench.installation import EXTRAS
from fedbench.studies.export import checked_difference, export
from fedbench.studies.run import run
from tests.runtime.rounds import small

WITHOUT_FEDBENCH = """
import runpy, sys
sys.modules.update({"fedbench": None, "lightning": None, "tests": None})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Convolved(LightningModule):
    """A network of one's own, with running statistics, whose outputs stand in a dict."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(144, classes)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.body(x))}

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0])["logits"], batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Branching(Convolved):
    """What it computes depends on the numbers."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return super().forward(-x if x.sum() > 0 else x)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run of a network of one's own, with a global model beside the personal ones."""
    own = {"model": {"name": "tests.studies.test_export:Convolved", "head": "head"}, "save_models": True}
    return run(small("ditto", rounds=1, out=tmp_path_factory.mktemp("run") / "out", **own), report=False)


def test_a_program_of_torch_has_the_scores_of_the_run_without_fedbench(kept, tmp_path):
    """Moved elsewhere, in a fresh process, on the client's test images as they lie in the data."""
    made = export(kept.folder, 3, "torch.export", out=tmp_path / "made")
    assert made.samples == 32
    assert made.difference <= 1e-6
    dataset = Dataset.load(kept.config.data)
    rows = json.loads((kept.folder / "partition.json").read_text())["0"]["clients"][3]["test"]
    np.save(tmp_path / "x.npy", np.array(dataset.samples[rows]))
    shutil.move(tmp_path / "made", tmp_path / "elsewhere")
    words = [sys.executable, "-I", "-W", "ignore", "-c", WITHOUT_FEDBENCH, "elsewhere/predict.py", "x.npy"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    right = np.array(done.stdout.split(), int) == dataset.targets[rows]
    last = kept.clients[(kept.clients["point"] == "after_agg") & (kept.clients["client"] == 3)]
    assert right.mean() == pytest.approx(last["test_accuracy"].iloc[-1], abs=1e-6)


@pytest.mark.parametrize("client", [3, "global"])
def test_weights_are_whole_and_a_script_builds_the_class(client, kept, tmp_path):
    made = export(kept.folder, client, out=tmp_path)
    module = Convolved(10)
    module.load_state_dict(load_file(made.file))
    assert made.missing == ""
    text = (tmp_path / "predict.py").read_text()
    assert "from tests.studies.test_export import Convolved" in text
    assert json.loads((tmp_path / "model.json").read_text())["mean"] == [*Dataset.load(kept.config.data).mean]


def test_what_a_method_adds_is_in_the_program_and_its_weights_have_no_script(tmp_path):
    """Personal and generic head of fedrod give their sum."""
    result = run(small("fedrod", rounds=1, out=tmp_path / "run", save_models=True), report=False)
    assert export(result.folder, 3, "torch.export").difference <= 1e-6
    made = export(result.folder, 3)
    assert made.missing == "fedrod adds layers to it"
    assert not (made.file.parent / "predict.py").exists()
    assert made.file.parent == result.folder / "exported" / "seed-0-client-3-after_agg-safetensors"


def test_a_model_that_is_no_program_is_said(tmp_path):
    own = {"model": {"name": "tests.studies.test_export:Branching"}, "save_models": True}
    result = run(small(rounds=1, out=tmp_path / "run", **own), report=False)
    with pytest.raises(ConfigError, match=r"^torch\.export cannot make a program of model Branching \([^\n]*$"):
        export(result.folder, 3, "torch.export")


class Noisy(Convolved):
    """Draws random numbers in evaluation too."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return super().forward(x + torch.randn_like(x))


def own_run(name, folder):
    own = {"model": {"name": name}, "save_models": True}
    return run(small(rounds=1, out=folder, **own), report=False)


def test_a_program_with_other_outputs_is_refused_and_none_is_left(tmp_path):
    result = own_run("tests.studies.test_export:Noisy", tmp_path / "run")
    with pytest.raises(ConfigError) as error:
        export(result.folder, 3, "torch.export", out=tmp_path / "made")
    line = r"the program's outputs differ from fedbench's by \S+, more than rounding of float32 does \(\S+\), so it is "
    assert re.match(line + "not written: [^\n]*$", str(error.value))
    assert not list((tmp_path / "made").iterdir())


def test_what_counts_as_rounding_depends_on_the_type_and_the_size_of_outputs():
    """Half of the digits: 3e-4 of float32, 1e-8 of float64, 9e-2 of bfloat16."""
    one, off = torch.ones(2, 3), torch.ones(2, 3) + 1e-4
    assert checked_difference(off, one, torch.float32) == pytest.approx(1e-4, rel=1e-2)
    assert checked_difference(one * 1000, one * 1000 + 0.1, torch.float32) == pytest.approx(0.1, rel=1e-2)
    assert checked_difference(one * 1.05, one, torch.bfloat16) == pytest.approx(0.05, rel=1e-2)
    gone = torch.tensor([[float("nan"), float("inf"), 1.0]])
    assert checked_difference(gone, gone, torch.float32) == 0
    for outputs, dtype in ((off, torch.float64), (one * 1.01, torch.float32), (gone, torch.float32)):
        with pytest.raises(ConfigError, match="differ from fedbench's by "):
            checked_difference(outputs, one, dtype)


def test_a_model_with_transfer_hooks_is_refused(tmp_path):
    result = own_run("tests.runtime.observers.test_kept_models:Hooked", tmp_path / "run")
    for form in ("safetensors", "torch.export"):
        with pytest.raises(ConfigError) as error:
            export(result.folder, 3, form)
        assert str(error.value) == (
            "model Hooked has transfer hooks (on_after_batch_transfer), which a run calls before forward, and an "
            "exported model does not: put what they do into forward, or call them before the model that "
            "fedbench.load_model gives"
        )
    assert not (result.folder / "exported").exists()


@pytest.mark.parametrize("form", ["safetensors", "torch.export"])
def test_buffers_outside_of_state_dicts_are_exported_as_they_were_scored(form, tmp_path, monkeypatch, capsys):
    result = own_run("tests.runtime.observers.test_kept_models:Centred", tmp_path / "run")
    export(result.folder, 3, form, out=tmp_path / "made")
    dataset = Dataset.load(result.config.data)
    rows = json.loads((result.folder / "partition.json").read_text())["0"]["clients"][3]["test"]
    np.save(tmp_path / "x.npy", np.array(dataset.samples[rows]))
    monkeypatch.setattr(sys, "argv", ["predict.py", str(tmp_path / "x.npy")])
    runpy.run_path(str(tmp_path / "made" / "predict.py"), run_name="__main__")
    right = np.array(capsys.readouterr().out.split(), int) == dataset.targets[rows]
    last = result.clients[(result.clients["point"] == "after_agg") & (result.clients["client"] == 3)]
    assert right.mean() == pytest.approx(last["test_accuracy"].iloc[-1], abs=1e-6)


def test_onnx_has_the_same_scores(kept, tmp_path):
    assert export(kept.folder, 3, "onnx", out=tmp_path).difference <= 1e-6


def test_without_the_packages_of_onnx_one_line_says_what_to_install(kept, monkeypatch):
    monkeypatch.setitem(EXTRAS, "onnx", {"no_such_onnx": "onnx"})
    with pytest.raises(ConfigError, match=r"^onnx is not installed: pip install 'fedbench-pfl\[onnx\]', or --format"):
        export(kept.folder, 3, "onnx")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"format": "pickle"}, "--format pickle: must be safetensors, onnx or torch.export"),
        ({"point": "last"}, "--point last: must be after_agg or after_fit"),
        ({"seed": 7}, "has no run of this seed; choose among its seeds: 0"),
        ({"client": "global", "point": "after_fit"}, "global/after_fit.safetensors: no model was kept"),
    ],
)
def test_what_was_not_kept_is_one_line(more, line, kept):
    with pytest.raises(ConfigError) as error:
        export(kept.folder, **{"client": 3, **more})
    assert line in str(error.value)
    assert not (kept.folder / "exported").exists()
