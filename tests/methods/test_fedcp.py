"""fedcp: what the specification promises."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.methods.fedcp import Policy, discrepancy, with_noise
from fedbench.module import seeds
from tests.methods.simulator import Mlp, Simulation, assert_near, assert_same, blobs, close, equal

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
exact = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731
PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "precision": "64-true"}


def policy(tau: float = 1.0) -> Policy:
    """The one on paper, with global head weight (0, 1), (1, 0)."""
    other = nn.Linear(2, 2, bias=False)
    found = Policy(2, other, tau, 0).double()
    with torch.no_grad():
        other.weight.copy_(exact([[0, 1], [1, 0]]))
        found.linear.weight.copy_(exact([[1, 0], [0, 1], [0, 0], [1, 1]]))
        found.linear.bias.zero_()
        found.vector.copy_(F.normalize(exact([[1, 2], [2, -6]]).sum(0), dim=0))
    return found


def test_the_policy_on_paper():
    found, z = policy(), exact([[2, 1]])
    assert close(found.vector, [0.6, -0.8])
    assert close(found.norm(found.linear(z * found.vector)).detach(), [1.386737, -1.386737, -0.277347, 0.277347])
    personal, common = found.shares(z)
    assert close(personal.detach(), [0.800071, 0.431104])
    assert close(common.detach(), [0.199929, 0.568896])
    assert close(policy(tau=0.5).shares(z)[0].detach(), [0.941225, 0.364776])
    head = nn.Linear(2, 2, bias=False).double()
    head.weight.data = exact([[1, 2], [2, -6]])
    assert close(found.after(head, (z,), head(z)).detach(), [3.031246, 1.013516])


def gumbel(client, steps: int, size: int, width: int) -> torch.Tensor:
    """Standard Gumbel noise of the stream `policy`, in single precision."""
    drawn = torch.rand(steps, size, width, generator=seeds.generator(*client, "policy"))
    return -(-drawn.log()).log()


def test_noise_is_that_of_a_stream_of_its_own():
    """Two epochs of nine samples in batches of eight are four steps."""
    run = Simulation("fedcp", blobs([9]), policy_form="gumbel").run(2)
    for round in (1, 2):
        client = run.client(0, round)
        noise = run.method.noise(client)["noise"]
        assert torch.allclose(noise, gumbel((0, 0, round), 4, 8, 10))
    many = gumbel((0, 0, 3), 1, 2000, 2)
    # a difference of two Gumbel draws is logistic, so a share of equal scores is uniform
    share = many[0].softmax(1)[:, 0]
    assert float(share.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(share.var()) == pytest.approx(1 / 12, abs=0.01)


def test_every_step_has_the_noise_that_follows():
    found, z = policy(), exact([[2, 1], [2, 1]])
    s = SimpleNamespace(noise=torch.randn(3, 4, 4, dtype=torch.float64), step=torch.zeros(1, dtype=torch.int64))
    net, plain = nn.ModuleDict({"policy": found}), found.shares(z)[0]
    scores = found.norm(found.linear(z * found.vector)).relu()
    for number in (0, 1, 2, 0):
        with with_noise(net, (z, torch.zeros(2)), s):
            drawn = found.shares(z)[0]
        assert torch.equal(drawn, (scores + s.noise[number, :2]).unflatten(1, (2, -1)).softmax(1)[:, 0])
        assert torch.equal(found.shares(z)[0], plain)


@pytest.mark.parametrize("lam", [5.0, 0.0])
def test_the_stream_of_the_fit_is_as_without_noise(lam):
    """Dropout draws the same numbers, so that noise of 0 is the softmax, to the bit."""
    net = lambda: Mlp(dropout=0.5)  # noqa: E731
    train = {"epochs": 3}
    make = lambda form: Simulation("fedcp", blobs([9, 17]), module=net(), train=train, lam=lam, policy_form=form)  # noqa: E731
    noisy, silent, plain = make("gumbel"), make("gumbel"), make("softmax")
    drawn = type(silent.method).noise
    silent.method.noise = lambda client: {k: v.zero_() for k, v in drawn(silent.method, client).items()}
    assert_same(silent.run(2), plain.run(2))
    assert not equal(noisy.run(2).log[0].after_fit[0], plain.log[0].after_fit[0])


def test_the_discrepancy_on_paper():
    x, y = exact([[0, 0], [3, 1]]).requires_grad_(), exact([[1, 0], [4, 4]])
    found = discrepancy(x, y)
    assert close(found.detach(), [0.485411])
    assert close(torch.autograd.grad(found, x)[0], [-0.026143, -0.077516, -0.133456, -0.232186])
    assert abs(float(discrepancy(y, y))) < 1e-12
    assert torch.allclose(discrepancy(y, x.detach()), found.detach())


def test_the_private_head_alone_is_fedper():
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME, **o).run(3)  # noqa: E731
    run, per = make("fedcp", policy_form="personal", lam=0), make("fedper")
    assert_same(run, per)
    assert [seen.up for seen in run.log] == [seen.up for seen in per.log]


def test_steps_of_several_clients_have_the_noise_of_the_loop():
    make = lambda engine: Simulation(  # noqa: E731
        "fedcp", blobs([16, 16, 17]), train=PLAIN | {"engine": engine, "width": 3}, policy_form="gumbel", lam=0
    ).run(2)
    one, other = make("loop"), make("compiled")
    assert not other.learner.row_engine.remarks
    assert_near(one, other)


def test_added_layers_are_drawn_in_double_precision():
    run = Simulation("fedcp", blobs([9]), train=PLAIN)
    stream, bound = torch.Generator().manual_seed(0), 1 / 5**0.5
    for name, shape in (("policy.linear.weight", (10, 5)), ("policy.linear.bias", (10,))):
        drawn = (2 * torch.rand(shape, generator=stream, dtype=torch.float64) - 1) * bound
        assert torch.allclose(run.learner.flat.module.get_parameter(name), drawn, rtol=0, atol=1e-15)


@pytest.mark.parametrize("form", ["softmax", "personal"])
def test_the_first_step_of_a_round_feels_no_discrepancy(form):
    train = PLAIN | {"batch_size": "full", "epochs": 1}
    make = lambda lam: Simulation("fedcp", blobs([9, 17]), train=train, lam=lam, policy_form=form).run(3)  # noqa: E731
    assert_near(make(5.0), make(0.0), tolerance=1e-10)
    more = train | {"epochs": 2}
    one, other = (Simulation("fedcp", blobs([9, 17]), train=more, lam=lam, policy_form=form).run(1) for lam in (5.0, 0))
    assert not torch.allclose(one.log[0].after_fit[0].params, other.log[0].after_fit[0].params)


def test_equal_heads_give_the_policy_no_gradient():
    run = Simulation("fedcp", blobs([9]), train=PLAIN | {"batch_size": "full", "epochs": 1}).run(1)
    own = run.context.layout.under(["policy.linear", "policy.norm"]).params
    fit = run.log[0].after_fit[0].params
    assert torch.allclose(fit[own], run.initial.params[own], rtol=0, atol=1e-12)
    new = Simulation("fedcp", blobs([9]), train=PLAIN)
    scores = new.learner.logits(new.method.receive(new.client(0, 0)), new.data[0])
    plain = Mlp().double()
    with torch.no_grad():
        assert torch.allclose(scores, plain(new.data[0].x) + plain.head.bias)


@pytest.mark.parametrize("mix", [0.0, 0.5, 1.0])
def test_the_uploaded_head_is_a_mixture(mix):
    run = Simulation("fedcp", blobs([9, 17]), module=Mlp(norm=True), train=PLAIN, head_mix=mix).run(2)
    layout, head, other = run.context.layout, run.context.layout.mask("head"), run.method.global_head
    received, fit = run.log[0].after_agg[0], run.log[1].after_fit[0]
    assert torch.equal(fit.params[other], received.params[other])
    sent = run.method.shared_params.put(torch.zeros(layout.size, dtype=torch.float64), run.log[1].uploads[0].params)
    assert torch.allclose(sent[other], mix * fit.params[head] + (1 - mix) * received.params[other])
    assert torch.equal(run.states[0].params, fit.params[head])
    assert torch.equal(run.log[1].after_agg[0].params[head], fit.params[head])
    if mix == 0:
        assert torch.allclose(run.log[1].after_agg[0].params[other], run.initial.params[other])


def test_the_policys_input_follows_the_own_head():
    run = Simulation("fedcp", blobs([9, 17, 12]), module=Mlp(norm=True), draw=SOME).run(2)
    slot, _ = run.context.layout.linear_head()
    for i in range(3):
        agg = run.log[1].after_agg[i]
        rows = agg.params[slot.start : slot.stop].view(4, 5)
        vector = run.method.vector.take(agg.buffers)
        assert torch.allclose(vector, rows.sum(0) / rows.sum(0).norm())
    fit, before = run.log[1].after_fit[0], run.log[0].after_agg[0]
    assert torch.equal(run.method.vector.take(fit.buffers), run.method.vector.take(before.buffers))
    assert float(run.method.vector.take(run.method.idle_model(run.client(2, 2)).buffers).norm()) == pytest.approx(1)
    assert equal(run.personal(0), run.personal(0))


def test_bytes_are_those_of_body_head_and_policy():
    run = Simulation("fedcp", blobs([9, 17]), module=Mlp(norm=True)).run(2)
    size = 4 * (79 + 2 * 25 + 6 * 5)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {size} for seen in run.log)
    assert run.method.global_model(run.server, run.initial) is None
    found = Policy(512, nn.Linear(512, 10), 1.0, 0)
    assert sum(p.numel() for n, p in found.named_parameters() if not n.startswith("other")) == 527360
