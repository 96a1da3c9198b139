"""What methods share whose clients exchange what they make of public images."""

from dataclasses import replace

import pytest
import torch

from fedbench.methods.cotraining import public_batch
from tests.methods.simulator import Mlp, Simulation, accuracy_of, assert_same, blobs, equal

PUBLIC = blobs([40], seed=7)[0]


SIZES = [9, 17, 12]


def run(name, rounds=3, norm=False, clients=None, public=PUBLIC, **options) -> Simulation:
    fixed = {k: options.pop(k) for k in ("draw", "train", "seed") if k in options}
    made = Simulation(
        name, clients or blobs(SIZES), module=Mlp(norm), public=public, rounds=max(10, rounds), **fixed, **options
    )
    return made.run(rounds)


METHODS = {"fedmosaic": "labels", "fedct": "labels", "perfed-ckt": "signal"}


@pytest.mark.parametrize(("name", "field"), METHODS.items())
def test_the_first_exchange_comes_after_rounds_of_local_training(name, field):
    mine, local = run(name, rounds=4, norm=True, first_vote=3), run("local", rounds=4, norm=True)
    assert [{field in u for u in seen.uploads.values()} for seen in mine.log] == [{False}, {False}, {True}, {True}]
    assert [seen.up[0] > 0 for seen in mine.log] == [False, False, True, True]
    assert [seen.down[0] > 0 for seen in mine.log] == [False, False, False, True]
    for t in range(4):
        alike = [equal(mine.log[t].after_fit[i], local.log[t].after_fit[i]) for i in range(3)]
        assert alike == [t < 3] * 3


@pytest.mark.parametrize("name", METHODS)
def test_the_first_exchange_is_after_80_steps_of_a_client(name):
    """Clients of 9, 17 and 12 images make 2, 3 and 2 steps an epoch."""
    for train, draw, expected in (
        ({"epochs": 1}, None, 35),  # 80 / (7 / 3) = 34.3
        ({"epochs": 5}, None, 7),  # 6.9
        ({"steps": 80}, None, 1),
        ({"steps": 79}, None, 2),
        ({"steps": 500}, None, 1),
    ):
        method = run(name, rounds=0, draw=draw, train={"batch_size": 8, **train}).method
        assert method.first_vote == expected
        assert [method.exchanges(t) for t in (expected - 1, expected)] == [False, True]
    found = run(name, rounds=3, train={"steps": 40})
    assert [any(METHODS[name] in u for u in seen.uploads.values()) for seen in found.log] == [False, True, True]
    given = run(name, rounds=3, train={"steps": 40}, first_vote=2)
    assert_same(found, given)


@pytest.mark.parametrize("name", METHODS)
def test_rounds_in_which_few_take_part_count_less(name):
    """With one of three a round, clients make a third of the steps."""
    method = run(name, rounds=0, train={"steps": 40}).method
    assert type(method)(method.options, replace(method.context, participants_per_round=1)).first_vote == 6


@pytest.mark.parametrize("name", METHODS)
def test_more_rounds_have_the_same_first_vote(name):
    few, many = (
        Simulation(name, blobs(SIZES), public=PUBLIC, train={"steps": 40}, rounds=rounds) for rounds in (3, 30)
    )
    assert few.method.first_vote == many.method.first_vote == 2
    assert not many.context.uses_rounds


@pytest.mark.parametrize("name", METHODS)
def test_an_exchange_that_no_round_uses_is_warned_of(name):
    for first, warned in ((9, False), (10, True), (1, False)):
        lines = run(name, rounds=0, first_vote=first).method.check()
        assert [f"method.first_vote = {first}: none of 10 rounds uses an exchange" in line for line in lines] == (
            [True] * warned
        )
    (line, *_) = run(name, rounds=0, train={"steps": 1}).method.check()
    assert line.startswith("method.first_vote = 80 (after 80 gradient steps of a client): none of 10 rounds uses")
    with pytest.raises(ValueError, match="first_vote"):
        run(name, rounds=0, first_vote=0)


def test_votes_of_models_that_know_their_classes_do_not_collapse():
    """Like clients that vote from round 1 on agree on one class, and learn it; those that train alone first do not."""
    clients, train = blobs([12] * 6, seed=3), {"lr": 0.05, "epochs": 1}
    found = {}
    for first in (1, 10):
        mine = run("fedct", rounds=20, clients=clients, first_vote=first, train=train)
        found[first] = sum(accuracy_of(mine.learner, mine.personal(i), blobs([200], seed=5)[0]) for i in range(6)) / 6
    assert found[10] > found[1] + 0.2


@pytest.mark.parametrize(("name", "more"), [("fedct", {"combine": "paired"}), ("fedmosaic", {}), ("perfed-ckt", {})])
@pytest.mark.parametrize(
    ("size", "batch", "expected"), [(None, 8, 8), (None, 50, 40), (None, "full", 40), (3, 8, 3), (40, 8, 40)]
)
def test_public_images_of_a_step(name, more, size, batch, expected):
    mine = run(name, rounds=1, public_batch_size=size, first_vote=1, train={"batch_size": batch}, **more)
    assert public_batch(size, mine.context) == expected
    seen = []
    mine.learner.fit = lambda fit: seen.append(fit.data.size) or fit.start
    mine.round()
    assert seen == [expected] * 3


@pytest.mark.parametrize(
    ("labels", "right", "said"),
    [
        ([0] * 6 + [1, 2, 3, 1], 0.1, "less than chance"),
        ([0] * 6 + [1, 2, 3, 1], 0.4, "names one class"),
        ([0] * 6 + [1, 2, 3, 1], 0.9, ""),
        ([0] * 6 + [1, 2, 3, 1], None, "names one class"),
        ([0] * 5 + [1, 2, 3, 1, 1], 0.3, ""),
        ([0] * 5 + [1, 2, 3, 1, 1], None, ""),
    ],
)
@pytest.mark.parametrize("name", ["fedmosaic", "fedct"])
def test_a_vote_that_teaches_nothing_is_degenerate(name, labels, right, said):
    """Four classes: by chance a quarter of the labels is right."""
    method = run(name, rounds=0, first_vote=1).method
    own = type(method)(
        method.options, replace(method.context, label_accuracy=None if right is None else lambda _: right)
    )
    found = own.collapse(torch.tensor(labels))
    assert said in found
    assert bool(found) == bool(said)


def test_a_degenerate_vote_is_traced_and_said():
    mine = Simulation("fedct", blobs(SIZES), module=Mlp(), public=PUBLIC, first_vote=1)
    mine.method.collapse = lambda labels: "why"
    mine.run(2)
    assert [seen.traces[-1, "degenerate"] for seen in mine.log] == [1, 1]
    assert mine.recorder.warnings == ["degenerate: why"]
