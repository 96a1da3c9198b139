"""What a LightningModule may rely on without a Trainer, and the line with which the rest is refused."""

import pytest
import torch
from lightning import LightningModule

from fedbench.errors import ConfigError
from fedbench.module.hooks import Hooks, overrides, takes_index


class Plain(LightningModule):
    def training_step(self, batch):
        return batch


class Hooked(Plain):
    def on_train_start(self):
        return "started"

    def on_before_batch_transfer(self, batch, dataloader_idx):
        return batch + 1

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch * 10


def test_only_hooks_that_a_module_overrides_are_called():
    hooks = Hooks(Hooked())
    assert list(hooks.calls) == ["on_train_start", "on_before_batch_transfer", "on_after_batch_transfer"]
    assert hooks("on_train_start") == "started"
    assert hooks("on_fit_end") is None
    assert hooks.transfer(1, "cpu") == 20


def test_the_context_knows_the_plan_and_refuses_what_it_has_not():
    module = Plain()
    Hooks(module).begin([[torch.zeros(1)] * 3, [torch.zeros(1)] * 2])
    trainer = module.trainer
    assert (trainer.max_epochs, trainer.num_training_batches, trainer.estimated_stepping_batches) == (2, 3, 5)
    assert not hasattr(trainer, "strategy")
    with pytest.raises(ConfigError, match=r"uses self\.trainer\.strategy.*--train\.engine trainer"):
        trainer.strategy  # noqa: B018
    with pytest.raises(ConfigError, match=r"sets self\.trainer\.should_stop"):
        trainer.should_stop = True


@pytest.mark.parametrize("name", ["optimizers", "manual_backward", "all_gather"])
def test_calls_that_need_a_trainer_are_refused_when_they_happen(name):
    module = Plain()
    Hooks(module)
    with pytest.raises(ConfigError, match=rf"Plain calls self\.{name}\(\)"):
        getattr(module, name)()


@pytest.mark.parametrize("name", ["optimizer_step", "backward", "configure_gradient_clipping"])
def test_overrides_that_would_not_be_called_are_refused_at_once(name):
    with pytest.raises(ConfigError, match=f"overrides {name}"):
        Hooks(type("Own", (Plain,), {name: lambda self, *_: None})())


def test_manual_optimisation_is_refused_at_once():
    module = Plain()
    module.automatic_optimization = False
    with pytest.raises(ConfigError, match="optimises manually"):
        Hooks(module)


def test_what_a_step_takes():
    assert not takes_index(Plain())
    assert takes_index(type("Indexed", (Plain,), {"training_step": lambda self, batch, batch_idx: batch})())
    assert overrides(Hooked(), "on_train_start")
    assert not overrides(Plain(), "on_train_start")
