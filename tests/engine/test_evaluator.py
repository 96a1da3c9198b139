"""Looking at a model changes nothing, and shows what PyTorch shows."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn
from torchmetrics.classification import BinaryAccuracy

from fedbench.engine.evaluator import layer_order
from fedbench.engine.fit import Fit
from fedbench.engine.probe import probe, probe_logged
from fedbench.errors import ConfigError
from fedbench.tasks import mean_of


def streams():
    return torch.get_rng_state().tolist()


def equal(a, b):
    if isinstance(a, tuple):
        return all(map(equal, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize(
    "verb", ["evaluate", "logits", "features", "loss", "gradient", "full_gradient", "squared_gradients"]
)
@pytest.mark.parametrize("training", [True, False])
def test_verbs_other_than_fit_change_nothing(learner, conv_net, blobs, same, verb, training):
    class Noisy(conv_net):
        def forward(self, x):
            return super().forward(x + torch.rand_like(x))

    trained, data = learner(Noisy), blobs(18, (2, 6, 6))
    weights = trained.fit(Fit(trained.initial(), data))
    kept, random = weights.clone(), streams()
    trained.module.train(training)
    argument = data.batch(torch.arange(4)) if verb == "gradient" else data
    first = getattr(trained, verb)(weights, argument)
    second = getattr(trained, verb)(weights, argument)
    assert equal(first, second)
    assert same(weights, kept)
    assert same(trained.flat.weights(), kept)
    assert streams() == random
    assert all(m.training == training for m in trained.module.modules())
    assert trained.ledger.steps == 10


def test_the_verbs_give_what_pytorch_gives(learner, net, blobs):
    trained, data = learner(net), blobs(18)
    weights = trained.fit(Fit(trained.initial(), data))
    torch.manual_seed(7)
    module = net()
    nn.utils.vector_to_parameters(weights.params, module.parameters())
    loss = F.cross_entropy(module(data.x), data.y)
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in module.parameters()])
    assert torch.equal(trained.logits(weights, data), module(data.x))
    assert torch.equal(trained.features(weights, data), module.body(data.x))
    assert trained.loss(weights, data) == pytest.approx(loss.item())
    torch.testing.assert_close(trained.gradient(weights, (data.x, data.y))[1], gradient)
    score = trained.evaluate(weights, data)
    assert mean_of(score, "accuracy") == float((module(data.x).argmax(1) == data.y).double().mean())
    assert score["accuracy"][1] == score["loss"][1] == 18
    assert trained.evaluate(lambda d: module(d.batch(torch.arange(18))[0]).detach(), data) == score


def test_accuracy_as_a_mean_over_batches(learner, net, blobs):
    trained, data = learner(net), blobs(5)
    trained.evaluator.batch_size, trained.evaluator.by_batches = 4, True
    scores = F.one_hot(data.y, 3).float()
    scores[4] = -scores[4]
    assert mean_of(trained.evaluate(lambda d: scores, data), "accuracy") == 0.5


@pytest.mark.parametrize("by_batches", [False, True])
@pytest.mark.parametrize("size", [4, 500])
def test_groups_are_scored_over_their_samples(learner, net, blobs, by_batches, size):
    trained, data = learner(net), blobs(18)
    trained.evaluator.batch_size, trained.evaluator.by_batches = size, by_batches
    weights = trained.initial()
    right = trained.logits(weights, data).argmax(1) == data.y
    groups = {"class=1": data.y == 1, "all": torch.ones(18, dtype=torch.bool)}
    for predictor in (weights, lambda d: trained.logits(weights, d)):
        whole, score = trained.evaluate(predictor, data), trained.evaluate(predictor, data, groups)
        assert score.pop("accuracy/class=1") == (int(right[data.y == 1].sum()), int((data.y == 1).sum()))
        assert score.pop("accuracy/all") == (int(right.sum()), 18)
        assert score == whole


def test_the_gradient_of_another_loss_and_of_an_unused_parameter(learner, net, blobs):
    class Spare(net):
        def __init__(self):
            super().__init__()
            self.spare = nn.Linear(2, 2)

    trained, data = learner(Spare), blobs(5)
    _, g = trained.gradient(trained.initial(), data.batch(torch.arange(5)), lambda n, b, s: 2 * n(b[0]).sum())
    assert torch.equal(g[-6:], torch.zeros(6))
    assert g[:35].any()


@pytest.mark.parametrize("at_once", [3, 500])
def test_gradients_over_all_data(learner, conv_net, blobs, at_once):
    trained, data = learner(conv_net), blobs(8, (2, 6, 6))
    weights = trained.fit(Fit(trained.initial(), data))
    trained.evaluator.batch_size = at_once
    rows = [trained.gradient(weights, data.batch(torch.tensor([i])))[1] for i in range(8)]
    single = torch.stack(rows).double()
    for found, expected in (
        (trained.full_gradient(weights, data), single.mean(0)),
        (trained.squared_gradients(weights, data), single.square().mean(0)),
    ):
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


def test_squared_gradients_of_a_module_that_looks_at_its_numbers(learner, net, blobs):
    class Looks(net):
        def forward(self, x):
            return super().forward(x) * (2 if x.abs().max().item() > 0 else 1)

    class Doubles(net):
        def forward(self, x):
            return super().forward(x) * 2

    data = blobs(8)
    looks, doubles = (trained.squared_gradients(trained.initial(), data) for trained in map(learner, (Looks, Doubles)))
    torch.testing.assert_close(looks, doubles)


def test_the_gradient_of_some_tensors_with_the_loss(learner, net, blobs):
    trained, data = learner(net), blobs(8)
    batch, weights, head = data.batch(torch.arange(8)), trained.initial(), trained.layout.mask("head")
    loss, gradient = trained.gradient(weights, batch, mask=head)
    assert float(loss) == pytest.approx(trained.loss(weights, data))
    assert torch.equal(gradient, trained.gradient(weights, batch)[1] * head)
    assert all(p.requires_grad for p in trained.flat.parameters)


def test_a_part_drawn_anew_leaves_the_rest_and_every_stream(learner, net):
    trained = learner(net)
    start, before, head = trained.initial(), streams(), trained.layout.mask("head")
    drawn, again, other = (trained.redraw(start, "head", 0, client, "head") for client in (1, 1, 2))
    assert torch.equal(drawn.params[~head], start.params[~head])
    assert torch.equal(drawn.params, again.params)
    assert not torch.equal(drawn.params[head], other.params[head])
    assert streams() == before


@pytest.mark.parametrize(
    "wrap",
    [
        lambda logits: {"logits": logits, "loss": None},
        lambda logits: SimpleNamespace(logits=logits),
        lambda logits: (logits, logits[:, :2]),
    ],
    ids=["dict", "object", "tuple"],
)
def test_outputs_around_the_scores_give_what_the_scores_alone_give(learner, net, blobs, wrap):
    class Wrapped(net):
        def forward(self, x):
            return wrap(super().forward(x))

        def training_step(self, batch, batch_idx):
            return F.cross_entropy(super().forward(batch[0]), batch[1])

    plain, wrapped, data = learner(net), learner(Wrapped), blobs(18)
    probe(wrapped, data, 3)
    weights = wrapped.fit(Fit(wrapped.initial(), data))
    assert torch.equal(weights.params, plain.fit(Fit(plain.initial(), data)).params)
    for verb in ("logits", "evaluate", "full_gradient", "squared_gradients"):
        assert equal(getattr(wrapped, verb)(weights, data), getattr(plain, verb)(weights, data))


def own_test(net, **more):
    """A module with a test step of its own, whose accuracy is that of all samples."""

    class Tested(net):
        def __init__(self) -> None:
            super().__init__()
            self.right = BinaryAccuracy()

        def test_step(self, batch, batch_idx):
            x, y = batch
            scores = self(x)
            self.log("loss", F.cross_entropy(scores, y))
            self.right(scores.argmax(1) == y, torch.ones_like(y))
            self.log("right", self.right)
            self.log_dict({"batches": 1.0, "last": float(batch_idx)}, reduce_fx="sum")

        def on_test_epoch_end(self) -> None:
            self.log("end", 7.0)

    return type("Tested", (Tested,), more)


def test_what_the_modules_own_test_step_logs_is_of_all_samples(learner, net, blobs):
    trained, data = learner(own_test(net)), blobs(18)
    trained.evaluator.batch_size = 8  # 8, 8 and 2
    weights = trained.fit(Fit(trained.initial(), data))
    logged, score = trained.module_metrics(weights, data), trained.evaluate(weights, data)
    assert mean_of(logged, "test_step/loss") == pytest.approx(mean_of(score, "loss"))
    assert mean_of(logged, "test_step/right") == pytest.approx(mean_of(score, "accuracy"))
    found = {name: mean_of(logged, f"test_step/{name}") for name in ("batches", "last", "end")}
    assert found == {"batches": 3, "last": 3, "end": 7}
    assert {weight for _, weight in logged.values()} == {18}


def test_it_changes_nothing(learner, net, blobs, same):
    asked, plain = learner(own_test(net)), learner(own_test(net))
    data, other = blobs(18), blobs(9)
    for trained in (asked, plain):
        first = trained.fit(Fit(trained.initial(), data))
        if trained is asked:
            before, random = dict(trained.ledger.logged), streams()
            assert trained.module_metrics(first, other) == trained.module_metrics(first, other)
            assert (dict(trained.ledger.logged), streams()) == (before, random)
            assert trained.module.right._update_count == 0
    assert same(*(trained.fit(Fit(trained.initial(), data)) for trained in (asked, plain)))
    assert asked.ledger.logged == plain.ledger.logged


def test_a_validation_step_does_and_no_step_is_refused(learner, net, blobs):
    def validation_step(self, batch):
        self.log("half", 0.5)

    only = {"test_step": LightningModule.test_step, "on_test_epoch_end": LightningModule.on_test_epoch_end}
    trained = learner(own_test(net, validation_step=validation_step, **only))
    assert trained.module_metrics(trained.initial(), blobs(4)) == {"validation_step/half": (2.0, 4)}
    with pytest.raises(ConfigError, match="model Net has neither test_step nor validation_step"):
        learner(net).module_metrics(learner(net).initial(), blobs(4))
    silent = learner(own_test(net, test_step=lambda self, batch: None, on_test_epoch_end=lambda self: None))
    with pytest.raises(ConfigError, match="the model's test_step logs no number; leave it out"):
        probe_logged(silent, blobs(4))
    failing = learner(own_test(net, test_step=lambda self, batch: 1 / 0))
    with pytest.raises(ConfigError, match=r"evaluate\.module_metrics: ZeroDivisionError"):
        probe_logged(failing, blobs(4))


class Backwards(nn.Module):
    """Registers its layers in another order than it uses them; one is used by its numbers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 2)
        self.first = nn.Linear(2, 2)
        self.by_hand = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)) @ self.by_hand.weight


def test_the_pass_decides_and_what_it_does_not_enter_follows_what_is_around_it():
    model = nn.Sequential(Backwards(), nn.ReLU())
    order = layer_order(model, torch.zeros(1, 2))
    assert order == ["", "0", "0.by_hand", "0.first", "0.last", "1"]


def test_nothing_stays_behind_where_the_pass_fails():
    model = Backwards()
    with pytest.raises(RuntimeError):
        layer_order(model, torch.zeros(1, 3))
    assert not any(child._forward_pre_hooks for child in model.modules())


def test_compiled_layers_that_have_worked_before_are_entered_too():
    found = []
    for compiled in (False, True):
        model, x = nn.Sequential(Backwards(), nn.ReLU()), torch.zeros(1, 2)
        if compiled:
            model[0].compile(backend="eager")
        model(x)
        found.append(layer_order(model, x))
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_batches_are_changed_by_transfer_hooks_in_evaluation_too(learner, net, blobs, engine):
    seen = []

    class Scaled(net):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            seen.append((self.trainer.training, self.trainer.testing))
            return batch[0] * 3 - 1, batch[1]

    trained, plain, data = learner(Scaled, engine=engine), learner(net), blobs(18)
    weights = trained.initial()
    expected = plain.flat.module.eval()(data.x * 3 - 1)
    assert torch.equal(trained.logits(weights, data), expected)
    assert set(seen) == {(False, True)}
    assert mean_of(trained.evaluate(weights, data), "loss") == pytest.approx(float(F.cross_entropy(expected, data.y)))
    trained.fit(Fit(weights, data))
    assert seen[-1] == (True, False)
