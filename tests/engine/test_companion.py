"""A companion takes the steps of a fit of its own, and the training beside it stays what it was."""

import pytest
import torch
import torch.nn.functional as F

from fedbench.engine.fit import Fit, Step

WHEN = pytest.mark.parametrize("when", ["before", "after"])


def beside(learner, data, start, own, when, memories=(None, None), stream="fit", decay=1.0):
    """A training from `start` with a companion that is trained from `own` on the same loss."""
    with learner.training(Fit(start, data, stream, step=Step(memory=memories[0], decay=decay))) as training:
        companion = training.beside(own, memories[1])
        for batch in training:
            for model in (companion, training) if when == "before" else (training, companion):
                model.step(batch)
    return training.weights, companion.finish()


def shifted(weights):
    return weights.replace(params=weights.params + 0.1)


@WHEN
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "module"])
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_both_models_are_those_of_fits_alone(learner, conv_net, blobs, same, when, optimizer, decay):
    data = blobs(10, (2, 6, 6))
    alone, paired = (learner(conv_net, optimizer) for _ in range(2))
    start, own = alone.initial(), shifted(alone.initial())
    before = start.clone(), own.clone()
    trained, other = beside(paired, data, start, own, when, ({}, {}), decay=decay)
    assert same(trained, alone.fit(Fit(start, data, step=Step(decay=decay))))
    assert same(other, alone.fit(Fit(own, data, step=Step(decay=decay))))
    assert same(start, before[0])
    assert same(own, before[1])


@WHEN
def test_a_companion_keeps_an_optimiser_of_its_own(learner, conv_net, blobs, same, when):
    data = blobs(10, (2, 6, 6))
    alone, paired = learner(conv_net, "sgd"), learner(conv_net, "sgd")
    start = one = other = alone.initial()
    other = other_model = shifted(other)
    memories, apart = ({}, {}), ({}, {})
    for _ in range(2):
        start, other_model = beside(paired, data, start, other_model, when, memories)
        one, other = (
            alone.fit(Fit(one, data, step=Step(memory=apart[0]))),
            alone.fit(Fit(other, data, step=Step(memory=apart[1]))),
        )
    assert same(start, one)
    assert same(other_model, other)


def test_a_companion_follows_the_schedule(learner, net, blobs, same):
    class Scheduled(net):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.3)]

    data = blobs(10)
    alone, paired = learner(Scheduled, epochs=3), learner(Scheduled, epochs=3)
    own = shifted(alone.initial())
    _, other_model = beside(paired, data, paired.initial(), own, "before")
    assert same(other_model, alone.fit(Fit(own, data)))


def test_a_companion_logs_nothing_and_counts_its_steps(learner, net, blobs):
    class Logging(net):
        def training_step(self, batch, batch_idx):
            x, y = batch
            self.log("norm", self.head.weight.norm())
            self.log_dict({"bias": self.head.bias.norm()})
            return F.cross_entropy(self(x), y)

    data = blobs(8)
    alone, paired = learner(Logging), learner(Logging)
    alone.fit(Fit(alone.initial(), data))
    beside(paired, data, paired.initial(), shifted(paired.initial()), "before")
    assert paired.ledger.logged == alone.ledger.logged
    assert (alone.ledger.steps, paired.ledger.steps) == (4, 8)


def test_a_companion_has_the_dropout_of_its_stream(learner, conv_net, blobs, same):
    data = blobs(10, (2, 6, 6))
    paired = learner(conv_net, "sgd")
    _, one = beside(paired, data, paired.initial(), shifted(paired.initial()), "before")
    _, other = beside(paired, data, paired.initial(), shifted(paired.initial()), "before", stream="other")
    assert not same(one, other)


def test_no_steps_leave_a_companion_as_it_was(learner, net, blobs, same):
    paired, memory = learner(net, epochs=0), {}
    own = shifted(paired.initial())
    _, other_model = beside(paired, blobs(8), paired.initial(), own, "before", ({}, memory))
    assert same(other_model, own)
    assert not memory


def test_a_step_may_be_taken_elsewhere_with_an_edited_gradient(learner, net, blobs):
    """On the loss at a mixture of both models, times the share of this one."""
    data, trained = blobs(8), learner(net, "sgd", momentum=0, weight_decay=0, lr=0.1, batch_size="full", epochs=1)
    start, own = trained.initial(), shifted(trained.initial())
    with trained.training(Fit(start, data)) as training:
        companion = training.beside(own)
        for batch in training:
            companion.step(
                batch,
                at=lambda v: torch.lerp(companion.other.params, v, 0.25),
                edit=lambda g, v: g.mul_(0.25),
            )
            training.step(batch)
    mixed = start.replace(params=torch.lerp(start.params, own.params, 0.25))
    gradient = trained.gradient(mixed, (data.x, data.y))[1]
    found = companion.finish().params
    assert torch.allclose(found, own.params - 0.1 * 0.25 * gradient, rtol=0, atol=1e-6)
    assert torch.equal(training.weights.params, trained.fit(Fit(start, data)).params)


def test_what_the_training_says_of_inputs_has_the_companions_dropout(learner, conv_net, blobs):
    data, trained = blobs(8, (2, 6, 6)), learner(conv_net, "sgd")
    seen = []

    def loss(net, batch):
        others, own = companion.scores_of_other(batch[0]), net(batch[0])
        seen.append((others, own.detach()))
        return own.sum()

    with trained.training(Fit(trained.initial(), data)) as training:
        companion = training.beside(trained.initial())
        companion.step(next(iter(training)), loss=loss)
    assert torch.equal(*seen[0])
