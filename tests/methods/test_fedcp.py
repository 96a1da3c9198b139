"""fedcp: what the specification promises."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.methods.fedcp import Policy, discrepancy
from tests.methods.simulator import Mlp, Simulation, assert_near, assert_same, blobs, close, equal

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
exact = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731
PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "precision": "64-true"}


def policy(tau: float = 1.0, noisy: bool = False) -> Policy:
    """The one on paper, with global head weight (0, 1), (1, 0)."""
    other = nn.Linear(2, 2, bias=False)
    found = Policy(2, other, tau, noisy, 0).double()
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


def test_noise_is_drawn_in_training_only():
    found, z = policy(noisy=True), exact([[2, 1], [2, 1]])
    drawn, again = (found.train().shares(z)[0] for _ in range(2))
    assert not torch.equal(drawn, again)
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(found.eval().shares(z)[0], policy().shares(z)[0])
    torch.manual_seed(0)
    many = torch.stack([found.train().shares(exact([[0, 0]]))[0] for _ in range(2000)])
    assert float(many.mean()) == pytest.approx(0.5, abs=0.02)
    # a difference of two Gumbel draws is logistic, so a share of equal scores is uniform
    assert float(many.var()) == pytest.approx(1 / 12, abs=0.01)


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


@pytest.mark.parametrize("form", ["softmax", "gumbel"])
def test_gumbel_alone_has_noise_and_in_training_only(form):
    run = Simulation("fedcp", blobs([9]), policy_form=form)
    (made,) = (part for part in run.learner.flat.module.modules() if isinstance(part, Policy))
    features = torch.ones(4, made.vector.numel())
    shares = [made.train(training).shares(features)[0] for training in (True, False, False)]
    assert torch.equal(shares[0], shares[1]) == (form == "softmax")
    assert torch.equal(shares[1], shares[2])


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
    found = Policy(512, nn.Linear(512, 10), 1.0, False, 0)
    assert sum(p.numel() for n, p in found.named_parameters() if not n.startswith("other")) == 527360
