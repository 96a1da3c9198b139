"""fedavg-ft: what the specification promises."""

import pytest
import torch

from fedbench.errors import ConfigError
from tests.methods.simulator import Mlp, Product, Quadratic, Simulation, assert_same, blobs, close, equal, targets

ONE_STEP = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1}


def product(**options):
    return Simulation("fedavg-ft", targets(1.0), module=Product(), train=ONE_STEP, ft_epochs=2, **options)


def test_all_parameters_or_the_head_are_tuned():
    assert close(product().personal(0).params, [1.1869, 1.1869], digits=4)
    body, head = product(ft_scope="head").personal(0).params
    assert close([body, head], [1, 1.19])
    assert body == 1


def test_fine_tuning_has_a_rate_of_its_own():
    train = {**ONE_STEP, "lr": 0.3}
    other = Simulation("fedavg-ft", targets(1.0), module=Product(), train=train, ft_epochs=2, ft_lr=ONE_STEP["lr"])
    assert equal(other.personal(0), product().personal(0))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("options", [{}, {"ft_epochs": 3}, {"ft_scope": "head", "ft_lr": 0.5}, {"buffers": "private"}])
def test_training_is_fedavgs(norm, options):
    buffers = {k: v for k, v in options.items() if k == "buffers"}
    tuned = Simulation("fedavg-ft", blobs([9, 17]), module=Mlp(norm), **options).run(3)
    plain = Simulation("fedavg", blobs([9, 17]), module=Mlp(norm), **buffers).run(3)
    assert_same(tuned, plain, ["after_fit"])
    assert [seen.up for seen in tuned.log] == [seen.up for seen in plain.log]
    assert [seen.down for seen in tuned.log] == [seen.down for seen in plain.log]


@pytest.mark.parametrize("norm", [False, True])
def test_no_fine_tuning_is_fedavg(norm):
    none = Simulation("fedavg-ft", blobs([9, 17]), module=Mlp(norm), ft_epochs=0, draw=lambda t: [t % 2]).run(3)
    plain = Simulation("fedavg", blobs([9, 17]), module=Mlp(norm), draw=lambda t: [t % 2]).run(3)
    assert_same(none, plain)


@pytest.mark.parametrize("amount", [{"epochs": 3}, {"steps": 4}])
def test_one_personalisation_costs_one_local_training(amount):
    train = {"batch_size": "full", "shuffle": False, **amount}
    tuned = Simulation("fedavg-ft", blobs([9, 17]), module=Mlp(norm=True), train=train).run(2)
    plain = Simulation("fedavg", blobs([9, 17]), module=Mlp(norm=True), train=train).run(3)
    for t in (0, 1):
        assert all(equal(tuned.log[t].after_agg[i], plain.log[t + 1].after_fit[i]) for i in (0, 1))


def test_the_optimizer_of_fine_tuning_is_fresh():
    train = {"batch_size": "full", "shuffle": False, "keep_optimizer": True}
    run = Simulation("fedavg-ft", blobs([9, 17]), train=train).run(2)
    fresh = Simulation("fedavg-ft", blobs([9, 17]), train={**train, "keep_optimizer": False})
    fresh.server.params = run.server.params
    assert equal(run.personal(0), fresh.personal(0))


def test_a_tuned_head_leaves_the_body_and_its_statistics():
    run = Simulation("fedavg-ft", blobs([9, 17]), module=Mlp(norm=True), ft_scope="head").run(1)
    head = run.context.layout.mask("head")
    tuned = run.log[0].after_agg[0]
    assert torch.equal(tuned.params[~head], run.server.params[~head])
    assert not torch.equal(tuned.params[head], run.server.params[head])
    assert torch.equal(tuned.buffers, run.server.buffers)
    assert torch.equal(tuned.counters, run.server.counters)


def test_fine_tuning_of_all_moves_statistics_of_the_copy_only():
    run = Simulation("fedavg-ft", blobs([9, 17]), module=Mlp(norm=True), buffers="private").run(1)
    own = run.log[0].after_fit[0].buffers
    assert not torch.equal(run.log[0].after_agg[0].buffers, own)
    assert torch.equal(run.states[0].buffers, own)


def tuned_in(round, run):
    """What client 0 makes of the start model in a round."""
    return run.method.personal(run.client(0, round), run.initial, "after_agg")


def test_rounds_have_streams_of_their_own():
    run = Simulation("fedavg-ft", blobs([30]), train={"batch_size": 4, "lr": 0.1})
    assert equal(tuned_in(1, run), tuned_in(1, run))
    assert not equal(tuned_in(1, run), tuned_in(2, run))


def test_its_batches_are_not_those_of_the_fit():
    train = {"batch_size": 4, "momentum": 0}
    run, fit = (Simulation(m, blobs([30]), train=train) for m in ("fedavg-ft", "fedavg"))
    assert not equal(tuned_in(1, run), fit.round().after_fit[0])


def test_final_reports_the_tuned_copy_after_the_last_round_only():
    final = Simulation("fedavg-ft", blobs([9]), rounds=3, ft_when="final").run(3)
    assert [seen.after_agg[0] is not None for seen in final.log] == [False, False, True]
    assert all(seen.after_fit[0] is not None for seen in final.log)
    every = Simulation("fedavg-ft", blobs([9]), rounds=3).run(3)
    assert all(seen.after_agg[0] is not None for seen in every.log)
    for run in (final, every):
        common = run.method.global_model(run.server, run.initial)
        assert common is not None
        assert not equal(run.log[-1].after_agg[0], common)


def test_a_newcomer_is_tuned_for_its_epochs_and_not_for_those_of_evaluation():
    newcomer = targets(1.0)[0]
    assert close(product().joined(newcomer, 0).params, [1, 1])
    assert close(product().joined(newcomer, 2).params, [1.1869, 1.1869])
    assert close(product(ft_scope="head").joined(newcomer, 1).params, [1, 1.1])


def test_only_a_tuned_head_needs_one():
    with pytest.raises(ConfigError, match=r"--model.head"):
        Simulation("fedavg-ft", targets(1.0), module=Quadratic(), ft_scope="head")
    Simulation("fedavg-ft", targets(1.0), module=Quadratic(), ft_scope="all")
