"""Modules that take dicts, tuples and several arguments train with the bits of one that takes a single tensor."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench import Config, ConfigError, run

WORDS, LENGTH = 40, 9


class Plain(LightningModule):
    """Classifies sequences of words by the mean of their embeddings; 0 fills up."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, classes)

    def scores(self, ids, mask):
        weights = mask.float()
        return self.head((self.embed(ids) * weights[..., None]).sum(1) / weights.sum(1, keepdim=True))

    def forward(self, x):
        return self.scores(x, x > 0)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Named(Plain):
    """In the manner of models of `transformers`."""

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.scores(input_ids, attention_mask)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}

    def training_step(self, batch, batch_idx):
        return self(**batch)["loss"]


class Whole(Plain):
    def forward(self, sample):
        return self.scores(sample["words"]["ids"], sample["words"]["ids"] > 0) + 0 * sample["weight"][:, None]

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch), batch["label"])


class Pair(Plain):
    def forward(self, ids, lengths):
        return self.scores(ids, torch.arange(LENGTH) < lengths[:, None])

    def training_step(self, batch, batch_idx):
        (ids, lengths), y = batch
        return nn.functional.cross_entropy(self(ids, lengths), y)


ITEMS = {
    Plain: lambda ids, y: (ids, y),
    Named: lambda ids, y: {"input_ids": ids.tolist(), "attention_mask": (ids > 0).astype(int), "labels": y},
    Whole: lambda ids, y: {"words": {"ids": ids}, "weight": np.float32(0.5), "label": y},
    Pair: lambda ids, y: ((torch.from_numpy(ids), int((ids > 0).sum())), y),
}


@pytest.fixture
def mine(monkeypatch):
    module = ModuleType("mine_structured")

    def rows(train, of):
        draw = np.random.default_rng(int(train))
        for label in draw.integers(0, 3, 60 if train else 30):
            ids = draw.integers(1, WORDS, LENGTH)
            ids[: LENGTH // 2] = 1 + 10 * label + draw.integers(0, 5, LENGTH // 2)
            ids[draw.integers(LENGTH // 2, LENGTH + 1) :] = 0
            yield of(ids, int(label))

    for kind, of in ITEMS.items():
        setattr(module, kind.__name__, kind)
        setattr(module, f"of_{kind.__name__}", lambda train, of=of: list(rows(train, of)))
    monkeypatch.setitem(sys.modules, "mine_structured", module)
    return module


def metrics(tmp_path, kind, method, of=None, **more):
    config = {
        "method": method,
        "model": {"name": f"mine_structured:{kind.__name__}", "head": "head"},
        "data": {"name": f"mine_structured:of_{(of or kind).__name__}", "val": 0, **more.pop("data", {})},
        "partition": {"name": "iid", "clients": 3},
        "train": {"epochs": 1, "batch_size": 8, **more.pop("train", {})},
        "rounds": 2,
        "resources": {"hosts": 0},
        "out": tmp_path / f"{kind.__name__}-{method}-{more}",
    }
    return run(Config(**config), report=False).metrics.drop(columns=["seconds", "cpu_seconds"], errors="ignore")


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (Named, "fedrod"),
        (Named, "knn-per"),
        (Whole, "apfl"),
        (Pair, "fedrep"),
        (Pair, "fedproto"),
        (Whole, "per-fedavg"),
    ],
)
def test_structured_batches_train_with_the_bits_of_tensors(tmp_path, mine, kind, method):
    data = {"sample": "words,weight"} if kind is Whole else {}
    tensors = metrics(tmp_path, Plain, method)
    assert tensors.equals(metrics(tmp_path, kind, method, data=data))


@pytest.mark.parametrize("train", [{"engine": "trainer"}, {"engine": "compiled", "optimizer": "sgd"}])
def test_engines_agree(tmp_path, mine, train):
    loop = metrics(tmp_path, Named, "fedavg", train={**train, "engine": "loop"})
    other = metrics(tmp_path / "other", Named, "fedavg", train=train)
    numbers = loop.select_dtypes("number").columns
    assert np.allclose(loop[numbers], other[numbers], atol=1e-5, equal_nan=True)


def test_a_module_that_expects_other_batches_is_told_what_they_are(tmp_path, mine):
    with pytest.raises(ConfigError, match=r"Plain fails on samples input_ids \[9\], attention_mask \[9\]"):
        metrics(tmp_path, Plain, "fedavg", of=Named)
    with pytest.raises(
        ConfigError, match=r"fails in training on batches that are dicts with the keys input_ids, labels, as the items"
    ):
        metrics(tmp_path, Plain, "fedavg", of=Named, data={"sample": "input_ids"})
    with pytest.raises(ConfigError, match="model mlp: takes samples of one array"):
        run(Config(model="mlp", data="mine_structured:of_Pair", partition="iid", out=tmp_path / "mlp"))
