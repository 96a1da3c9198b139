"""Steps that a method makes itself: what a training gives it, and what the module notices of them."""

from itertools import chain

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.engine.fit import Amount, Fit, Loss, Step
from fedbench.errors import ConfigError

PLAIN = Step(rule=torch.optim.SGD)


def trained(learner, data, act, amount=Amount(), size=1):  # noqa: B008
    """The weights after a training in which `act` is called with the training and the batches of each step."""
    with learner.training(Fit(learner.initial(), data, amount=amount, step=PLAIN)) as training:
        for places in training.groups(size):
            act(training, places)
    return training.weights


@pytest.mark.parametrize("optimizer", ["sgd", "module", "adam"])
def test_a_plain_step_is_a_step_of_sgd(optimizer, learner, net, blobs):
    own = learner(net, optimizer, lr=0.1, momentum=0.9)
    plain = learner(net, "sgd", lr=0.1, momentum=0, weight_decay=0)
    found = trained(own, blobs(10), lambda t, places: t.w.sub_(t.gradient(t.fetch(places[0])), alpha=0.1))
    expected = plain.fit(Fit(plain.initial(), blobs(10)))
    assert torch.allclose(found.params, expected.params, rtol=0, atol=1e-7)
    assert own.ledger.steps == plain.ledger.steps == 6
    assert own.ledger.loss == pytest.approx(plain.ledger.loss, abs=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "module", "adam"])
def test_steps_on_all_batches_are_a_fit(optimizer, learner, conv_net, blobs, same):
    data, made = blobs(18, (2, 6, 6)), learner(conv_net, optimizer)
    for way in ("batches", "epochs"):
        with made.training(Fit(made.initial(), data)) as training:
            for batch in training if way == "batches" else chain.from_iterable(training.epochs()):
                training.step(batch)
        assert same(training.weights, made.fit(Fit(made.initial(), data)))


def places_of(seen):
    return lambda training, places: seen.append([index.tolist() for index in places])


def test_batches_of_a_step_are_consecutive_ones_of_one_stream(learner, net, blobs):
    made, one, two, three = learner(net), [], [], []
    for seen, size, amount in ((one, 1, Amount(epochs=3)), (three, 3, Amount(steps=9)), (two, 2, Amount(epochs=3))):
        trained(made, blobs(10), places_of(seen), amount, size)
    assert three == [[b for (b,) in one[i : i + 3]] for i in (0, 3, 6)]
    assert sorted(chain.from_iterable(three[0])) == list(range(10))
    assert two == [[b for (b,) in one[i : i + 2]] for i in (0, 2, 4, 6)]


def test_all_batches_of_an_epoch_in_stored_order(learner, net, blobs):
    seen = []
    trained(learner(net), blobs(10), places_of(seen), Amount(epochs=2, shuffle=False), size=None)
    assert seen == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]] * 2


def test_a_batch_of_one_is_dropped_with_batchnorm(learner, conv_net, blobs):
    seen = []
    trained(learner(conv_net), blobs(9, (2, 6, 6)), places_of(seen), Amount(steps=6), size=3)
    assert [[len(b) for b in group] for group in seen] == [[4, 4, 4]] * 2


def test_gradients_are_those_at_w_whatever_it_holds(learner, net, blobs):
    made, data, found = learner(net), blobs(8), []

    def act(training, places):
        start = training.w.clone()
        training.w.add_(0.5)
        found.append((training.w.clone(), training.gradient(training.fetch(places[1])).clone(), places[1]))
        training.w.copy_(start)

    end = trained(made, data, act, Amount(steps=2), size=2)
    assert torch.equal(end.params, made.initial().params)
    ((w, g, index),) = found
    copy = net()
    nn.utils.vector_to_parameters(w, copy.parameters())
    x, y = data.batch(index)
    F.cross_entropy(copy(x), y).backward()
    assert torch.allclose(g, torch.cat([p.grad.flatten() for p in copy.parameters()]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "module"])
def test_a_step_may_take_its_gradient_elsewhere(learner, net, blobs, optimizer):
    made, data = learner(net, optimizer, lr=0.1, momentum=0, weight_decay=0, batch_size="full", epochs=1), blobs(8)
    half = made.initial().replace(params=made.initial().params / 2)
    with made.training(Fit(made.initial(), data)) as training:
        for batch in training:
            training.step(batch, at=lambda w: w / 2)
            assert all(p.data_ptr() == v.data_ptr() for p, v in zip(made.flat.parameters, views(made), strict=True))
    gradient = made.gradient(half, (data.x, data.y))[1]
    moved = training.weights.params - made.initial().params
    decay = 0.01 * made.initial().params if optimizer == "module" else 0
    assert torch.allclose(moved, -0.1 * (gradient + decay), rtol=0, atol=1e-6)


def views(learner):
    return [learner.flat.w[slot.start : slot.stop] for slot in learner.layout.params]


def test_the_product_with_the_hessian(learner, net, blobs):
    made, data, found = learner(net, precision="64-true"), blobs(8), []
    data.dtype = torch.float64
    direction = torch.randn(made.layout.size, generator=torch.Generator().manual_seed(3)).double()

    def act(training, places):
        batch = training.fetch(places[0])
        exact = training.hessian_product(batch, direction)
        training.w.add_(direction, alpha=1e-5)
        ahead = training.gradient(batch).clone()
        training.w.add_(direction, alpha=-2e-5)
        found.append((exact, (ahead - training.gradient(batch)) / 2e-5))

    trained(made, data, act, Amount(steps=1))
    assert torch.allclose(*found[0], rtol=0, atol=1e-7)
    assert found[0][0].abs().max() > 0.01


def test_a_linear_loss_has_no_hessian(learner, net, blobs):
    class Linear(net):
        def training_step(self, batch, batch_idx):
            return self.head.bias.sum()

    made, found = learner(Linear), []
    act = lambda t, p: found.append(t.hessian_product(t.fetch(p[0]), torch.ones_like(t.w)))  # noqa: E731
    trained(made, blobs(8), act, Amount(steps=1))
    assert found[0].tolist() == [0] * made.layout.size


def test_gradients_are_in_train_mode_and_kept_buffers_are_as_they_were(learner, conv_net, blobs):
    made, data = learner(conv_net), blobs(8, (2, 6, 6))

    def kept(training, places):
        assert made.module.training
        with training.kept_buffers():
            training.gradient(training.fetch(places[0]))
            training.hessian_product(training.fetch(places[0]), torch.ones_like(training.w))

    before, after = made.initial(), trained(made, data, kept)
    assert torch.equal(after.buffers, before.buffers)
    assert torch.equal(after.counters, before.counters)
    moved = trained(made, data, lambda t, places: t.gradient(t.fetch(places[0])), Amount(epochs=1))
    assert not torch.equal(moved.buffers, before.buffers)
    assert moved.counters.tolist() == [2]


def test_looking_between_epochs_changes_nothing(learner, conv_net, blobs, same):
    data, made = blobs(18, (2, 6, 6)), learner(conv_net)
    with made.training(Fit(made.initial(), data)) as training:
        for epoch in training.epochs():
            with training.paused() as weights:
                made.evaluate(made.initial(), data)
                made.gradient(weights, data.batch(torch.arange(3)))
                torch.rand(3)
                assert made.module.training
            for batch in epoch:
                training.step(batch)
    assert same(training.weights, made.fit(Fit(made.initial(), data)))


def test_a_loss_reads_and_writes_what_it_needs(learner, net, blobs):
    data, made, total = blobs(10), learner(net), torch.zeros(2)

    def loss(network, batch, s):
        assert s.factor.dtype == torch.float32
        assert torch.equal(data.y[s.index], batch[1])
        s.total.add_(s.factor)
        return F.cross_entropy(network(batch[0]), batch[1])

    made.fit(Fit(made.initial(), data, loss=Loss(loss, factor=0.5, total=total)))
    assert total.tolist() == [3, 3]


def test_the_modules_hooks_and_logs(learner, net, blobs):
    calls = []

    class Noisy(net):
        def on_train_batch_start(self, batch, batch_idx):
            calls.append(f"start {len(batch[1])}")
            return -1 if batch_idx == 2 else None

        def on_after_backward(self):
            calls.append("backward")

        def on_train_batch_end(self, outputs, batch, batch_idx):
            calls.append(f"end {self.global_step} {sorted(outputs)}")

        def training_step(self, batch, batch_idx):
            self.log("mean", batch[1].float().mean())
            return {"loss": super().training_step(batch, batch_idx)}

    made = learner(Noisy)
    trained(made, blobs(12), lambda t, p: [t.gradient(t.fetch(p[0])) for _ in range(2)], Amount(epochs=1))
    once = ["start 4", "backward", "backward"]
    assert calls == [*once, "end 1 ['loss']", *once, "end 2 ['loss']", "start 4"]
    assert "mean" in made.ledger.logged
    assert made.ledger.steps == 4


def test_a_step_that_is_skipped_cannot_be_used(learner, net, blobs):
    class Picky(net):
        def training_step(self, batch, batch_idx):
            return None

    with pytest.raises(ConfigError, match="returned None"):
        trained(learner(Picky), blobs(4), lambda t, places: t.gradient(t.fetch(places[0])))


def test_a_trainer_makes_no_steps_of_others(learner, net, blobs):
    made = learner(net, engine="trainer")
    with (
        pytest.raises(ConfigError, match=r"train\.engine = trainer: this method makes steps of its own"),
        made.training(Fit(made.initial(), blobs(4))),
    ):
        pass
