"""Classes, functions and data of a notebook or script work as they are, in other processes too."""

import subprocess
import sys

import pytest

from fedbench import Config, ConfigError, run
from fedbench.cli import main
from fedbench.config.files import load_yaml

SCRIPT = """
import numpy as np
import torch
from lightning import LightningModule

from fedbench import Config, compare, run
from fedbench.methods.base import Method


def middle(vectors, weights, current):
    return vectors.median(0).values


def share_right(scores, targets):
    return (scores.argmax(1) == targets).mean()


def make():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 260)
    x = (np.eye(3)[y] + rng.normal(scale=0.2, size=(260, 3))).astype(np.float32)
    return (x[:200], y[:200]), (x[200:], y[200:])


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Mine(Method):
    def train(self, client, received):
        return self.upload(client, client.fit(received, client.train))


def local():
    class Inner(Mine):
        pass

    return Inner


if __name__ == "__main__":
    asked = dict(model=Net, data=make, partition={"name": "iid", "clients": 4}, rounds=1, seeds=[0])
    asked |= dict(evaluate={"metrics": [share_right]})
    alone = run({**asked, "method": Mine, "resources": {"hosts": 0}}, report=False)
    here = alone.summary["points"]["after_agg"]["last"]
    robust = run({**asked, "method": Mine, "aggregator": middle, "resources": {"hosts": 0}}, report=False).metrics
    assert np.allclose(robust.filter(regex="^test_.*share_right").T, robust["test_accuracy"]), robust.columns
    asked |= dict(data=make(), resources={"hosts": 2})  # arrays instead of a function, in processes of their own
    result = compare(Config(**asked), [Mine, local()], tune=0)
    found = result.table.set_index("method")
    assert result.figure("curve-after_agg").data
    (axes,) = result.figure("curve-after_agg", backend="matplotlib").axes
    assert len(axes.lines) == len(found), axes.lines
    assert set(found["status"]) == {"done"}, found
    (one,) = {here["test_accuracy"]["mean"], *found["mean"].filter(like="__main__:")}
    print(sorted(name.partition("@")[0] for name in found.index))
"""


@pytest.mark.night
def test_a_script_with_a_method_a_model_and_data_of_its_own(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    names = ["__main__:Mine", "__main__:local.<locals>.Inner", "centralized", "fedavg-ft", "local"]
    assert done.stdout.splitlines()[-1] == str(names)


DIGITS = (
    SCRIPT.partition("def make")[0]
    + """
from sklearn.datasets import load_digits


class Net(LightningModule):
    def __init__(self, width):
        super().__init__()
        self.body, self.head = torch.nn.Linear(64, width), torch.nn.Linear(width, 10)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Mine(Method):
    def private(self, layout):
        return layout.masks("head")


if __name__ == "__main__":
    X, y = load_digits(return_X_y=True)
    torch.manual_seed(3)
    asked = dict(method=Mine, data=(X, y), model=Net(width=8), partition={"clients": 3}, rounds=2, train={"steps": 2})
    for hosts in (0, 1, 0):
        print(run(Config(**asked, resources={"hosts": hosts}, out=f"hosts-{hosts}")).folder)
"""
)


@pytest.mark.night
def test_a_script_with_arrays_an_instance_and_hosts(tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(DIGITS)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "every client starts from its weights for every seed" in (tmp_path / "hosts-0" / "summary.json").read_text()
    here, hosts = ((tmp_path / f"hosts-{hosts}" / "metrics.jsonl").read_text() for hosts in (0, 1))
    assert len(here.splitlines()) == 4
    assert here == hosts
    monkeypatch.chdir(tmp_path)
    kept = load_yaml("hosts-0/config.yaml")
    assert kept["data"]["name"].startswith("memory:arrays@")
    (tmp_path / "hosts-0" / "report.html").unlink()
    assert main(["report", "hosts-0"]) == 0
    assert (tmp_path / "hosts-0" / "report.html").exists()
    with pytest.raises(ConfigError, match=r"these data are objects of another Python process; start there, or pass "):
        run(Config(**{**kept, "method": "fedavg", "model": "mlp", "out": "other"}))
