"""fedprox: what the specification promises."""

from types import SimpleNamespace

import pytest
import torch

from fedbench.methods.fedprox import proximal_pull
from tests.methods.simulator import Mlp, Quadratic, Simulation, blobs, close, equal, targets

STEP = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": "full", "epochs": 1}


def test_the_pull_is_the_gradient_of_half_mu_times_the_squared_distance():
    w = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    anchor, mu = torch.tensor([0.5, -1.0, 0.5]), torch.tensor(0.5)
    penalty = mu / 2 * (w - anchor).square().sum()
    penalty.backward()
    g = torch.tensor([0.2, 0.4, -0.1])
    expected = g + w.grad
    proximal_pull(g, w.detach(), SimpleNamespace(anchor=anchor, mu=mu))
    assert close(penalty.detach(), [0.3125])
    assert torch.equal(g, expected)
    assert close(w.detach() - 0.1 * g, [0.955, -1.99, 0.51])


def test_steps_of_one_round():
    clients, module = targets((1.0, -1.0)), Quadratic((0.0, 0.0), (1.0, 2.0))
    for epochs, expected in ((1, [0.1, -0.2]), (2, [0.18, -0.34])):
        module.w.data = torch.zeros(2)
        run = Simulation("fedprox", clients, module=module, train={**STEP, "epochs": epochs}, mu=1.0).run(1)
        assert close(run.server.params, expected)


def test_the_pull_goes_through_momentum():
    clients, module = targets((1.0, 0.0, -1 / 3)), Quadratic((0.0, 0.0, 0.0), (1.0, 2.0, 3.0))
    train = {**STEP, "epochs": 2, "momentum": 0.9}
    assert close(
        Simulation("fedprox", clients, module=module, train=train, mu=0.5).run(1).server.params, [0.275, 0, -0.255]
    )


@pytest.mark.parametrize("mu", [0.01, 1.0, 5.0])
def test_one_full_batch_step_feels_no_pull(mu):
    train = {**STEP, "precision": "64-true"}
    prox = Simulation("fedprox", blobs([9, 17]), train=train, mu=mu).run(3)
    plain = Simulation("fedavg", blobs([9, 17]), train=train).run(3)
    assert torch.allclose(prox.server.params, plain.server.params, rtol=0, atol=1e-12)


def test_the_way_shrinks_as_the_pull_grows():
    way = []
    for mu in (0.0, 0.1, 1.0, 3.0, 9.0):
        run = Simulation(
            "fedprox", targets((1.0, -1.0)), module=Quadratic((0.0, 0.0)), train={**STEP, "epochs": 200}, mu=mu
        )
        way.append(float(run.run(1).server.params.norm()))
    assert way == sorted(way, reverse=True)
    assert way[-1] == pytest.approx(way[0] / 10, rel=1e-4)


def test_the_reported_loss_has_no_pull():
    def loss(mu):
        run = Simulation("fedprox", targets(1.0), module=Quadratic(), train=STEP | {"epochs": 2}, mu=mu)
        run.round()
        return run.learner.ledger.loss

    assert loss(2.0) == pytest.approx((0.5 + 0.405) / 2, abs=1e-6)


def test_adaptive_mu():
    method = Simulation("fedprox", targets(0.0), module=Quadratic(), mu=1.0, mu_schedule="adaptive")
    seen = []
    for loss in (2.0, 1.8, 1.9, 1.7, 1.6, 1.5, 1.4, 1.3, 1.35):
        method.method.adapt(method.server, loss)
        seen.append(method.server.mu)
    assert close(seen, [1, 1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.0, 1.1])


def test_adaptive_mu_never_falls_below_zero_and_equal_losses_count_as_not_risen():
    run = Simulation("fedprox", targets(0.0), module=Quadratic(), mu=0.05, mu_schedule="adaptive")
    for _ in range(6):
        run.method.adapt(run.server, 1.0)
    assert run.server.mu == 0


def test_the_adaptive_loss_is_that_of_the_new_model_on_all_clients():
    clients = blobs([9, 17, 30])
    run = Simulation("fedprox", clients, mu_schedule="adaptive", draw=lambda t: [0, 1]).run(2)
    new = run.log[-1].after_agg[0]
    losses = [run.learner.loss(new, run.client(i, 2).train) for i in range(3)]
    assert run.server.last_loss == pytest.approx((9 * losses[0] + 17 * losses[1] + 30 * losses[2]) / 56, rel=1e-9)
    assert run.log[-1].traces[-1, "mu"] == run.server.mu


def test_the_extra_pass_is_counted():
    run = Simulation("fedprox", blobs([9, 17]), mu_schedule="adaptive")
    assert run.method.question(run.server) is None
    run.round()
    client = run.client(0, 1)
    client.message = run.method.question(run.server)
    assert client.message.nbytes == 4 * run.context.layout.size
    assert run.method.answer(client).nbytes == 4
    model = 4 * run.context.layout.size
    assert (run.record.bytes_down, run.record.bytes_up) == (2 * (model + model), 2 * (model + 4))
    constant = Simulation("fedprox", blobs([9, 17])).run(1)
    assert constant.method.question(constant.server) is None


def work_of(run) -> dict[int, int]:
    """Epochs (or steps) that the stragglers of the round under way are told to make."""
    messages = {i: run.method.send(run.server, i) for i in run.server.participants}
    return {i: int(message.work) for i, message in messages.items() if "work" in message}


def test_stragglers_are_drawn_from_the_servers_stream():
    def work(seed=0, **options):
        run = Simulation("fedprox", blobs([9] * 10), train={"epochs": 4}, straggler_fraction=0.5, seed=seed, **options)
        found = []
        for t in (1, 2, 3):
            run.server.round, run.server.participants = t, list(range(10))
            found.append(work_of(run))
        return found

    drawn = work()
    assert [len(w) for w in drawn] == [5, 5, 5]
    assert all(1 <= epochs <= 4 for w in drawn for epochs in w.values())
    assert drawn == work(straggler_policy="drop")
    assert len({tuple(w) for w in drawn}) > 1
    assert drawn != work(seed=1)


@pytest.mark.parametrize(
    ("fraction", "clients", "count"), [(0.9, 10, 9), (0.3, 10, 3), (0.5, 5, 2), (0.0, 5, 0), (1.0, 3, 3)]
)
def test_the_number_of_stragglers(fraction, clients, count):
    run = Simulation("fedprox", blobs([9] * clients), straggler_fraction=fraction)
    run.server.round, run.server.participants = 1, list(range(clients))
    assert len(work_of(run)) == count


def test_partial_work_is_less_work_and_is_kept_or_dropped():
    clients = blobs([16, 16, 16])
    train = {"epochs": 6, "batch_size": 16}
    full = Simulation("fedavg", clients, train=train).run(1)
    kept = Simulation("fedprox", clients, train=train, mu=0, straggler_fraction=0.4).run(1)
    dropped = Simulation("fedprox", clients, train=train, mu=0, straggler_fraction=0.4, straggler_policy="drop").run(1)
    (slow, epochs), *_ = work_of(kept).items()
    short = Simulation("fedavg", clients, train={**train, "epochs": epochs}).run(1)
    for run in (kept, dropped):
        assert equal(run.log[0].after_fit[slow], short.log[0].after_fit[slow])
    others = [i for i in range(3) if i != slow]
    mean = sum(full.log[0].after_fit[i].params.double() for i in others) / 2
    assert torch.allclose(dropped.server.params.double(), mean, atol=1e-7)
    assert not torch.equal(kept.server.params, dropped.server.params)


def test_stragglers_count_steps_where_the_work_is_in_steps():
    run = Simulation("fedprox", blobs([16] * 4), train={"steps": 7}, mu=0, straggler_fraction=1.0)
    run.round()
    assert all(1 <= steps <= 7 for steps in work_of(run).values())
    assert run.record.steps == sum(work_of(run).values())


def test_when_all_are_dropped_the_model_stays():
    run = Simulation("fedprox", blobs([16] * 2), straggler_fraction=1.0, straggler_policy="drop").run(1)
    assert torch.equal(run.server.params, run.initial.params)


def test_the_anchor_is_the_received_model_of_this_round():
    run = Simulation("fedprox", targets(1.0), module=Quadratic(), train=STEP | {"epochs": 2}, mu=1.0).run(2)
    first, second = (float(seen.after_agg[0].params) for seen in run.log)
    w = first
    for _ in range(2):
        w -= 0.1 * ((w - 1) + (w - first))
    assert second == pytest.approx(w, abs=1e-6)


def test_diverging_pulls_are_warned_of():
    assert list(Simulation("fedprox", blobs([9]), train={"lr": 1.0}, mu=2.0).method.check())
    assert not list(Simulation("fedprox", blobs([9]), train={"lr": 0.1}, mu=2.0).method.check())


def test_bytes_are_fedavgs():
    run = Simulation("fedprox", blobs([9, 12]), module=Mlp(norm=True), straggler_fraction=0.5).run(1)
    size = 4 * (run.context.layout.size + run.context.layout.buffer_size)
    assert set(run.log[0].up.values()) == set(run.log[0].down.values()) == {size}
