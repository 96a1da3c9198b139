"""What training_step may return, and losses that look into it."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from fedbench.engine.fit import Amount, Fit, Loss
from fedbench.engine.losses import task_loss_through
from fedbench.errors import ConfigError
from tests.engine.steps import mean_loss, step_of


@pytest.mark.parametrize(
    "step",
    [
        lambda self, batch: mean_loss(self, batch),
        lambda self, batch, batch_idx: mean_loss(self, batch),
        lambda self, batch, batch_nb: mean_loss(self, batch),
        lambda self, *args: mean_loss(self, args[0]) * (len(args) - 1),
        lambda self, batch, batch_idx: {"loss": mean_loss(self, batch), "more": "anything"},
    ],
    ids=["batch", "batch_idx", "other name", "args", "dict"],
)
def test_every_form_of_training_step_gives_the_same_weights(learner, net, blobs, same, step):
    form, plain = learner(step_of(net, step)), learner(net)
    assert same(form.fit(Fit(form.initial(), blobs(18))), plain.fit(Fit(plain.initial(), blobs(18))))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda loss: loss.expand(3), r"it returned a tensor of shape \[3\]"),
        (lambda loss: {"los": loss}, "it returned dict"),
        (lambda loss: 1.0, "it returned float"),
        (lambda loss: loss.detach(), "depends on no trainable parameter"),
    ],
)
def test_a_wrong_loss_is_one_clear_line(fit, net, output, message):
    with pytest.raises(ConfigError, match=message):
        fit(step_of(net, lambda self, batch, batch_idx: output(mean_loss(self, batch))))


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_a_loss_may_look_into_the_pass_of_the_modules_own_step(learner, net, blobs, engine):
    seen = []

    def loss(module, batch, s, part):
        own, features, output = task_loss_through(module, batch, part)
        seen.append((own, features, output, module.body(batch[0])))
        return own

    trained = learner(net, engine=engine, batch_size="full")
    trained.fit(Fit(trained.initial(), blobs(18), amount=Amount(epochs=1), loss=Loss(partial(loss, part="head"))))
    trained.fit(Fit(trained.initial(), blobs(18), amount=Amount(epochs=1), loss=Loss(partial(loss, part=""))))
    (_, features, output, body), (_, x, logits, _) = seen
    assert torch.equal(features, body)
    assert features.requires_grad
    assert torch.equal(output, logits)
    assert x.shape == (18, 6)
    assert not trained.flat.head._forward_hooks


def test_a_part_that_the_step_passes_by_is_refused(learner, net, blobs):
    class Aside(net):
        def training_step(self, batch, batch_idx):
            return F.cross_entropy(F.linear(self.body(batch[0]), self.head.weight), batch[1])

    trained = learner(Aside)
    with pytest.raises(ConfigError, match=r"Aside.training_step never calls its Linear as a function"):
        trained.fit(Fit(trained.initial(), blobs(8), loss=Loss(lambda n, b, s: task_loss_through(n, b, "head")[0])))
