"""ditto: what the specification promises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedbench.module.weights import Weights
from tests.methods.simulator import Mlp, Quadratic, Simulation, accuracy_of, assert_same, blobs, close, equal, targets

STEP = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1}
SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731


class Dropping(Mlp):
    """With BatchNorm and Dropout."""

    def __init__(self) -> None:
        super().__init__(norm=True)
        self.body.append(nn.Dropout(0.4))


def quadratic(own=(2.0, 1.0), common=(0.5, 0.5), target=(1.0, -1.0), curvature=(1.0, 2.0), train=None, **options):
    """One client whose personal model stands at `own` while the global one stands at `common`."""
    train = STEP | (train or {})
    run = Simulation("ditto", targets(target), module=Quadratic((0.0, 0.0), curvature), train=train, **options)
    none = torch.zeros(0)
    run.keep(0, personal=Weights(torch.tensor(own), none, none.long()))
    run.server.params = torch.tensor(common)
    return run.run(1)


def test_steps_of_one_round():
    run = quadratic(lam=0.5)
    assert close(run.log[0].after_fit[0].params, [1.825, 0.575])
    assert close(run.server.params, [0.55, 0.2])
    assert close(quadratic(lam=0.5, personal_epochs=2).log[0].after_fit[0].params, [1.67625, 0.25625])
    assert close(quadratic(lam=0.5, personal_epochs=2).server.params, [0.55, 0.2])


def test_the_personal_model_tends_to_a_mean_of_its_optimum_and_the_anchor():
    run = quadratic(lam=0.5, personal_epochs=300)
    assert close(run.log[0].after_fit[0].params, [0.833333, -0.7], digits=5)


def test_a_pull_of_one_over_the_rate_starts_every_step_from_the_received_model():
    run = quadratic(lam=4.0, personal_lr=0.25, personal_epochs=2)
    v = torch.tensor([2.0, 1.0])
    for _ in range(2):
        v = torch.tensor([0.5, 0.5]) - 0.25 * torch.tensor([1.0, 2.0]) * (v - torch.tensor([1.0, -1.0]))
    assert close(run.log[0].after_fit[0].params, v.tolist())


@given(lams=st.lists(st.floats(0, 8), min_size=2, max_size=2, unique=True), own=st.floats(-3, 3))
@settings(max_examples=15)
def test_a_stronger_pull_keeps_the_personal_model_nearer(lams, own):
    way = []
    for lam in sorted(lams):
        run = quadratic((own, 1.0), (0.5, 0.5), train={"precision": "64-true"}, lam=lam, personal_epochs=60)
        way.append(float((run.log[0].after_fit[0].params - torch.tensor([0.5, 0.5])).norm()))
    assert way[0] >= way[1] - 1e-9


@pytest.mark.parametrize(
    "options", [{}, {"lam": 0.3, "personal_epochs": 5, "personal_lr": 0.02}, {"mode": "finetune"}, {"lam": 0}]
)
def test_the_global_model_is_fedavgs(options):
    shared = {"weighting": "uniform", "draw": SOME}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Dropping(), **shared, **o).run(3)  # noqa: E731
    run, plain = make("ditto", **options), make("fedavg")
    for one, other in zip(run.log, plain.log, strict=True):
        assert one.up == other.up
        assert one.down == other.down
        for i, upload in other.uploads.items():
            assert all(torch.equal(one.uploads[i].tensors[n], upload.tensors[n]) for n in upload.tensors)
    assert equal(
        run.method.global_model(run.server, run.initial), plain.method.global_model(plain.server, plain.initial)
    )


def test_both_points_are_the_personal_model_which_nobody_elses_round_changes():
    run = Simulation("ditto", blobs([9, 17, 12, 8]), module=Mlp(norm=True), draw=SOME).run(4)
    own = dict.fromkeys(range(4), run.initial)
    for seen in run.log:
        own |= seen.after_fit
        assert all(equal(seen.after_agg[i], own[i]) for i in range(4))
    assert not equal(run.log[0].after_agg[0], run.log[1].after_agg[0])


def test_the_two_models_have_statistics_of_their_own():
    run = Simulation("ditto", blobs([9, 17]), module=Mlp(norm=True), lam=5.0).run(2)
    personal, common = run.log[1].after_agg[0], run.method.global_model(run.server, run.initial)
    assert not torch.equal(personal.buffers, common.buffers)
    assert not torch.equal(personal.params, common.params)


def test_the_anchor_is_the_newest_received_model():
    run = Simulation("ditto", targets(1.0), module=Quadratic(), train=STEP, lam=2.0).run(2)
    w, v = 0.0, 0.0
    for _ in range(2):
        w, v = w - 0.1 * (w - 1), v - 0.1 * ((v - 1) + 2 * (v - w))
    assert close(run.log[1].after_fit[0].params, [v])


def test_phases_keep_optimisers_of_their_own():
    train = STEP | {"momentum": 0.5, "keep_optimizer": True}
    run = Simulation("ditto", targets(1.0), module=Quadratic(), train=train, lam=2.0).run(3)
    w = v = mw = mv = 0.0
    for _ in range(3):
        mw, mv = 0.5 * mw + (w - 1), 0.5 * mv + (v - 1) + 2 * (v - w)
        w, v = w - 0.1 * mw, v - 0.1 * mv
    assert close(run.log[2].after_fit[0].params, [v])
    assert close(run.server.params, [w])


def test_the_personal_rate_is_its_own_and_decays():
    train = STEP | {"lr_decay": 0.5}
    run = Simulation("ditto", targets(1.0), module=Quadratic(), train=train, lam=0, personal_lr=0.3).run(2)
    assert close(run.log[1].after_fit[0].params, [0.3 + 0.15 * 0.7])


def test_the_work_of_the_personal_model():
    def steps(train=None, **options):
        run = Simulation("ditto", blobs([17]), train={"batch_size": 8, "epochs": 2} | (train or {}), **options)
        run.round(evaluate=False)
        return run.learner.ledger.steps

    assert steps() == 2 * 3 + 2 * 3
    assert steps(personal_epochs=4) == 2 * 3 + 4 * 3
    assert steps({"steps": 5}) == 5 + 5
    assert steps({"steps": 5}, personal_epochs=4) == 5 + 4 * 3


def test_more_epochs_read_on_in_the_same_batches():
    """What the first epochs see does not depend on how many there are."""
    one, two = (
        Simulation("ditto", blobs([30]), train={"batch_size": 4, "epochs": e}, lam=0, personal_epochs=2).run(1)
        for e in (1, 3)
    )
    assert_same(one, two)


def test_finetuning_is_fedavg_until_the_last_aggregation():
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(True), draw=SOME, rounds=3, **o).run(3)  # noqa: E731
    run, plain = make("ditto", mode="finetune"), make("fedavg")
    assert_same(run, plain, ["after_fit"])
    for t in (0, 1):
        assert all(equal(run.log[t].after_agg[i], plain.log[t].after_agg[i]) for i in range(3))
    assert not any(equal(run.log[2].after_agg[i], plain.log[2].after_agg[i]) for i in range(3))


def test_finetuning_without_a_pull_is_the_next_local_training_at_the_last_rate():
    train = {"batch_size": 4}
    run = Simulation("ditto", blobs([9, 17]), module=Dropping(), train=train, rounds=2, mode="finetune", lam=0).run(2)
    plain = Simulation("fedavg", blobs([9, 17]), module=Dropping(), train=train).run(3)
    assert all(equal(run.log[1].after_agg[i], plain.log[2].after_fit[i]) for i in (0, 1))
    once = Simulation(
        "ditto", targets(1.0), module=Quadratic(), train=STEP | {"lr_decay": 0.5}, rounds=2, mode="finetune", lam=0
    ).run(2)
    w = 0.1 + 0.05 * 0.9
    assert close(once.log[1].after_agg[0].params, [w + 0.05 * (1 - w)])


def test_finetuning_is_pulled_to_the_last_average():
    train = STEP | {"epochs": 2}
    run = Simulation("ditto", targets(1.0), module=Quadratic(), train=train, rounds=1, mode="finetune", lam=3.0).run(1)
    w = v = 0.19
    for _ in range(2):
        v -= 0.1 * ((v - 1) + 3 * (v - w))
    assert close(run.log[0].after_agg[0].params, [v])


def test_finetuning_twice_or_never_changes_nothing():
    make = lambda: Simulation("ditto", blobs([9, 17]), module=Dropping(), mode="finetune", rounds=3)  # noqa: E731
    run, never = make(), make().run(3, evaluate=False)
    for _ in range(3):
        run.round()
        key = run.client(0, run.server.round).train.key
        assert equal(run.personal(0), run.personal(0))
        assert run.client(0, run.server.round).train.key == key
    assert_same(run, never, ["after_fit"])


def test_the_way_between_the_models_is_traced():
    run = Simulation("ditto", targets(1.0), module=Quadratic(), train=STEP, lam=0).run(2)
    assert run.log[1].traces[0, "distance"] == pytest.approx(0.19 - 0.1)
    assert not Simulation("ditto", blobs([9]), mode="finetune").run(1).log[0].traces


def test_personal_models_win_where_labels_are_swapped():
    clients = blobs([60], seed=3) + blobs([60], seed=4, shift=1)
    tests = blobs([200], seed=5) + blobs([200], seed=6, shift=1)
    run = Simulation("ditto", clients, train={"epochs": 2}, lam=0.1).run(5)
    personal = [accuracy_of(run.learner, run.log[-1].after_agg[i], tests[i]) for i in (0, 1)]
    common = [accuracy_of(run.learner, run.method.global_model(run.server, run.initial), tests[i]) for i in (0, 1)]
    assert sum(personal) / 2 > sum(common) / 2 + 0.2


def test_the_personal_model_of_a_newcomer_starts_at_the_global_one():
    run = Simulation("ditto", targets((1.0, -1.0)), module=Quadratic((0.0, 0.0), (1.0, 2.0)), train=STEP, lam=0.5)
    run.server.params = torch.tensor([0.5, 0.5])
    newcomer = targets((1.0, -1.0))[0]
    assert close(run.joined(newcomer, 0).params, [0.5, 0.5])
    assert close(run.joined(newcomer, 1).params, [0.55, 0.2])
    assert close(run.joined(newcomer, 2).params, [0.5925, -0.025])
