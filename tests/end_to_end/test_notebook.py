"""Classes and functions of a notebook or script work as they are, in other processes too."""

import subprocess
import sys

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
    alone = run({**asked, "method": Mine, "resources": {"hosts": 2}}, report=False)
    here = alone.summary["points"]["after_agg"]["last"]
    result = compare(Config(**asked), [Mine, local()], tune=0)
    found = result.table.set_index("method")
    robust = run({**asked, "method": Mine, "aggregator": middle, "resources": {"hosts": 0}}, report=False).metrics
    assert np.allclose(robust.filter(regex="^test_.*share_right").T, robust["test_accuracy"]), robust.columns
    assert result.figure("curve-after_agg").data
    (axes,) = result.figure("curve-after_agg", backend="matplotlib").axes
    assert len(axes.lines) == len(found), axes.lines
    assert set(found["status"]) == {"done"}, found
    (one,) = {here["test_accuracy"]["mean"], *found["mean"].filter(like="__main__:")}
    print(sorted(name.partition("@")[0] for name in found.index))
"""


def test_a_script_with_a_method_a_model_and_data_of_its_own(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    names = ["__main__:Mine", "__main__:local.<locals>.Inner", "centralized", "fedavg-ft", "local"]
    assert done.stdout.splitlines()[-1] == str(names)
