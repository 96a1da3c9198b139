import torch

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


def test_an_iterator_that_is_not_used_takes_no_epoch():
    epochs = Epochs([[1, 2], [3, 4]])
    iter(epochs)
    assert len(epochs) == 2
    assert [list(epochs), list(epochs), list(epochs)] == [[1, 2], [3, 4], []]
