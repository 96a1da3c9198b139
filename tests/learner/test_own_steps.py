"""Steps that a method makes itself: what its passes give it, and what the module notices of them."""

from itertools import chain

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.errors import ConfigError


def descend(passes, w, s):
    w.sub_(passes.gradient(), alpha=s.rate)


@pytest.mark.parametrize("optimizer", ["sgd", "module", "adam"])
def test_a_plain_step_is_a_step_of_sgd(optimizer, learner, net, blobs):
    own = learner(net, optimizer, lr=0.1, momentum=0.9)
    plain = learner(net, "sgd", lr=0.1, momentum=0, weight_decay=0)
    found = own.fit(own.initial(), blobs(10), step=descend, state={"rate": 0.1})
    expected = plain.fit(plain.initial(), blobs(10))
    assert torch.allclose(found.params, expected.params, rtol=0, atol=1e-7)
    assert own.ledger.steps == plain.ledger.steps == 6
    assert own.ledger.loss == pytest.approx(plain.ledger.loss, abs=1e-6)


def sizes_of(seen):
    def step(passes, w, s):
        seen.append([index.tolist() for index in passes.group])
        assert passes.sizes == [len(index) for index in passes.group]

    return step


def test_batches_of_a_step_are_consecutive_ones_of_one_stream(learner, net, blobs):
    made, one, three = learner(net), [], []
    made.fit(made.initial(), blobs(10), epochs=3, step=sizes_of(one))
    made.fit(made.initial(), blobs(10), steps=3, batches=3, step=sizes_of(three))
    assert three == [[b for (b,) in one[i : i + 3]] for i in (0, 3, 6)]
    assert sorted(chain.from_iterable(three[0])) == list(range(10))
    two = []
    made.fit(made.initial(), blobs(10), epochs=3, batches=2, step=sizes_of(two))
    assert two == [[b for (b,) in one[i : i + 2]] for i in (0, 2, 4, 6)]


def test_all_batches_of_an_epoch_in_stored_order(learner, net, blobs):
    made, seen = learner(net), []
    made.fit(made.initial(), blobs(10), epochs=2, batches=None, shuffle=False, step=sizes_of(seen))
    assert seen == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]] * 2


def test_a_batch_of_one_is_dropped_with_batchnorm(learner, conv_net, blobs):
    made, seen = learner(conv_net), []
    made.fit(made.initial(), blobs(9, (2, 6, 6)), steps=2, batches=3, step=sizes_of(seen))
    assert [[len(b) for b in group] for group in seen] == [[4, 4, 4]] * 2


def test_gradients_are_those_at_w_whatever_it_holds(learner, net, blobs):
    made, data = learner(net), blobs(8)
    found = []

    def step(passes, w, s):
        start = w.clone()
        w.add_(0.5)
        found.append((w.clone(), passes.gradient(1).clone(), passes.group[1]))
        w.copy_(start)

    end = made.fit(made.initial(), data, steps=1, batches=2, step=step)
    assert torch.equal(end.params, made.initial().params)
    ((w, g, index),) = found
    copy = net()
    nn.utils.vector_to_parameters(w, copy.parameters())
    x, y = data.batch(index)
    F.cross_entropy(copy(x), y).backward()
    assert torch.allclose(g, torch.cat([p.grad.flatten() for p in copy.parameters()]), rtol=0, atol=1e-6)


def test_the_product_with_the_hessian(learner, net, blobs):
    made, data = learner(net, precision="64-true"), blobs(8)
    data.dtype = torch.float64
    direction = torch.randn(made.layout.size, generator=torch.Generator().manual_seed(3)).double()
    found = []

    def step(passes, w, s):
        exact = passes.hessian_product(direction)
        w.add_(direction, alpha=1e-5)
        ahead = passes.gradient().clone()
        w.add_(direction, alpha=-2e-5)
        found.append((exact, (ahead - passes.gradient()) / 2e-5))

    made.fit(made.initial(), data, steps=1, step=step)
    assert torch.allclose(*found[0], rtol=0, atol=1e-7)
    assert found[0][0].abs().max() > 0.01


def test_a_linear_loss_has_no_hessian(learner, net, blobs):
    class Linear(net):
        def training_step(self, batch, batch_idx):
            return self.head.bias.sum()

    made, found = learner(Linear), []
    made.fit(
        made.initial(), blobs(8), steps=1, step=lambda p, w, s: found.append(p.hessian_product(torch.ones_like(w)))
    )
    assert found[0].tolist() == [0] * made.layout.size


def test_passes_are_in_train_mode_and_kept_buffers_are_as_they_were(learner, conv_net, blobs):
    made, data = learner(conv_net), blobs(8, (2, 6, 6))

    def kept(passes, w, s):
        assert passes.learner.module.training
        with passes.kept_buffers():
            passes.gradient()
            passes.hessian_product(torch.ones_like(w))

    before = made.initial()
    after = made.fit(before, data, step=kept)
    assert torch.equal(after.buffers, before.buffers)
    assert torch.equal(after.counters, before.counters)
    moved = made.fit(before, data, epochs=1, step=lambda p, w, s: p.gradient())
    assert not torch.equal(moved.buffers, before.buffers)
    assert moved.counters.tolist() == [2]


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

    made, data = learner(Noisy), blobs(12)
    made.fit(made.initial(), data, epochs=1, step=lambda p, w, s: [p.gradient() for _ in range(2)])
    once = ["start 4", "backward", "backward"]
    assert calls == [*once, "end 1 ['loss']", *once, "end 2 ['loss']", "start 4"]
    assert "mean" in made.ledger.logged
    assert made.ledger.steps == 4


def test_a_step_that_is_skipped_cannot_be_used(learner, net, blobs):
    class Picky(net):
        def training_step(self, batch, batch_idx):
            return None

    made = learner(Picky)
    with pytest.raises(ConfigError, match="returned None"):
        made.fit(made.initial(), blobs(4), step=descend, state={"rate": 0.1})
