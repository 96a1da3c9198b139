"""The learner's loop and lightning.Trainer train a module to the same bits."""

import pytest
import torch
import torch.nn.functional as F
from lightning import Trainer
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from fedbench.engine.fit import Amount, Fit, Loss, Move, PairedBatches, Step
from fedbench.engine.losses import task_loss
from fedbench.errors import ConfigError
from fedbench.runtime.states import trees

HOOKS = (
    "on_fit_start on_train_start on_train_epoch_start on_before_batch_transfer on_after_batch_transfer "
    "on_train_batch_start on_before_zero_grad on_before_backward on_after_backward on_before_optimizer_step "
    "on_train_batch_end on_train_epoch_end on_train_end on_fit_end"
)


@pytest.fixture
def both(learner, same):
    """Trains a module class with both engines and checks that the weights are equal; returns them.

    asked: further fields of the fit, or functions that make them of the learner.
    """

    def train(kind, data, optimizer="module", options=None, **asked):
        found = []
        for engine in ("loop", "trainer"):
            trained = learner(kind, optimizer, engine=engine, **(options or {}))
            ask = {name: value(trained) if callable(value) else value for name, value in asked.items()}
            found.append(trained.fit(Fit(trained.initial(), data, **ask)))
            assert trained.ledger.steps > 0
        assert torch.isfinite(found[0].params).all()
        assert not torch.equal(found[0].params, trained.initial().params)
        assert same(*found)
        return found[0]

    return train


def pull(g, w, s):
    g.add_((w - s.anchor).mul_(s.mu))


def pulled(trained):
    return Step(pull, anchor=trained.initial().params + 0.1, mu=0.5)


def scaled_loss(net, batch, s):
    return task_loss(net, batch) * s.factor


def two_stream_loss(net, batch, s):
    (x, y), (u, _) = batch
    return F.cross_entropy(net(x), y) + net(u).square().mean() * s.factor


def test_a_plain_network(both, net, blobs):
    """Also equal to a Trainer and to a PyTorch loop that know nothing of the learner."""
    data = blobs(18)
    weights = both(net, data, options={"shuffle": False})
    batches = DataLoader(TensorDataset(data.x, data.y), batch_size=4)
    torch.manual_seed(7)
    module = net()
    Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    ).fit(module, batches)
    assert torch.equal(weights.params, nn.utils.parameters_to_vector(module.parameters()))
    torch.manual_seed(7)
    module = net()
    optimizer = module.configure_optimizers()
    for batch in [*batches, *batches]:
        optimizer.zero_grad()
        module.training_step(batch, 0).backward()
        optimizer.step()
    assert torch.equal(weights.params, nn.utils.parameters_to_vector(module.parameters()))


def test_convolution_batchnorm_and_dropout(both, conv_net, blobs):
    both(conv_net, blobs(18, (2, 6, 6)))


def test_batches_in_channels_last(both, conv_net, blobs):
    data = blobs(18, (2, 6, 6))
    data.memory_format = torch.channels_last
    both(conv_net, data)


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_precisions(both, conv_net, blobs, precision):
    data = blobs(18, (2, 6, 6))
    data.dtype = torch.float64 if precision == "64-true" else torch.float32
    weights = both(conv_net, data, options={"precision": precision})
    assert weights.params.dtype == data.dtype


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "LBFGS"])
def test_optimizers(both, net, blobs, name):
    class Own(net):
        def configure_optimizers(self):
            return getattr(torch.optim, name)(self.parameters(), lr=0.01)

    both(Own, blobs(18))


def schedules(net):
    make = {
        "list": lambda o: ([o], [lr_scheduler.StepLR(o, 1, 0.5)]),
        "dict": lambda o: {"optimizer": o, "lr_scheduler": lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e))},
        "steps": lambda o: {
            "optimizer": o,
            "lr_scheduler": {"scheduler": lr_scheduler.CosineAnnealingLR(o, 7), "interval": "step", "frequency": 2},
        },
        "plateau": lambda o: {
            "optimizer": o,
            "lr_scheduler": {"scheduler": lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.1), "monitor": "up"},
        },
        "plateau by step": lambda o: {
            "optimizer": o,
            "lr_scheduler": {
                "scheduler": lr_scheduler.ReduceLROnPlateau(o, patience=1, factor=0.1),
                "monitor": "up",
                "interval": "step",
            },
        },
        "not logged, not strict": lambda o: {
            "optimizer": o,
            "lr_scheduler": {"scheduler": lr_scheduler.ReduceLROnPlateau(o), "monitor": "val_loss", "strict": False},
        },
    }

    def module(name):
        class Scheduled(net):
            def training_step(self, batch, batch_idx):
                self.log("up", float(self.global_step))
                return super().training_step(batch, batch_idx)

            def configure_optimizers(self):
                return make[name](torch.optim.SGD(self.parameters(), 0.1))

        return Scheduled

    return {name: module(name) for name in make}


@pytest.mark.parametrize("name", ["list", "dict", "steps", "plateau", "plateau by step", "not logged, not strict"])
def test_schedulers(both, net, blobs, name):
    both(schedules(net)[name], blobs(18), amount=Amount(epochs=4))


def test_a_scheduler_keeps_the_rate_that_a_round_or_a_method_asks_for(learner, net, blobs, same):
    kinds = schedules(net)
    slower = type("Slower", (net,), {})
    slower.configure_optimizers = lambda self: (
        [o := torch.optim.SGD(self.parameters(), 0.05)],
        [lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e))],
    )
    data, expected = blobs(18), learner(slower)
    by_round, by_method = learner(kinds["dict"]), learner(kinds["dict"])
    wanted = expected.fit(Fit(expected.initial(), data))
    assert same(wanted, by_round.fit(Fit(by_round.initial(), data, step=Step(decay=0.5))))
    assert same(wanted, by_method.fit(Fit(by_method.initial(), data, step=Step(lr=0.05))))


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_the_plateau_scheduler_did_something(learner, net, blobs, engine):
    plain = type("Plain", (net,), {"configure_optimizers": lambda self: torch.optim.SGD(self.parameters(), 0.1)})
    fits = [learner(kind, engine=engine) for kind in (schedules(net)["plateau"], plain)]
    scheduled, plain = (
        trained.fit(Fit(trained.initial(), blobs(18), amount=Amount(epochs=4))).params for trained in fits
    )
    assert not torch.equal(scheduled, plain)


def test_parameter_groups(both, net, blobs):
    class Groups(net):
        def configure_optimizers(self):
            weights = [p for p in self.parameters() if p.dim() > 1]
            biases = [p for p in self.parameters() if p.dim() == 1]
            groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 0.01}]
            return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    both(Groups, blobs(18))
    both(Groups, blobs(18), step=Step(lr=0.02))


def test_a_parameter_that_takes_no_part_neither_decays_nor_moves(both, net, blobs):
    class Spare(net):
        def __init__(self):
            super().__init__()
            self.spare = nn.Linear(6, 5)

    weights = both(Spare, blobs(18))
    torch.manual_seed(7)
    assert torch.equal(weights.params[-35:-5], Spare().spare.weight.flatten())


@pytest.mark.parametrize("optimizer", ["module", "sgd"])
def test_a_parameter_that_takes_part_later(both, learner, net, blobs, optimizer):
    class Late(net):
        def __init__(self):
            super().__init__()
            self.late = nn.Linear(6, 3)

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return loss + self.late(batch[0]).square().mean() if self.global_step > 3 else loss

    if optimizer == "module":
        both(Late, blobs(18))
    found = learner(Late, optimizer)
    weights, start = found.fit(Fit(found.initial(), blobs(18))), found.initial()
    assert not torch.equal(weights.params[-18:], start.params[-18:])


def test_gradient_edit(both, net, blobs):
    both(net, blobs(18), step=pulled)


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("pattern", ["contiguous", "scattered"])
def test_frozen_entries(both, net, blobs, pattern, edited):
    def mask(trained):
        size = trained.layout.size
        return trained.layout.mask("head") if pattern == "contiguous" else torch.arange(size) % 2 == 0

    both(net, blobs(18), move=lambda trained: Move(mask(trained)), **({"step": pulled} if edited else {}))


def test_a_methods_loss_and_a_second_stream(both, net, blobs):
    both(net, blobs(18), loss=Loss(scaled_loss, factor=0.5))
    both(net, PairedBatches(blobs(18), blobs(7), 3), loss=Loss(two_stream_loss, factor=0.5))


def test_a_loss_knows_which_images_it_gets(both, net, blobs):
    data, seen = blobs(18), []

    def loss(net, batch, s):
        seen.append(torch.equal(batch[0], data.x[s.index]))
        return task_loss(net, batch)

    both(net, data, loss=Loss(loss))
    assert len(seen) > 10
    assert all(seen)


def test_memory_across_rounds(learner, net, blobs, same):
    found = []
    for engine in ("loop", "trainer"):
        trained, memory = learner(net, engine=engine), {}
        weights = trained.initial()
        for _ in range(3):
            weights = trained.fit(Fit(weights, blobs(18), step=Step(memory=memory)))
        found.append(weights)
    assert same(*found)


def test_skipped_batches_and_epochs_cut_short(both, net, blobs):
    class Skips(net):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == 3 else None

    both(Skips, blobs(18))
    both(Skips, blobs(18), optimizer="sgd", options={"momentum": 0.5, "batch_size": 9})


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", 1e-6), ("64-true", 1e-12)])
def test_built_in_optimizers(learner, conv_net, blobs, optimizer, precision, tolerance):
    data, found = blobs(18, (2, 6, 6)), []
    data.dtype = torch.float64 if precision == "64-true" else torch.float32
    for engine in ("loop", "trainer"):
        trained = learner(conv_net, optimizer, engine=engine, precision=precision, lr=0.01)
        found.append(trained.fit(Fit(trained.initial(), data)).params)
    # The conv bias before BatchNorm has a gradient of pure rounding, which Adam scales up.
    moves = torch.ones(len(found[0]), dtype=torch.bool)
    moves[72:76] = optimizer == "sgd"
    tolerance *= 1 if optimizer == "sgd" else 10
    torch.testing.assert_close(found[0][moves], found[1][moves], rtol=0, atol=tolerance)


def test_hooks_come_in_the_trainers_order(learner, net, blobs):
    class Diary(net):
        def __init__(self):
            super().__init__()
            self.diary = []

    def note(hook):
        def write(self, *args):
            rates = [g["lr"] for g in self.chosen.param_groups]
            self.diary.append((hook, self.current_epoch, self.global_step, self.training, rates))
            if hook.endswith("transfer"):
                return args[0]
            return None

        return write

    for hook in HOOKS.split():
        setattr(Diary, hook, note(hook))

    def optimizers(self):
        self.chosen = torch.optim.SGD(self.parameters(), 0.1)
        each = {"scheduler": lr_scheduler.StepLR(self.chosen, 1, 0.9), "interval": "step"}
        return [self.chosen], [each, lr_scheduler.StepLR(self.chosen, 1, 0.5)]

    def training_step(self, batch, batch_idx):
        self.diary.append(("training_step", batch_idx))
        return None if batch_idx == 2 else net.training_step(self, batch, batch_idx)

    Diary.configure_optimizers, Diary.training_step = optimizers, training_step
    diaries = []
    for engine in ("loop", "trainer"):
        trained = learner(Diary, engine=engine)
        trained.fit(Fit(trained.initial(), blobs(18)))
        diaries.append(trained.module.diary)
    assert diaries[0] == diaries[1]
    assert len(diaries[0]) > 80


def test_what_is_handed_to_on_train_batch_end(learner, net, blobs):
    found = []
    for engine in ("loop", "trainer"):
        outputs = []

        class Says(net):
            def training_step(self, batch, batch_idx):
                loss = super().training_step(batch, batch_idx)
                return {"loss": loss, "seen": len(batch[0])} if batch_idx else None

            def on_train_batch_end(self, result, batch, batch_idx, outputs=outputs):
                graph = "loss" in result and result["loss"].requires_grad
                outputs.append({k: float(v) for k, v in result.items()} | {"grad": graph})

        trained = learner(Says, engine=engine)
        trained.fit(Fit(trained.initial(), blobs(18)))
        found.append(outputs)
    assert found[0] == found[1]
    assert found[0][0] == {"grad": False}
    assert found[0][4]["seen"] == 2


def test_manual_optimisation_runs_through_the_trainer(learner, net, blobs):
    class Manual(net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()

    manual, automatic = learner(Manual, engine="trainer"), learner(net)
    assert torch.equal(
        manual.fit(Fit(manual.initial(), blobs(18))).params, automatic.fit(Fit(automatic.initial(), blobs(18))).params
    )


def test_the_trainer_refuses_in_one_line_too(learner, net, blobs):
    class Two(net):
        def configure_optimizers(self):
            return [torch.optim.SGD(p.parameters(), 0.1) for p in (self.body, self.head)]

    trained = learner(Two, engine="trainer")
    with pytest.raises(ConfigError, match="2 optimisers") as error:
        trained.fit(Fit(trained.initial(), blobs(8)))
    assert "\n" not in str(error.value)


@pytest.fixture
def manual(net):
    """A module that optimises manually, with this training_step."""

    def build(training_step):
        class Manual(net):
            def __init__(self) -> None:
                super().__init__()
                self.automatic_optimization = False

        Manual.training_step = training_step
        return Manual

    return build


def backward_and_step(net, batch, batch_idx):
    optimizer = net.optimizers()
    optimizer.zero_grad()
    net.manual_backward(F.cross_entropy(net(batch[0]), batch[1]))
    optimizer.step()


def and_returns_the_loss(net, batch, batch_idx):
    backward_and_step(net, batch, batch_idx)
    return {"loss": F.cross_entropy(net(batch[0]), batch[1]) * 0 + 5}


def without_lightning(net, batch, batch_idx):
    optimizer = net.optimizers(use_pl_optimizer=False)
    optimizer.zero_grad()
    F.cross_entropy(net(batch[0]), batch[1]).backward()
    optimizer.step()


def twice(net, batch, batch_idx):
    for _ in range(2):
        backward_and_step(net, batch, batch_idx)


def every_second(net, batch, batch_idx):
    net.manual_backward(F.cross_entropy(net(batch[0]), batch[1]) / 2)
    if batch_idx % 2:
        net.optimizers().step()
        net.optimizers().zero_grad()


@pytest.mark.parametrize(
    ("training_step", "steps", "known"),
    [
        (backward_and_step, 6, True),
        (and_returns_the_loss, 6, 5.0),
        (without_lightning, 6, None),
        (twice, 12, True),
        (every_second, 2, True),
        (lambda net, batch, batch_idx: None, 0, None),
    ],
)
def test_steps_of_manual_optimisation_are_those_of_its_optimiser(learner, manual, blobs, training_step, steps, known):
    trained = learner(manual(training_step), engine="trainer", batch_size=6)
    trained.fit(Fit(trained.initial(), blobs(18)))
    ledger = trained.ledger
    assert ledger.steps == steps
    assert ledger.loss == known if known is not True else 0 < ledger.loss < 3


@pytest.mark.parametrize("optimizer", ["module", "sgd"])
def test_manual_optimisation_is_the_automatic_one_to_the_bit(learner, net, manual, blobs, same, optimizer):
    learners = [learner(kind, optimizer, engine="trainer") for kind in (net, manual(backward_and_step))]
    found = [trained.fit(Fit(trained.initial(), blobs(18))) for trained in learners]
    assert same(*found)
    assert learners[0].ledger.steps == learners[1].ledger.steps
    assert learners[0].ledger.loss == learners[1].ledger.loss


def steps_of_two(net, batch, batch_idx):
    first, second = net.optimizers()
    first.zero_grad()
    second.zero_grad()
    net.manual_backward(F.cross_entropy(net(batch[0]), batch[1]))
    first.step()
    second.step()


def test_several_optimisers_make_the_steps_of_one(learner, manual, blobs, same):
    def two(net):
        first, *others = net.parameters()
        return [torch.optim.SGD(own, lr=0.1) for own in ([first], others)]

    def one(net):
        return torch.optim.SGD(net.parameters(), lr=0.1)

    kinds = manual(steps_of_two), manual(backward_and_step)
    kinds[0].configure_optimizers, kinds[1].configure_optimizers = two, one
    learners = [learner(kind, engine="trainer", batch_size=6) for kind in kinds]
    found = [trained.fit(Fit(trained.initial(), blobs(18), step=Step(decay=0.5))) for trained in learners]
    assert same(*found)
    assert [trained.ledger.steps for trained in learners] == [12, 6]
    for step in (Step(lambda g, w, s: None), Step(memory={})):
        with pytest.raises(ConfigError, match="configure_optimizers returns several optimisers, but th"):
            learners[0].fit(Fit(learners[0].initial(), blobs(18), step=step))


def by_epoch(make):
    return lambda net, o: {"optimizer": o, "lr_scheduler": make(o)}


def by_step(make, frequency=1):
    return lambda net, o: {
        "optimizer": o,
        "lr_scheduler": {"scheduler": make(o), "interval": "step", "frequency": frequency},
    }


def warmed_up(o):
    parts = [lr_scheduler.LinearLR(o, 0.1, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)]
    return lr_scheduler.SequentialLR(o, parts, milestones=[3])


LASTING = {
    "StepLR": by_epoch(lambda o: lr_scheduler.StepLR(o, 3, 0.1)),
    "MultiStepLR": by_epoch(lambda o: lr_scheduler.MultiStepLR(o, [1, 3, 4], 0.5)),
    "CosineAnnealingLR": by_step(lambda o: lr_scheduler.CosineAnnealingLR(o, 11), 2),
    "LambdaLR": by_epoch(lambda o: lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e))),
    "SequentialLR": by_step(warmed_up),
    "OneCycleLR": by_step(lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=30)),
    "of max_epochs": lambda net, o: {
        "optimizer": o,
        "lr_scheduler": lr_scheduler.CosineAnnealingLR(o, net.trainer.max_epochs),
    },
    "every third epoch": lambda net, o: {
        "optimizer": o,
        "lr_scheduler": {"scheduler": lr_scheduler.StepLR(o, 1, 0.5), "frequency": 3},
    },
    "of all steps": lambda net, o: by_step(
        lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=net.trainer.estimated_stepping_batches)
    )(net, o),
}


def rates_of(kind, learner, data, engine, epochs, fits, memory):
    """Rate and momentum of every step of so many fits."""
    seen = []

    class Recorded(kind):
        def on_before_optimizer_step(self, optimizer):
            group = optimizer.param_groups[0]
            seen.append((group["lr"], group["momentum"]))

    trained = learner(Recorded, engine=engine, keep_optimizer=True)
    trained.engine.rounds, start = fits, trained.initial()
    for _ in range(fits):
        start = trained.fit(Fit(start, data, amount=Amount(epochs=epochs), step=Step(memory=memory)))
        memory = None if memory is None else trees.decode(trees.encode(memory))
    return seen


@pytest.mark.parametrize("engine", ["loop", "trainer"])
@pytest.mark.parametrize("name", LASTING)
def test_a_schedule_that_is_kept_goes_on_as_in_one_long_fit(learner, net, blobs, name, engine):
    class Scheduled(net):
        def configure_optimizers(self):
            return LASTING[name](self, torch.optim.SGD(self.parameters(), 0.1, momentum=0.9))

    if engine == "trainer" and name in ("every third epoch", "of all steps"):
        pytest.skip("lightning.Trainer cannot")
    asked = (Scheduled, learner, blobs(18), engine)
    whole, parts = rates_of(*asked, 6, 1, {}), rates_of(*asked, 2, 3, {})
    assert len(whole) == 30
    assert len(set(whole)) > 1
    assert parts == whole
    if name not in ("of max_epochs", "of all steps", "OneCycleLR"):
        assert rates_of(*asked, 2, 3, None) == rates_of(*asked, 2, 1, None) * 3 != whole


def test_epochs_that_the_trainer_counts_anew_are_refused(learner, net, blobs):
    class Scheduled(net):
        def configure_optimizers(self):
            return LASTING["every third epoch"](self, torch.optim.SGD(self.parameters(), 0.1))

    trained = learner(Scheduled, engine="trainer", keep_optimizer=True)
    with pytest.raises(ConfigError, match="restarts the count of 3 epochs between two steps of StepLR in every round"):
        trained.fit(Fit(trained.initial(), blobs(18)))


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_the_types_of_schedulers_are_known_before_round_1(learner, net, engine):
    assert learner(net, engine=engine).schedules == []
    assert learner(schedules(net)["steps"], engine=engine).schedules == ["CosineAnnealingLR"]
    assert learner(schedules(net)["steps"], "sgd", engine=engine).schedules == []


@pytest.mark.parametrize("hook", ["setup", "configure_model"])
def test_what_the_trainer_s_setup_compiles_keeps_its_names(both, learner, net, blobs, hook):
    def compiled(self, stage=None):
        self.body = torch.compile(self.body, backend="eager")

    kind = type("Compiled", (net,), {hook: compiled})
    both(kind, blobs(18))
    trained = learner(kind, engine="trainer")
    trained.fit(Fit(trained.initial(), blobs(18)))
    assert [*trained.module.state_dict()] == [*net().state_dict()]
    assert trained.flat.state_dict(trained.initial()) is not None


GRADIENTS = [{"clip_norm": 0.5}, {"accumulate": 2}, {"accumulate": 3, "clip_norm": 0.5}]
"""Five batches make groups of two, two and one, or of three and two."""


@pytest.mark.parametrize("options", GRADIENTS)
@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_clipped_and_accumulated(both, net, blobs, options, frozen):
    """Also equal to PyTorch, with the mean of each group and the norm of what moves."""
    scattered = lambda trained: Move(torch.arange(trained.layout.size) % 2 == 0)  # noqa: E731
    asked = {"move": scattered} if frozen else {"step": pulled}
    both(net, blobs(18), options=options, **asked)
    if frozen:
        return
    data = blobs(18)
    weights = both(net, data, options={**options, "shuffle": False})
    torch.manual_seed(7)
    module = net()
    optimizer, clipped = module.configure_optimizers(), 0
    for _ in range(2):
        for group in batches_of(data, options.get("accumulate", 1)):
            optimizer.zero_grad()
            (sum(F.cross_entropy(module(x), y) for x, y in group) / len(group)).backward()
            if "clip_norm" in options:
                clipped += float(nn.utils.clip_grad_norm_(module.parameters(), options["clip_norm"])) > 0.5
            optimizer.step()
    assert clipped > 0 or "clip_norm" not in options
    torch.testing.assert_close(weights.params, nn.utils.parameters_to_vector(module.parameters()), rtol=0, atol=1e-6)


def batches_of(data, every):
    """An epoch's batches in order, by the step of the optimiser that they belong to."""
    batches = [data.batch(index) for index in torch.arange(len(data)).split(4)]
    return [batches[i : i + every] for i in range(0, len(batches), every)]


@pytest.mark.parametrize("options", GRADIENTS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_gradients_of_built_in_optimizers_clipped_and_accumulated(learner, net, blobs, optimizer, options):
    found = []
    for engine in ("loop", "trainer"):
        trained = learner(net, optimizer, lr=0.05, engine=engine, precision="64-true", **options)
        data = blobs(18)
        data.dtype = torch.float64
        for mask in (None, torch.arange(trained.layout.size) % 2 == 0):
            found.append(trained.fit(Fit(trained.initial(), data, move=mask if mask is None else Move(mask))).params)
    for one, other in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_steps_are_counted_in_batches_and_hooks_and_schedulers_in_steps_of_the_optimiser(learner, net, blobs):
    seen = {}
    for engine in ("loop", "trainer"):

        class Counts(net):
            def on_before_optimizer_step(self, optimizer):
                self.steps.append((self.trainer.global_step, optimizer.param_groups[0]["lr"]))

            def on_train_batch_end(self, outputs, batch, batch_idx):
                self.losses.append(float(outputs["loss"]))

            def configure_optimizers(self):
                self.planned, self.steps, self.losses = self.trainer.estimated_stepping_batches, [], []
                optimizer = super().configure_optimizers()
                halved = lr_scheduler.StepLR(optimizer, 1, 0.5)
                return [optimizer], [{"scheduler": halved, "interval": "step"}]

        trained = learner(Counts, engine=engine, accumulate=2)
        trained.fit(Fit(trained.initial(), blobs(18)))
        seen[engine] = trained.module.steps, trained.module.losses
        assert trained.ledger.steps == 10
        assert trained.module.planned == 6
    assert seen["loop"] == seen["trainer"]
    assert seen["loop"][0] == [(step, 0.1 * 0.5**step) for step in range(6)]


def test_losses_are_means_over_batches_however_many_make_a_step(learner, net, blobs):
    losses = []
    for engine, accumulate in (("loop", 1), ("loop", 5), ("trainer", 5)):
        trained = learner(net, engine=engine, accumulate=accumulate, epochs=1)
        trained.fit(Fit(trained.initial(), blobs(18), step=Step(lr=1e-9)))
        losses.append(trained.ledger.loss)
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-5)


def test_a_model_that_reads_the_training_batches_before_it_trains_on_them_trains_on_all(learner, net, blobs, same):
    class Reads(net):
        def on_train_start(self):
            self.read = sum(len(y) for _, y in self.trainer.train_dataloader)
            next(iter(self.trainer.train_dataloader))

    data, fits = blobs(18), []
    for kind in (net, Reads):
        trained = learner(kind, engine="trainer", epochs=3, batch_size=4)
        fits.append(trained.fit(Fit(trained.initial(), data)))
        assert trained.ledger.steps == 15
    assert same(*fits)


def test_parts_that_were_built_in_evaluation_mode_stay_in_it(both, net, blobs):
    class PartlyInEvalMode(net):
        def __init__(self):
            super().__init__()
            self.fixed = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5)).eval()

        def forward(self, x):
            assert not self.fixed.training
            return super().forward(self.fixed(x))

    trained = both(PartlyInEvalMode, blobs(18))
    assert trained.counters.tolist() == [0], "no batch was tracked"


def test_a_train_of_the_models_own_decides_on_modes(learner, net, blobs):
    class Own(net):
        def train(self, mode=True):
            super().train(mode)
            self.body.eval()
            return self

        def training_step(self, batch, batch_idx):
            assert self.training
            assert not self.body.training
            return super().training_step(batch, batch_idx)

    trained = learner(Own)
    trained.fit(Fit(trained.initial(), blobs(18)))


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_setup_that_fails_is_one_line(learner, net, engine):
    class Failing(net):
        def setup(self, stage):
            raise ValueError("no file")

    with pytest.raises(ConfigError, match="model Failing: setup fails: ValueError: no file"):
        learner(Failing, engine=engine)


def test_setup_knows_the_epochs_of_a_fit(learner, net):
    class Asks(net):
        def setup(self, stage):
            self.epochs = self.trainer.max_epochs

    assert learner(Asks, epochs=3).module.epochs == 3
