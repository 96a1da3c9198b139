"""What is tried of a model before round 1, and what is said of it."""

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from fedbench.engine.fit import Fit
from fedbench.engine.probe import model_warnings, probe
from fedbench.errors import ConfigError


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
