from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fedbench.checks.model_fits import Epochs, ModelFits
from fedbench.config import Config
from tests.checks.wrong_models import Net
from tests.runtime.networks import Manual


def test_one_step_is_the_gradient_step_of_the_first_batch():
    fits = ModelFits(Config(model=Net, train={"batch_size": 16}))
    (epoch,) = fits.plan(0, 1)
    assert [len(batch) for batch in epoch] == [16]
    module = fits.module()
    start = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    module.training_step(fits.client(0).batch(epoch[0]), 0).backward()
    slope = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    assert torch.allclose(fits.fit(0, 1).params, start - 0.1 * slope, atol=1e-7)
    assert torch.equal(fits.fit(0, 1).params, fits.in_lightning(0, 1))


def test_a_model_that_needs_a_trainer_has_one():
    run = ModelFits(Config(model=Manual)).run
    assert run.engine == "trainer"
    assert "optimises manually" in run.why


def test_batches_are_those_of_the_trainers_epoch_however_often_they_are_read():
    trainer = SimpleNamespace(current_epoch=0)
    epochs = Epochs([[1, 2], [3, 4]], trainer)
    assert len(epochs) == 2
    assert [list(epochs), list(epochs)] == [[1, 2], [1, 2]]
    for trainer.current_epoch, batches in ((1, [3, 4]), (2, [])):
        assert list(epochs) == batches


class InSetup(Net):
    """Builds itself in setup, and asks for a logger."""

    def setup(self, stage):
        self.later = nn.Linear(10, 10)

    def forward(self, x):
        return self.later(super().forward(x))

    def training_step(self, batch, batch_idx):
        self.logger.log_metrics({"seen": 1.0})
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("train", [{}, {"accumulate": 2}, {"precision": "64-true"}, {"lr_scale": 0.5}])
def test_plain_lightning_has_the_keys_of_the_run(train):
    fits = ModelFits(Config(model=InSetup, train=train))
    assert torch.allclose(fits.fit(0).params, fits.in_lightning(0), rtol=0, atol=1e-6)
