"""centralized: what the specification promises."""

import torch

from fedbench.engine.fit import Amount
from fedbench.methods.messages import weights_of
from fedbench.runtime.exchange import POOLED
from tests.methods.simulator import Mlp, Product, Quadratic, Simulation, blobs, close, equal, targets

STEP = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1, "precision": "64-true"}


def one_step(method, **options):
    clients = targets(1.0, 5.0, repeat=[1, 3])
    return Simulation(method, clients, module=Quadratic(), train=STEP, **options).run(1).server.params


def test_a_pooled_step_is_the_weighted_mean_of_the_clients_steps():
    assert close(one_step("centralized"), [0.4])
    assert close(one_step("fedavg"), [0.4])
    assert close(one_step("fedavg", weighting="uniform"), [0.3])


def test_one_client_is_local_training_with_a_kept_optimizer():
    train = {"batch_size": "full"}
    pooled = Simulation("centralized", blobs([12]), module=Mlp(norm=True), train=train).run(3)
    local = Simulation("local", blobs([12]), module=Mlp(norm=True), train={**train, "keep_optimizer": True}).run(3)
    for one, two in zip(pooled.log, local.log, strict=True):
        assert torch.allclose(one.after_fit[POOLED].params, two.after_fit[0].params, rtol=0, atol=1e-6)
        assert torch.allclose(one.after_fit[POOLED].buffers, two.after_fit[0].buffers, rtol=0, atol=1e-6)


def test_the_optimizer_is_kept_by_default():
    train = {**STEP, "momentum": 0.5}
    kept = Simulation("centralized", targets(2.0), module=Quadratic(), train=train).run(4)
    assert close([seen.after_fit[POOLED].params for seen in kept.log], [0.2, 0.48, 0.772, 1.0408])
    dropped = Simulation("centralized", targets(2.0), module=Quadratic(), train={**train, "keep_optimizer": False})
    assert not close(dropped.run(2).server.params, [0.48])


def test_the_order_of_the_clients_does_not_matter_with_full_batches():
    clients = blobs([7, 12, 5])
    one = Simulation("centralized", clients, train=STEP).run(3)
    other = Simulation("centralized", clients[::-1], train=STEP).run(3)
    assert torch.allclose(one.server.params, other.server.params, rtol=0, atol=1e-12)


def evaluates_the_global_model(run):
    """Whether a client's model is the memory of the global one, so that a host evaluates it once."""
    client = run.client(0, 2)
    personal = run.method.personal(client, run.method.receive(client), "after_agg")
    return personal.is_same(run.method.global_model(run.server, run.initial))


def test_everyone_evaluates_the_one_model_and_nothing_is_counted():
    run = Simulation("centralized", blobs([7, 12]), module=Mlp(norm=True), draw=lambda t: [1]).run(2)
    for seen in run.log:
        assert list(seen.after_fit) == [POOLED]
        assert all(equal(w, seen.after_fit[POOLED]) for w in seen.after_agg.values())
        assert seen.up[POOLED] == seen.down[POOLED] == 0
    assert equal(run.method.global_model(run.server, run.initial), run.log[1].after_fit[POOLED])
    assert evaluates_the_global_model(run)
    assert run.method.after_fit == "global"


def test_fine_tuning_is_each_clients_own_and_thrown_away():
    plain = Simulation("centralized", blobs([7, 12]), module=Mlp(norm=True)).run(3)
    tuned = Simulation("centralized", blobs([7, 12]), module=Mlp(norm=True), ft_epochs=2).run(3)
    for one, two in zip(plain.log, tuned.log, strict=True):
        assert equal(weights_of(one.uploads[POOLED]), weights_of(two.uploads[POOLED]))
        assert not equal(two.after_agg[0], two.after_agg[1])
    assert equal(tuned.personal(1), tuned.personal(1))
    assert not evaluates_the_global_model(tuned)


def test_fine_tuning_draws_its_batches_from_a_stream_of_its_own():
    run = Simulation("centralized", blobs([17, 9]), ft_epochs=1).run(1)
    client, start = run.client(0, 1), run.method.global_model(run.server, run.initial)
    tuned = {stream: client.fit(start, client.train, stream, Amount(epochs=1)) for stream in ("ft", "fit")}
    assert equal(run.personal(0), tuned["ft"])
    assert not equal(tuned["ft"], tuned["fit"])


def test_fine_tuning_uses_a_fresh_optimizer_on_the_clients_own_images():
    train = {**STEP, "momentum": 0.5, "lr": 0.1}
    run = Simulation("centralized", targets(1.0, 5.0, repeat=[1, 3]), module=Quadratic(), train=train, ft_epochs=2).run(
        1
    )
    w, v = 0.4, 0.0
    for _ in range(2):
        v = 0.5 * v + (w - 5)
        w -= 0.1 * v
    assert close(run.log[0].after_agg[1].params, [w])


def test_a_newcomer_tunes_the_model_for_its_epochs_only():
    train = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1}
    run = Simulation("centralized", targets(1.0), module=Product(), train=train, ft_epochs=5)
    assert close(run.joined(targets(1.0)[0], 0).params, [1, 1])
    assert close(run.joined(targets(1.0)[0], 2).params, [1.1869, 1.1869])
