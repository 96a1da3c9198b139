"""The personal models that a run keeps are those that it has scored, for whoever loads them with plain PyTorch."""

import json
import runpy
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning import LightningModule
from safetensors.torch import load_file, save_file
from torch import nn

from fedbench import models
from fedbench.checks.several_hosts import SeveralHosts
from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import partition
from fedbench.engine.losses import outputs_of
from fedbench.jobs.resolve import resolve
from fedbench.models.compiled import unwrapped_name
from fedbench.runtime.build import build_learner
from fedbench.runtime.clients.client_data import ClientData
from fedbench.runtime.observers.kept_points import KeptPoints
from fedbench.studies.load import load_model
from fedbench.studies.run import Result, run
from tests.runtime.networks import Parted
from tests.runtime.rounds import driver, play, small

METHODS = [
    "fedavg",
    "local",
    "centralized",
    "fedper",
    "ditto",
    "fedcac",
    "fedamp",
    "pfedme",
    "fedselect",
    "fedphp",
    "co-pfl",
]


def kept(config: Config, folder: Path) -> Result:
    return run(config.model_copy(update={"save_models": True, "out": folder}), report=False)


def accuracies(result: Result, point: str, seed: int = 0) -> dict[int, float]:
    """Test accuracy of every client's model, in plain PyTorch."""
    resolved = resolve(result.config)
    config, dataset = resolved.config, resolved.dataset
    data = ClientData(config, dataset, partition(dataset, config, seed), torch.device("cpu"), torch.float32)
    found = {}
    for client in range(config.partition.clients):
        path = result.models / f"seed-{seed}" / f"client-{client}" / f"{point}.safetensors"
        if path.exists():
            module = models.build("mlp", dataset.shape, dataset.classes, **config.model.options)
            module.load_state_dict(load_file(path))
            test = data.split([client], "test", (seed, client))
            x, y = test.batch(torch.arange(len(test)))
            found[client] = float((module.eval()(x).argmax(1) == y).float().mean())
    return found


def read_back(result: Result, module: Any, samples: Any, targets: Any, point: str = "after_agg") -> dict[int, float]:
    """Test accuracy of every client's model by nothing but the files of the run, and the samples as they lie."""
    folder = result.models / "seed-0"
    given = json.loads((folder / "client-0" / "model.json").read_text())
    shape = (-1, *[1] * (len(given["shape"]) - 1))
    mean, std = (torch.tensor(given[key]).view(shape) for key in ("mean", "std"))
    found = {}
    for client, parts in enumerate(json.loads((result.folder / "partition.json").read_text())["0"]["clients"]):
        module.load_state_dict(load_file(folder / f"client-{client}" / f"{point}.safetensors"))
        x = torch.as_tensor(samples)[parts["test"]]
        assert [*x.shape[1:]] == given["shape"]
        right = module.eval()((x / given["unit"] - mean) / std).argmax(1).numpy() == targets[parts["test"]]
        found[client] = float(right.mean())
    return found


def scored(result: Result, point: str) -> dict[int, float]:
    """As clients.parquet has it, at the last round."""
    rows = result.clients[(result.clients["point"] == point) & (result.clients["round"] == result.config.rounds)]
    return dict(zip(rows["client"], rows["test_accuracy"], strict=True))


@pytest.mark.parametrize(
    ("method", "participation"), [*((method, 0.3) for method in METHODS), ("fedavg", 1.0), ("fedcac", 1.0)]
)
def test_they_have_the_scores_of_the_run(method, participation, tmp_path):
    result = kept(small(method, participation=participation), tmp_path)
    for point in ("after_fit", "after_agg"):
        assert accuracies(result, point) == pytest.approx(scored(result, point), abs=1e-6), point


def test_they_are_those_of_the_last_round_also_where_few_rounds_are_evaluated(tmp_path):
    asked = small("fedper", participation=0.3, rounds=5)
    often = kept(asked, tmp_path / "a")
    seldom = kept(asked.model_copy(update={"evaluate": type(asked.evaluate)(every=4)}), tmp_path / "b")
    assert contents(often.models) == contents(seldom.models)


def test_seeds_lie_side_by_side(tmp_path):
    result = kept(small("fedper", rounds=1, seeds=[0, 1]), tmp_path)
    assert len(contents(result.models)) == 2 * (10 * 2 + 1)  # and what the clients share
    assert accuracies(result, "after_agg", seed=1).keys() == set(range(10))


def test_hosts_change_no_bit(tmp_path):
    config = small("fedper").model_copy(update={"save_models": True})
    for name, hosts in (("here", None), ("there", SeveralHosts(2))):
        play(config, tmp_path / name, hosts)
    here, there = (contents(tmp_path / name / "models") for name in ("here", "there"))
    assert here == there
    assert here


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}


def test_what_a_method_adds_to_the_model_is_kept_with_it(tmp_path):
    result = kept(small("fedrod", rounds=2), tmp_path)
    (line,) = remarks(result)
    assert line.startswith("save_models: no predict.py is written, because fedrod adds layers to it: ")
    assert not list(result.models.rglob("predict.py"))
    content = load_file(result.models / "seed-0" / "client-0" / "after_agg.safetensors")
    added = {name for name in content if name.startswith("personal_head.")}
    assert len(added) == 2
    assert len(content) > len(added)


@pytest.mark.parametrize(
    ("method", "options", "whole"), [("apfl", {"method__mixing": "logits"}, True), ("floco", {}, False)]
)
def test_what_is_not_one_state_dict_of_the_model_is_said(method, options, whole, tmp_path):
    result = kept(small(method, rounds=2, **options), tmp_path)
    lines = remarks(result)
    assert lines[:2] == [
        f"save_models: {method}'s personal model at {point} is not one state dict of the model, so it is not kept"
        for point in ("after_fit", "after_agg")
    ]
    assert len(lines) == (2 if whole else 3)
    assert [path.name for path in (result.models / "seed-0").glob("*")] == ["global"] * whole


def remarks(result: Result) -> list[str]:
    return [line for line in result.summary["warnings"] if line.startswith("save_models: ")]


@pytest.mark.parametrize("method", ["ditto", "apfl", "pfedme"])
def test_the_global_model_has_the_scores_of_the_run_too(method, tmp_path):
    result = kept(small(method, rounds=2), tmp_path)
    assert remarks(result) == []
    whole = load_file(result.models / "seed-0" / "global" / "after_agg.safetensors")
    for client in range(10):
        for path in (result.models / "seed-0" / f"client-{client}").glob("*.safetensors"):
            assert not all(map(torch.equal, load_file(path).values(), whole.values())), "the personal model is another"
            save_file(whole, path)
    assert accuracies(result, "after_agg") == pytest.approx(scored(result, "global"), abs=1e-6)


def test_without_a_global_model_what_the_clients_share_is_kept(tmp_path):
    result = kept(small("fedper", rounds=2, model={"name": "mlp", "hidden": 16}), tmp_path)
    assert remarks(result) == [
        "save_models: fedper has no global model; models/seed-*/shared has what its clients share"
    ]
    shared = result.models / "seed-0" / "shared"
    assert sorted(path.name for path in shared.iterdir()) == ["after_agg.safetensors", "model.json"], "it is no model"
    tensors = load_file(shared / "after_agg.safetensors")
    assert tensors.keys() == {"body.1.weight", "body.1.bias"}
    for client in range(10):
        own = load_file(result.models / "seed-0" / f"client-{client}" / "after_agg.safetensors")
        assert all(torch.equal(own[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("method", ["local", "fedcac"])
def test_where_clients_share_nothing_the_run_says_so(method, tmp_path):
    result = kept(small(method, rounds=1), tmp_path)
    assert remarks(result) == [f"save_models: {method} has no global model and no part that all clients share"]
    assert not [path for path in (result.models / "seed-0").iterdir() if not path.name.startswith("client-")]


def test_the_script_in_a_folder_predicts_as_the_run_did(tmp_path, monkeypatch, capsys):
    result = kept(small("fedper", rounds=1), tmp_path)
    dataset = Dataset.load(result.config.data)
    rows = json.loads((result.folder / "partition.json").read_text())["0"]["clients"][3]["test"]
    np.save(tmp_path / "x.npy", np.array(dataset.samples[rows]))
    for point, words in (("after_agg", []), ("after_fit", ["after_fit"])):
        script = result.models / "seed-0" / "client-3" / "predict.py"
        monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "x.npy"), *words])
        runpy.run_path(str(script), run_name="__main__")
        right = np.array(capsys.readouterr().out.split(), int) == dataset.targets[rows]
        assert right.mean() == pytest.approx(scored(result, point)[3], abs=1e-6)


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path):
    play(small(rounds=2), tmp_path)
    assert not (tmp_path / "models").exists()


def test_models_of_a_compiled_module_fit_it_and_go_on_uncompiled(tmp_path):
    asked = {"name": "tests.runtime.networks:Parted", "head": "net.head"}
    result = kept(small("fedper", model={**asked, "compiled": True}, rounds=2), tmp_path / "a")
    path = result.models / "seed-0" / "client-3" / "after_agg.safetensors"
    state = load_file(path)
    Parted(compiled=True).load_state_dict(state)
    resolved = resolve(small(model={**asked, "weights": path}))
    learner = build_learner(resolved, 0)
    loaded = learner.flat.state_dict(learner.initial())
    assert [*loaded] == [*Parted().state_dict()]
    saved = {unwrapped_name(name): tensor for name, tensor in state.items()}
    assert all(torch.equal(tensor, saved[name]) for name, tensor in loaded.items())


class Columns(torch.utils.data.Dataset):
    """Numbers of three kinds in a row, and which of two classes they are of."""

    def __init__(self, train: bool = True) -> None:
        draw = torch.Generator().manual_seed(int(train))
        self.x = torch.randn(160 if train else 80, 3, generator=draw) * torch.tensor([100.0, 1.0, 0.01]) + 7
        self.y = (self.x[:, 0] > 7).long()

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.x[index], int(self.y[index])


@pytest.mark.parametrize("constants", [{}, {"data__mean": [0.5], "data__std": [0.25]}])
def test_a_model_is_right_as_often_as_reported_with_what_lies_beside_it(constants, tmp_path):
    result = kept(small("fedper", rounds=2, **constants), tmp_path)
    dataset = Dataset.load(result.config.data)
    module = models.build("mlp", dataset.shape, dataset.classes, **result.config.model.options)
    assert read_back(result, module, np.array(dataset.samples), dataset.targets) == scored(result, "after_agg")
    given = json.loads((result.models / "seed-0" / "client-3" / "model.json").read_text())
    assert (given["shape"], given["unit"], given["classes"]) == ([1, 8, 8], 255, [str(digit) for digit in range(10)])


def test_of_features_too_and_of_both_seeds_once(tmp_path):
    asked = {"data": "tests.runtime.observers.test_kept_models:Columns", "partition": {"name": "iid", "clients": 4}}
    result = kept(small("fedavg", rounds=2, seeds=[0, 1], **asked), tmp_path)
    x, y = (torch.cat([getattr(Columns(train), name) for train in (True, False)]) for name in "xy")
    module = models.build("mlp", (3,), 2, **result.config.model.options)
    rows = result.clients[(result.clients["point"] == "after_agg") & (result.clients["round"] == 2)]
    rows = rows[rows["seed"] == 0]
    assert read_back(result, module, x, y.numpy()) == dict(zip(rows["client"], rows["test_accuracy"], strict=True))
    given = json.loads((result.models / "seed-1" / "client-3" / "model.json").read_text())
    assert given["unit"] == 1
    assert given["std"] == pytest.approx(Columns().x.double().std(0, correction=0).tolist())
    assert sorted(path.name for path in result.models.iterdir()) == ["seed-0", "seed-1"]


def test_frozen_parameters_are_kept_once(tmp_path):
    result = kept(
        small("fedper", rounds=1, model={"name": "tests.runtime.observers.test_kept_models:HalfFrozen"}), tmp_path
    )
    folder = result.models / "seed-0"
    base, trained = load_file(folder / "base.safetensors"), load_file(folder / "client-3" / "after_fit.safetensors")
    assert base.keys() == {"body.1.weight", "body.1.bias"}
    assert trained.keys() == {"head.weight", "head.bias"}
    whole = load_model(result.folder, 3, point="after_fit").state_dict()
    assert all(torch.equal(whole[name], tensor) for name, tensor in (base | trained).items())
    assert '"base.safetensors") | load_file(' in (folder / "client-3" / "predict.py").read_text()


class HalfFrozen(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8)).requires_grad_(False)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.head.parameters(), lr=0.1)


class OnImages(LightningModule):
    """A network of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs_of(self(batch[0])), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Hooked(OnImages):
    """Mirrors images before forward."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return -batch[0].flip(-1), batch[1]


class TwoParts(OnImages):
    """Returns features and scores by name."""

    Parts = namedtuple("Parts", ["features", "logits"])

    def forward(self, x: torch.Tensor) -> Any:
        return self.Parts(-self.net(x), self.net(x))


class Centred(OnImages):
    """Subtracts a running mean that PyTorch leaves out of state dicts, and adds a table, which it leaves out too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((1, 8, 8), 3.0), persistent=False)
        self.register_buffer("table", torch.linspace(-0.1, 0.1, 64).view(1, 8, 8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.5).add_(0.5 * x.mean(0))
        return self.net(4 * (x - self.mean).tanh() + self.table)


def of_own(kind: str, folder: Path, **more: Any) -> Result:
    return kept(small(model={"name": f"tests.runtime.observers.test_kept_models:{kind}"}, **more), folder)


def test_a_model_with_transfer_hooks_has_no_script_and_the_run_says_why(tmp_path):
    result = of_own("Hooked", tmp_path, rounds=1)
    assert remarks(result) == [
        "save_models: no predict.py is written, because model Hooked has transfer hooks (on_after_batch_transfer), "
        "which a run calls before forward: put what they do into forward, or call them before the model that "
        "fedbench.load_model gives"
    ]
    assert not list(result.models.rglob("predict.py"))


@pytest.mark.parametrize("kind", ["TwoParts", "Centred"])
def test_a_script_takes_the_outputs_and_buffers_that_were_scored(kind, tmp_path, monkeypatch, capsys):
    """Of both points, also of a client that never trained, whose buffers are still those of the start model."""
    result = of_own(kind, tmp_path, rounds=2, participation=0.3)
    dataset = Dataset.load(result.config.data)
    dealt = json.loads((result.folder / "partition.json").read_text())["0"]["clients"]
    found: dict[str, dict[int, float]] = {"after_agg": {}, "after_fit": {}}
    for client in range(10):
        np.save(tmp_path / "x.npy", np.array(dataset.samples[dealt[client]["test"]]))
        script = str(result.models / "seed-0" / f"client-{client}" / "predict.py")
        for point in found:
            monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "x.npy"), point])
            runpy.run_path(script, run_name="__main__")
            right = np.array(capsys.readouterr().out.split(), int) == dataset.targets[dealt[client]["test"]]
            found[point][client] = float(right.mean())
    for point, accuracies_found in found.items():
        assert accuracies_found == pytest.approx(scored(result, point), abs=1e-6)


def test_buffers_outside_of_state_dicts_are_kept_where_training_changes_them(tmp_path):
    """Plain PyTorch refuses them rather than to predict without them; constants stay out."""
    result = of_own("Centred", tmp_path, rounds=2, participation=0.3)
    folder = result.models / "seed-0"
    weights = {"net.1.weight", "net.1.bias"}
    ones = [load_file(path).keys() - weights for path in sorted(folder.glob("client-*/after_fit.safetensors"))]
    assert [*map(sorted, ones)].count(["mean"]) in range(1, 10)
    assert all(names in ({"mean"}, set()) for names in ones)
    whole = load_file(folder / "global" / "after_agg.safetensors")
    assert whole.keys() == weights | {"mean"}
    assert torch.equal(load_model(result.folder, "global").mean, whole["mean"])
    assert json.loads((folder / "global" / "model.json").read_text())["buffers"] == ["mean", "table"]
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"mean"'):
        Centred().load_state_dict(whole)


def test_a_longer_run_keeps_nothing_of_an_end_that_was_none(tmp_path):
    """Client 0 trains again after round 2, client 1 does not."""
    models = driver(resolve(small(rounds=3, save_models=True)), tmp_path).keeping.models
    models.points = KeptPoints(True, 3, "fit", {1: [0, 1], 2: [1], 3: [0]}.__getitem__)
    for name in ("client-0/after_agg-adapter", "client-1", "global", "shared"):
        (models.folder / name).mkdir(parents=True)
    for name in ("client-0/after_fit", "client-0/after_agg", "client-1/after_fit", "client-1/after_agg"):
        (models.folder / f"{name}.safetensors").touch()
    models.on_longer_run(2)
    left = [path.relative_to(models.folder) for path in models.folder.rglob("*") if path.name.startswith("after_")]
    assert left == [Path("client-1/after_fit.safetensors")]
    assert {path.name for path in models.folder.iterdir()} == {"client-0", "client-1"}
