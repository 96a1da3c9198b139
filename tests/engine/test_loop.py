"""What a LightningModule may do in the learner's own loop, and what it is told where it may not."""

import pytest
import torch
import torchmetrics
from torch.optim import lr_scheduler

from fedbench.engine.fit import Fit
from fedbench.engine.losses import task_loss
from fedbench.engine.probe import probe
from fedbench.errors import ConfigError
from tests.engine.steps import mean_loss, step_of


@pytest.mark.parametrize("optimizer", ["module", "sgd", "adam"])
def test_none_skips_a_batch_and_nothing_moves(learner, net, blobs, same, optimizer):
    nothing = learner(step_of(net, lambda self, batch, batch_idx: None), optimizer)
    weights = nothing.fit(Fit(nothing.initial(), blobs(18)))
    assert same(weights, nothing.initial())
    assert nothing.ledger.steps == 0
    assert nothing.ledger.loss is None


def test_minus_one_ends_the_epoch(fit, net):
    class Short(net):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == 2 else None

    assert fit(Short).ledger.steps == 4


def test_what_a_module_knows_of_itself(fit, net):
    seen = []

    class Asks(net):
        def __init__(self, width: int = 5):
            super().__init__()
            self.save_hyperparameters()

        def training_step(self, batch, batch_idx):
            seen.append((self.current_epoch, self.global_step, batch_idx, self.training))
            assert self.device == batch[0].device == torch.device("cpu")
            assert self.dtype == torch.float32
            assert self.hparams.width == 5
            assert self.trainer.is_global_zero
            assert self.global_rank == 0
            assert not hasattr(self.trainer, "datamodule")
            self.logger.experiment.add_scalar("anything", 1.0)
            self.print("")
            return super().training_step(batch, batch_idx)

        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            total = self.trainer.estimated_stepping_batches
            return [optimizer], [{"scheduler": lr_scheduler.OneCycleLR(optimizer, 0.1, total), "interval": "step"}]

        def on_train_end(self):
            plan = self.trainer
            seen.append((plan.estimated_stepping_batches, plan.max_epochs, plan.num_training_batches))

    fit(Asks)
    steps = [(epoch, epoch * 5 + batch, batch, True) for epoch in range(2) for batch in range(5)]
    assert seen == [*steps, (10, 2, 5)]


def test_layers_made_in_setup(fit, net):
    class Late(net):
        def setup(self, stage):
            self.extra = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.extra(super().forward(x))

    assert fit(Late).layout.size == 35 + 18 + 12


def test_batches_pass_the_transfer_hooks(learner, net, blobs, same):
    class Transfers(net):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            return batch[0] * 2, batch[1]

        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            return batch[0] + 1, batch[1]

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return (batch[0] - 1) / 2, batch[1]

    data = blobs(16)
    data.x = data.x.mul(8).round().div(8)
    hooked, plain = learner(Transfers), learner(net)
    assert same(hooked.fit(Fit(hooked.initial(), data)), plain.fit(Fit(plain.initial(), data)))


def test_logged_values_are_means_of_the_last_epoch_weighted_by_images(fit, net):
    def step(self, batch, batch_idx):
        size = len(batch[0])
        self.log("float", float(batch_idx + 10 * self.current_epoch), prog_bar=True, on_epoch=True)
        self.log("tensor", torch.tensor(batch_idx), on_step=False, on_epoch=True)
        self.log_dict({"a": size, "b": 1}, logger=False)
        self.log("most", float(size), reduce_fx="max")
        self.log("once", 1.0, batch_size=1)
        return mean_loss(self, batch)

    def ends(self):
        self.log("at_end", 7.0)

    logged = fit(type("Logs", (net,), {"training_step": step, "on_train_epoch_end": ends})).ledger.logged
    mean = (4 * (0 + 1 + 2 + 3) + 2 * 4) / 18
    assert logged == pytest.approx(
        {"float": mean + 10, "tensor": mean, "a": (4 * 16 + 2 * 2) / 18, "b": 1, "most": 4, "once": 1, "at_end": 7}
    )


def test_metric_objects_are_computed_and_reset_every_epoch(fit, net, blobs):
    counts = []

    class Counts(net):
        def __init__(self):
            super().__init__()
            self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)
            self.all = torchmetrics.MetricCollection(
                {"f1": torchmetrics.F1Score("multiclass", num_classes=3, average="micro")}, prefix="train/"
            )
            self.seen = torchmetrics.SumMetric()

        def training_step(self, batch, batch_idx):
            x, y = batch
            self.accuracy(self(x), y)
            self.all.update(self(x), y)
            self.seen.update(len(x))
            self.log("accuracy", self.accuracy, on_step=True, on_epoch=True)
            self.log_dict(self.all, on_epoch=True)
            self.log("seen", self.seen)
            return mean_loss(self, batch)

        def on_train_epoch_end(self):
            counts.append(float(self.seen.compute()))

    trained = fit(Counts)
    trained.fit(Fit(trained.initial(), blobs(10)))
    assert counts == [18, 18, 10, 10]
    assert trained.ledger.logged["seen"] == 10
    assert trained.ledger.logged["accuracy"] == pytest.approx(trained.ledger.logged["train/f1"])


def test_a_metric_that_nobody_logs_does_not_leak_to_the_next_client(learner, net, blobs):
    class Silent(net):
        def __init__(self):
            super().__init__()
            self.seen = torchmetrics.SumMetric()

        def training_step(self, batch, batch_idx):
            self.seen.update(len(batch[0]))
            return mean_loss(self, batch)

        def on_train_end(self):
            totals.append(float(self.seen.compute()))

    totals = []
    trained = learner(Silent)
    for count in (18, 10):
        trained.fit(Fit(trained.initial(), blobs(count)))
    assert totals == [36, 20]


def test_passes_beside_the_training_log_nothing(learner, net, blobs):
    class Logs(net):
        def training_step(self, batch, batch_idx):
            loss = mean_loss(self, batch)
            self.log("size", float(len(batch[0])))
            return loss

    trained = learner(Logs)
    few, many = blobs(2), blobs(18)

    def task_loss_of(net, batch, s):
        return task_loss(net, batch)

    trained.fit(Fit(trained.initial(), many))
    alone = dict(trained.ledger.logged)
    with trained.training(Fit(trained.initial(), many)) as training:
        for epoch in training.epochs():
            with training.paused() as weights:
                trained.gradient(weights, few.batch(torch.arange(2)), task_loss_of)
            for batch in epoch:
                training.step(batch)
    assert trained.ledger.logged == alone


def test_callback_metrics_can_be_read(fit, net):
    seen = []

    def step(self, batch, batch_idx):
        loss = mean_loss(self, batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        assert torch.equal(self.trainer.callback_metrics["loss_step"], loss)
        return loss

    def ends(self):
        seen.append(float(self.trainer.callback_metrics["loss_epoch"]))

    trained = fit(type("Reads", (net,), {"training_step": step, "on_train_epoch_end": ends}))
    assert seen[1] == trained.ledger.logged["loss"] < seen[0]


def refusals(net):
    def two(self):
        return [torch.optim.SGD(p.parameters(), 0.1) for p in (self.body, self.head)]

    def manual(self):
        net.__init__(self)
        self.automatic_optimization = False

    def plateau(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [lr_scheduler.ReduceLROnPlateau(optimizer)]

    anything = lambda self, *args, **options: None  # noqa: E731
    return {
        "manual": ({"__init__": manual}, "optimises manually .*--train.engine trainer"),
        "two optimisers": ({"configure_optimizers": two}, "returns 2 optimisers instead of one"),
        "no optimiser": ({"configure_optimizers": lambda self: None}, "returns None.*--train.optimizer sgd"),
        "not an optimiser": ({"configure_optimizers": lambda self: 3}, "configure_optimizers"),
        "plateau": ({"configure_optimizers": plateau}, "configure_optimizers.*monitor"),
        "broken": ({"configure_optimizers": lambda self: self.nothing}, "configure_optimizers fails: AttributeError"),
        "optimizer_step": ({"optimizer_step": anything}, "overrides optimizer_step.*--train.engine trainer"),
        "optimizer_zero_grad": ({"optimizer_zero_grad": anything}, "overrides optimizer_zero_grad.*engine trainer"),
        "clipping": (
            {"configure_gradient_clipping": anything},
            "overrides configure_gradient_clipping.*trainer",
        ),
        "scheduler": ({"lr_scheduler_step": anything}, "overrides lr_scheduler_step.*engine trainer"),
        "backward": ({"backward": anything}, "overrides backward.*--train.engine trainer"),
        "callbacks": ({"configure_callbacks": anything}, "overrides configure_callbacks.*--train.engine trainer"),
        "iterator": ({"training_step": lambda self, dataloader_iter: None}, "takes dataloader_iter"),
    }


@pytest.mark.parametrize("name", list(refusals(object)))
def test_what_can_be_known_is_refused_when_the_learner_is_built(learner, net, name):
    members, message = refusals(net)[name]
    with pytest.raises(ConfigError, match=message) as error:
        learner(type("Own", (net,), members))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda self: self.trainer.datamodule, "uses self.trainer.datamodule.*--train.engine trainer"),
        (
            lambda self: setattr(self.trainer, "should_stop", True),
            "sets self.trainer.should_stop.*engine trainer",
        ),
        (lambda self: self.optimizers(), r"calls self.optimizers\(\).*--train.engine trainer"),
        (lambda self: self.lr_schedulers(), r"calls self.lr_schedulers\(\).*--train.engine trainer"),
        (lambda self: self.manual_backward(None), r"calls self.manual_backward\(\).*--train.engine trainer"),
        (lambda self: self.nothing, "fails in training: AttributeError"),
    ],
)
def test_the_rest_is_found_by_the_probe_before_round_1(learner, net, blobs, use, message):
    def step(self, batch, batch_idx):
        use(self)
        return mean_loss(self, batch)

    with pytest.raises(ConfigError, match=message) as error:
        probe(learner(step_of(net, step)), blobs(8), 3)
    assert "\n" not in str(error.value)


def test_a_monitor_that_is_never_logged_is_found_by_the_probe(learner, net, blobs):
    class Validates(net):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            scheduler = lr_scheduler.ReduceLROnPlateau(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "val_loss"}

    with pytest.raises(ConfigError, match=r"'val_loss', which .*: log it there with self.log"):
        probe(learner(Validates), blobs(8), 3)
