"""What is tried of a model before round 1, and what is said of it."""

import warnings
from functools import partial

import pytest
import torch
from lightning import LightningModule
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

from fedbench.config import TrainConfig
from fedbench.engine.fit import Fit
from fedbench.engine.learner import Learner
from fedbench.engine.probe import model_warnings, probe
from fedbench.errors import ConfigError
from fedbench.tasks import load


def streams():
    return torch.get_rng_state().tolist()


def test_clients_with_one_image_are_named_where_it_matters(learner, net, conv_net):
    assert model_warnings(learner(net), [1, 5]) == []
    assert model_warnings(learner(conv_net), [2, 5]) == []
    (line,) = model_warnings(learner(conv_net), [1, 5, 1])
    assert line.startswith("2 clients with one training sample: ")


@pytest.mark.parametrize(("flags", "said"), [("avx2 avx512_bf16", 0), ("avx2", 1), (None, 0)])
def test_bfloat16_without_instructions_for_it_is_named(learner, net, monkeypatch, flags, said):
    monkeypatch.setattr("fedbench.processor.processor_facts", lambda: {} if flags is None else {"flags": flags})
    assert len(model_warnings(learner(net, precision="bf16-mixed"), [5])) == said
    assert model_warnings(learner(net), [5]) == []


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_the_probe_leaves_no_trace(learner, conv_net, blobs, same, engine):
    trained, data = learner(conv_net, engine=engine), blobs(18, (2, 6, 6))
    random = streams()
    probe(trained, data, 3)
    assert streams() == random
    assert trained.ledger.steps == 0
    fresh = learner(conv_net, engine=engine)
    assert same(trained.fit(Fit(trained.initial(), data)), fresh.fit(Fit(fresh.initial(), data)))


def test_the_probe_names_a_wrong_shape(learner, net, conv_net, blobs):
    with pytest.raises(ConfigError, match=r"must return class scores of shape \[batch, 4\], it returned \(2, 3\)") as e:
        probe(learner(net), blobs(8), 4)
    assert str(e.value).endswith("; a constructor's argument `classes` gets the number of classes of the data")
    with pytest.raises(ConfigError, match=r"fails on samples of shape \(7,\), float32: RuntimeError"):
        probe(learner(net), blobs(8, (7,)), 3)


def test_the_probe_asks_which_of_two_tensors_are_the_scores(learner, net, blobs):
    class Two(net):
        def forward(self, x):
            return super().forward(x) + 1, super().forward(x)

    with pytest.raises(ConfigError, match=r"returns 2 tensors of shape \[2, 3\], and each could be the outputs"):
        probe(learner(Two), blobs(8), 3)


def test_probabilities_in_place_of_scores_are_named(learner, net, blobs):
    class Softmaxed(net):
        def forward(self, x):
            return super().forward(x).softmax(1)

    (line,) = probe(learner(Softmaxed), blobs(8), 3)
    assert line.startswith("model Softmaxed: forward(x) returns probabilities, which add up to 1: the reported loss")
    assert probe(learner(net), blobs(8), 3) == []


def test_a_model_that_exchanges_samples_and_classes_is_refused_with_any_number_of_classes(learner, net, blobs):
    class Transposed(net):
        def forward(self, x):
            return super().forward(x)[:, :2].T

        def training_step(self, batch, batch_idx):
            return F.cross_entropy(self(batch[0]).T, batch[1].clamp(max=1))

    with pytest.raises(ConfigError, match=r"of shape \[batch, 2\], it returned \(2, 3\) for a batch of 3"):
        probe(learner(Transposed), blobs(8), 2)


def test_copies_of_the_model_are_named(learner, net):
    class Averaged(net):
        def __init__(self) -> None:
            super().__init__()
            self.slow = AveragedModel(self.body)

    (line,) = model_warnings(learner(Averaged), [5])
    assert line.startswith("slow.module is a copy of the model inside the model: it counts as buffers, which are sent")


def test_misspelt_hooks_are_named(learner, net):
    class Misspelt(net):
        def test_stp(self, batch, batch_idx):
            return self.helper()

        def on_train_epoch_started(self):
            pass

        def helper(self):
            pass

    assert model_warnings(learner(Misspelt), [5]) == [
        "model Misspelt: nothing calls on_train_epoch_started: did you mean on_train_epoch_start?",
        "model Misspelt: nothing calls test_stp: did you mean test_step?",
    ]


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_the_module_is_told_of_the_whole_fit_in_the_test_of_one_step(learner, net, blobs, engine):
    seen = []

    class Asks(net):
        def configure_optimizers(self):
            length = self.trainer.max_epochs, self.trainer.estimated_stepping_batches
            seen.append(length)
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs - 1)]

        def on_train_batch_start(self, batch, batch_idx):
            seen.append((self.trainer.num_training_batches, batch_idx, self.trainer.max_epochs // 2))

    trained = learner(Asks, engine=engine, epochs=3, batch_size=4, optimizer="module")
    seen.clear()
    probe(trained, blobs(18), 3)
    assert seen == [(3, 15), (5, 0, 1)]


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_warnings_of_a_fit_are_shown_and_noted_once(learner, net, blobs, engine):
    class Warns(net):
        def training_step(self, batch, batch_idx):
            warnings.warn(f"a size of {batch_idx}", stacklevel=1)
            return super().training_step(batch, batch_idx)

    trained = learner(Warns, engine=engine, epochs=2, batch_size=4)
    with pytest.warns(UserWarning, match="a size of 0") as shown:
        trained.fit(Fit(trained.initial(), blobs(18)))
    assert [str(own.message) for own in shown] == ["a size of 0"]
    assert trained.remarks() == ["model Warns: a warning in training: a size of 0"]


def test_whole_numbers_that_a_model_wants_as_floats_name_the_key(learner, net):
    class Tokens:
        key, targets = (0,), torch.zeros(4, dtype=torch.int64)

        def __len__(self):
            return 4

        def batch(self, index):
            return torch.ones(len(index), 5, dtype=torch.int64), self.targets[index]

    with pytest.raises(ConfigError, match=r"int64 \(tokens; --data.kind feature reads whole numbers as floats\): "):
        probe(learner(net), Tokens(), 3)


class Bits(LightningModule):
    """One logit, or what a function makes of it."""

    def __init__(self, after=lambda logit: logit):
        super().__init__()
        self.body, self.after = nn.Linear(6, 1), after

    def forward(self, x):
        return self.after(self.body(x))

    def training_step(self, batch, batch_idx):
        return self.forward(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("bounded", [torch.sigmoid, lambda logit: logit.sigmoid() * 0.9])
def test_outputs_between_0_and_1_are_refused_where_logits_are_meant(blobs, bounded):
    binary = partial(Learner, train=TrainConfig(epochs=1, batch_size=4), optimizer="module", task=load("binary"))
    with pytest.raises(ConfigError, match="return what stands before the sigmoid, and train"):
        probe(binary(Bits(bounded)), blobs(8), 2)
    for fine in (lambda logit: logit, torch.relu, lambda logit: 0 * logit):
        assert probe(binary(Bits(fine)), blobs(8), 2) == []


def test_parts_that_were_built_in_evaluation_mode_are_named(learner, conv_net):
    class PartlyInEvalMode(conv_net):
        def __init__(self):
            super().__init__()
            self.norm = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()).eval()

    (line,) = [line for line in model_warnings(learner(PartlyInEvalMode), [5]) if "evaluation mode" in line]
    assert "these parts stay in it while they train, as in Lightning: norm;" in line
