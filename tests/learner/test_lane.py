"""A lane takes the steps of a fit of its own, and the fit beside it stays what it was."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from fedbench.learner.lane import Lane
from fedbench.learner.loop import task_loss

ENGINES = pytest.mark.parametrize("engine", ["loop", "trainer"])
WHEN = pytest.mark.parametrize("when", ["before_step", "after_step"])


def beside(learner, data, start, own, when, memories=(None, None), purpose="fit"):
    """A fit from `start` with a lane that is trained from `own` on the same loss."""
    lane = Lane(learner, own, data, purpose, memories[1])

    def closure(batch, _):
        loss = task_loss(learner.module, batch)
        lane.gradient(loss)
        return loss

    step = lambda batch, optimizer, s: lane.step(partial(closure, batch), like=optimizer)  # noqa: E731
    trained = learner.fit(start, data, memory=memories[0], **{when: step})
    return trained, lane.finish()


def shifted(weights):
    return weights.replace(params=weights.params + 0.1)


@ENGINES
@WHEN
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "module"])
def test_both_models_are_those_of_fits_alone(learner, conv_net, blobs, same, engine, when, optimizer):
    data = blobs(10, (2, 6, 6))
    kept = ({}, {})
    for factor in (1.0, 0.5):
        alone, paired = (learner(conv_net, optimizer, engine=engine) for _ in range(2))
        alone.lr_factor = paired.lr_factor = factor
        start, own = alone.initial(), shifted(alone.initial())
        before = start.clone(), own.clone()
        trained, lane = beside(paired, data, start, own, when, kept)
        assert same(trained, alone.fit(start, data)) or factor < 1
        if factor == 1 and not (engine == "trainer" and optimizer != "module"):  # the Trainer's steps are not fused
            assert same(lane, alone.fit(own, data))
        assert same(start, before[0])
        assert same(own, before[1])


@WHEN
def test_a_lane_keeps_an_optimiser_of_its_own(learner, conv_net, blobs, same, when):
    data = blobs(10, (2, 6, 6))
    alone, paired = learner(conv_net, "sgd"), learner(conv_net, "sgd")
    start = one = other = alone.initial()
    other = lane = shifted(other)
    memories, apart = ({}, {}), ({}, {})
    for _ in range(2):
        start, lane = beside(paired, data, start, lane, when, memories)
        one, other = alone.fit(one, data, memory=apart[0]), alone.fit(other, data, memory=apart[1])
    assert same(start, one)
    assert same(lane, other)


def test_a_lane_follows_the_schedule(learner, net, blobs, same):
    class Scheduled(net):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.3)]

    data = blobs(10)
    alone, paired = learner(Scheduled, epochs=3), learner(Scheduled, epochs=3)
    own = shifted(alone.initial())
    _, lane = beside(paired, data, paired.initial(), own, "before_step")
    assert same(lane, alone.fit(own, data))


def test_a_lane_logs_nothing_and_counts_its_steps(learner, net, blobs):
    class Logging(net):
        def training_step(self, batch, batch_idx):
            x, y = batch
            self.log("norm", self.head.weight.norm())
            self.log_dict({"bias": self.head.bias.norm()})
            return F.cross_entropy(self(x), y)

    data = blobs(8)
    alone, paired = learner(Logging), learner(Logging)
    alone.fit(alone.initial(), data)
    beside(paired, data, paired.initial(), shifted(paired.initial()), "before_step")
    assert paired.ledger.logged == alone.ledger.logged
    assert (alone.ledger.steps, paired.ledger.steps) == (4, 8)


def test_a_stream_goes_on_where_it_was_left(learner, conv_net, blobs, same):
    data = blobs(10, (2, 6, 6))
    paired = learner(conv_net, "sgd")
    _, one = beside(paired, data, paired.initial(), shifted(paired.initial()), "before_step")
    _, other = beside(paired, data, paired.initial(), shifted(paired.initial()), "before_step", purpose="other")
    assert not same(one, other)


def test_no_steps_leave_a_lane_as_it_was(learner, net, blobs, same):
    paired, memory = learner(net, epochs=0), {}
    own = shifted(paired.initial())
    _, lane = beside(paired, blobs(8), paired.initial(), own, "before_step", ({}, memory))
    assert same(lane, own)
    assert not memory
