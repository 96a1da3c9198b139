"""Batches, modes and costs of a fit."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Amount, Fit, Loss, Move, PairedBatches, Step
from fedbench.errors import ConfigError


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_a_batch_of_one_is_dropped_under_batchnorm_only(learner, net, conv_net, blobs, engine):
    plain, norm = learner(net, engine=engine), learner(conv_net, engine=engine)
    plain.fit(Fit(plain.initial(), blobs(9)))
    norm.fit(Fit(norm.initial(), blobs(9, (2, 6, 6))))
    assert (plain.ledger.steps, norm.ledger.steps) == (6, 4)
    norm.fit(Fit(norm.initial(), blobs(9, (2, 6, 6)), amount=Amount(steps=5)))
    assert norm.ledger.steps == 9


def test_a_batch_of_one_is_kept_where_batchnorm_is_frozen(learner, conv_net, blobs):
    trained = learner(conv_net)
    trained.fit(Fit(trained.initial(), blobs(9, (2, 6, 6)), move=Move(trained.layout.mask("head"), frozen="norm_eval")))
    assert trained.ledger.steps == 6


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_a_client_with_one_image_trains_with_batchnorm_in_evaluation_mode(learner, conv_net, blobs, engine):
    trained = learner(conv_net, engine=engine)
    weights = trained.fit(Fit(trained.initial(), blobs(1, (2, 6, 6))))
    assert trained.ledger.steps == 2
    assert torch.equal(weights.buffers, trained.initial().buffers)
    assert weights.counters.tolist() == [0]


@pytest.mark.parametrize("data", [(5, 1), (0, 4)])
def test_data_that_give_no_batch_are_refused_instead_of_waiting_forever(learner, conv_net, blobs, data):
    count, size = data
    trained = learner(conv_net, batch_size=size)
    with pytest.raises(ConfigError, match="this model trains on 2 or more at a time"):
        trained.fit(Fit(trained.initial(), blobs(count, (2, 6, 6)), amount=Amount(steps=3)))


@pytest.mark.parametrize(("frozen", "moves"), [("body", False), ("head", True)])
def test_freeze_norm(learner, conv_net, blobs, frozen, moves):
    trained = learner(conv_net)
    mask = ~trained.layout.mask(frozen)
    weights = trained.fit(Fit(trained.initial(), blobs(18, (2, 6, 6)), move=Move(mask, frozen="norm_eval")))
    assert torch.equal(weights.buffers, trained.initial().buffers) != moves
    weights = trained.fit(Fit(trained.initial(), blobs(18, (2, 6, 6)), move=Move(mask)))
    assert not torch.equal(weights.buffers, trained.initial().buffers)


def test_a_norm_without_parameters_freezes_with_what_is_around_it(learner, conv_net, blobs):
    class Plain(conv_net):
        def __init__(self):
            super().__init__()
            self.body[1] = nn.BatchNorm2d(4, affine=False)

    trained = learner(Plain)
    for frozen, moves in (("body", False), ("head", True)):
        mask = ~trained.layout.mask(frozen)
        weights = trained.fit(Fit(trained.initial(), blobs(18, (2, 6, 6)), move=Move(mask, frozen="norm_eval")))
        assert torch.equal(weights.buffers, trained.initial().buffers) != moves


def test_the_ledger_counts_steps_and_means_losses(learner, net, blobs):
    losses = []

    class Notes(net):
        def training_step(self, batch, batch_idx):
            losses.append(float(loss := super().training_step(batch, batch_idx)))
            return loss

    trained = learner(Notes)
    assert trained.ledger.loss is None
    for _ in range(2):
        trained.fit(Fit(trained.initial(), blobs(18)))
    assert trained.ledger.steps == len(losses) == 20
    assert trained.ledger.loss == pytest.approx(sum(losses) / 20)
    assert trained.steps_of(18) == 10


def test_epochs_and_steps(learner, net, blobs):
    trained = learner(net)
    for asked, steps in [
        ({}, 10),
        ({"epochs": 0}, 0),
        ({"epochs": 1}, 5),
        ({"steps": 7}, 7),
        ({"epochs": 1, "steps": 3}, 3),
    ]:
        trained.ledger.clear()
        trained.fit(Fit(trained.initial(), blobs(18), amount=Amount(**asked)))
        assert trained.ledger.steps == steps


def test_steps_are_the_first_of_the_epochs(learner, net, blobs, same):
    trained = learner(net)
    assert same(
        trained.fit(Fit(trained.initial(), blobs(18), amount=Amount(steps=10))),
        trained.fit(Fit(trained.initial(), blobs(18), amount=Amount(epochs=2))),
    )


def test_the_second_stream_never_decides_the_number_of_steps(learner, net, blobs):
    sizes = []

    def loss(network, batch, s):
        (x, y), (u, _) = batch
        sizes.append((len(x), len(u)))
        return F.cross_entropy(network(x), y)

    trained = learner(net)
    trained.fit(
        Fit(
            trained.initial(), PairedBatches(blobs(18), blobs(7), 3, "public"), amount=Amount(epochs=1), loss=Loss(loss)
        )
    )
    assert sizes == [(4, 3), (4, 3), (4, 1), (4, 3), (2, 3)]


@pytest.mark.parametrize("unit", ["epochs", "steps"])
@pytest.mark.parametrize("done", [1, 3, 6])
def test_a_fit_goes_on_behind_what_is_done(learner, net, blobs, same, unit, done):
    trained, data = learner(net, "sgd", keep_optimizer=True), blobs(18)
    whole = trained.fit(Fit(trained.initial(), data, amount=Amount(**{unit: 7})))
    memory = {}
    first = trained.fit(Fit(trained.initial(), data, amount=Amount(**{unit: done}), step=Step(memory=memory)))
    rest = trained.fit(Fit(first, data, amount=Amount(after=done, **{unit: 7 - done}), step=Step(memory=memory)))
    assert same(whole, rest)
    assert not same(whole, trained.fit(Fit(first, data, amount=Amount(**{unit: 7 - done}), step=Step(memory=memory))))


def test_eval_body(learner, conv_net, blobs, same):
    """The head alone is trained on the features of evaluation mode, whatever the body's dropout and statistics."""
    trained, data = learner(conv_net, "sgd", batch_size="full", shuffle=False), blobs(18, (2, 6, 6))
    head, modes = trained.layout.mask("head"), []
    features = trained.features(trained.initial(), data)

    def loss(net, batch, s):
        modes.append((net.body.training, net.body[1].training, net.body[3].training, net.head.training))
        assert torch.equal(net.body(batch[0]), features)
        return F.cross_entropy(net(batch[0]), batch[1])

    tuned = trained.fit(
        Fit(trained.initial(), data, amount=Amount(epochs=1), move=Move(head, frozen="eval"), loss=Loss(loss))
    )
    assert modes == [(False, False, False, True)]
    assert torch.equal(tuned.buffers, trained.initial().buffers)
    assert not torch.equal(tuned.params, trained.initial().params)
    plain = trained.fit(Fit(trained.initial(), data, amount=Amount(epochs=1), move=Move(head, frozen="norm_eval")))
    assert not same(plain, tuned)


def test_a_ledger_knows_that_weights_are_finite_until_they_change(learner, net):
    ledger, weights = Ledger(torch.device("cpu")), learner(net).initial()
    other = weights.clone()
    ledger.note_finite(weights)
    weights.params.data[0] = float("nan")  # PyTorch counts no write: the note is believed
    assert ledger.is_finite(weights)
    assert ledger.is_finite(other)
    weights.params.add_(0)
    assert not ledger.is_finite(weights)
    ledger.note_finite(other)
    other.params = other.params.clone().mul_(float("nan"))
    assert not ledger.is_finite(other), "another tensor, which was written to as often"
    ledger.note_finite(other)
    other.params.mul_(1)
    assert not ledger.is_finite(other)
    ledger.note_finite(weights)
    ledger.clear()
    assert not ledger.is_finite(weights)


def test_a_buffer_that_is_nan_is_found_beside_finite_parameters(learner, conv_net):
    ledger, weights = Ledger(torch.device("cpu")), learner(conv_net).initial()
    ledger.note_finite(weights)
    assert ledger.is_finite(weights)
    weights.buffers[0] = float("nan")
    assert not ledger.is_finite(weights)
