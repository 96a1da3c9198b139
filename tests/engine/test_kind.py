"""Which fits go together."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fedbench.config import TrainConfig
from fedbench.engine.engine import Engine
from fedbench.engine.fit import Fit, Loss, Move, PairedBatches, Step
from fedbench.engine.kind import Kind, engine_refusal, fit_kind, is_constant
from fedbench.engine.learner import Learner
from fedbench.engine.losses import task_loss
from fedbench.engine.row_step import UnsupportedFitError
from fedbench.methods.fedprox import proximal_pull
from fedbench.module.layout import Slot


@pytest.fixture
def learner(net) -> Learner:
    return Learner(net(), TrainConfig(engine="compiled", batch_size=8), optimizer="sgd")


def own_loss(net: Any, batch: Any, s: Any) -> Tensor:
    return task_loss(net, batch)


def test_what_differs_in_more_than_numbers_is_of_another_kind(learner, blobs):
    start, anchor = learner.initial(), learner.initial().params
    fit = Fit(start, blobs(20))
    head = learner.layout.mask("head")
    alike = [fit, Fit(start, blobs(9)), Fit(learner.initial(), blobs(8), "other")]
    assert len({fit_kind(learner.engine, other) for other in alike}) == 1
    different = [
        fit,
        Fit(start, blobs(1)),
        Fit(start, PairedBatches(blobs(20), blobs(9), 8)),
        replace(fit, loss=Loss(own_loss)),
        replace(fit, loss=Loss(own_loss, mu=1)),
        replace(fit, loss=Loss(own_loss, mu=anchor)),
        replace(fit, loss=Loss(own_loss, head="head")),
        replace(fit, step=Step(lr=0.5)),
        replace(fit, step=Step(decay=0.5)),
        replace(fit, step=Step(proximal_pull, anchor=anchor, mu=0.1)),
        replace(fit, move=Move(head)),
        replace(fit, move=Move(~head)),
        replace(fit, move=Move(head, frozen="eval")),
    ]
    kinds = [fit_kind(learner.engine, other) for other in different]
    assert len(set(kinds)) == len(different)
    told = [replace(fit, loss=Loss(partial(own_loss, net="a")), stream=f"{n}") for n in range(2)]
    assert len({fit_kind(learner.engine, other) for other in told}) == 1
    assert fit_kind(learner.engine, told[0]) != fit_kind(
        learner.engine, replace(fit, loss=Loss(partial(own_loss, net="b")))
    )
    pulled = [replace(fit, step=Step(proximal_pull, anchor=anchor * n, mu=n)) for n in (1, 2)]
    assert len({fit_kind(learner.engine, other) for other in pulled}) == 1
    scattered = [replace(fit, move=Move(torch.arange(len(anchor)) % 2 == n)) for n in range(2)]
    assert len({fit_kind(learner.engine, other) for other in scattered}) == 1


def kind_on(engine: Engine, fit: Fit) -> Kind:
    if refusal := engine_refusal(engine):
        raise UnsupportedFitError(refusal)
    return fit_kind(engine, fit)


def test_who_cannot_be_stacked(net, learner, blobs):
    fit = Fit(learner.initial(), blobs(20))
    train = learner.train
    own = Learner(net(), train, optimizer="module")
    whole, anchor = train.model_copy(update={"batch_size": "full"}), learner.initial().params
    hooked = Learner(type("Hooked", (net,), {"on_train_start": lambda self: None})(), train, optimizer="sgd")
    clipped, watching = net(), net()
    clipped.head.weight.register_hook(lambda g: g.clamp(-1, 1))
    watching.body.register_full_backward_hook(lambda module, slopes, outer: None)
    hooks = [Learner(module, train, optimizer="sgd") for module in (clipped, watching)]
    asked = [
        *((learner, fit, "the model has hooks on gradients") for learner in hooks),
        (own, fit, "the model's own optimiser makes the steps"),
        (hooked, fit, "the model overrides on_train_start"),
        (learner, replace(fit, step=Step(rule=torch.optim.Rprop)), "the method sets the optimiser"),
        (
            learner,
            replace(fit, step=Step(proximal_pull, of=anchor[:2])),
            "an edit of the method needs of, whose size is a client's own",
        ),
        (learner, replace(fit, loss=Loss(own_loss, of=[1])), "needs of, which is not a tensor"),
        (
            learner,
            replace(fit, loss=Loss(partial(own_loss, s=anchor))),
            "the loss of the method refers to more than constants",
        ),
        (
            learner,
            replace(fit, loss=Loss(lambda net, b, s: anchor.sum())),
            "the loss of the method refers to more than constants",
        ),
        (
            learner,
            replace(fit, step=Step(lambda g, w, s: g.add_(anchor))),
            "the edit of the method refers to more than constants",
        ),
        (Learner(net(), whole, optimizer="sgd"), fit, "batches of several clients have no size in common"),
    ]
    for learner, one, why in asked:
        with pytest.raises(UnsupportedFitError, match=f"{why}$"):
            kind_on(learner.engine, one)


def test_what_is_equal_for_all_clients():
    within = torch.zeros(1)

    def closing() -> Tensor:
        return within

    slot = Slot("a", (1,), 0, 1)
    assert all(map(is_constant, ["head", None, True, own_loss, (slot, "a"), ()]))
    assert not any(map(is_constant, [closing, within, (within,), [1], {}, torch.nn.Linear(1, 1)]))
