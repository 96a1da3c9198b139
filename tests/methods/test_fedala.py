"""fedala: what the specification promises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from fedbench.engine.losses import prediction_loss
from fedbench.errors import ConfigError
from fedbench.methods.fedala import FedALA, layer_names, learn_ratios, mix
from tests.methods.simulator import Mlp, Simulation, assert_same, blobs, close, equal

SIZES = [9, 17, 12]
EXACT = {"precision": "64-true", "lr": 0.1, "batch_size": 8, "epochs": 2}


def run(name="fedala", rounds=3, norm=False, clients=SIZES, **options) -> Simulation:
    harness = {key: options.pop(key) for key in ("draw", "train") if key in options}
    evaluate = options.pop("evaluate", True)
    return Simulation(name, blobs(clients), module=Mlp(norm), **harness, **options).run(rounds, evaluate)


DEFAULT = FedALA.Options()
OWN, RECEIVED = torch.tensor([0.5, -1, 2, 0]), torch.tensor([1, -0.5, 1, 0.25])


def taught(gradients, start, losses=None, most=1, **options):
    """Mixture, weights and passes for the vectors of the specification, one batch per gradient in every pass."""
    answers, seen = iter(losses or []), []

    def look(mixture, number):
        seen.append(mixture.tolist())
        return torch.tensor(next(answers, 0.0)), torch.tensor(gradients[number])

    rule = {"eta": DEFAULT.eta, "window": DEFAULT.num_pre_loss, "threshold": DEFAULT.threshold, **options}
    ratios, count = learn_ratios(look, range(len(gradients)), OWN, RECEIVED, torch.tensor(start), most=most, **rule)
    return mix(OWN, RECEIVED, ratios), ratios, count, seen


def passes(losses, gradients=1, **options):
    """Of the first learning, with a loss for each batch."""
    return taught([SLOPE] * gradients, [1.0] * 4, losses, **{"most": DEFAULT.start_max_epochs, **options})[2]


SLOPE = [0.4, -0.6, 0.2, -0.8]


@pytest.mark.parametrize(
    ("eta", "ratios", "mixture"),
    [(1, [0.8, 1, 0.7, 0.2], [0.9, -0.5, 1.3, 0.05]), (4, [0.2, 1, 1, 0.8], [0.6, -0.5, 1, 0.2])],
)
def test_one_step_on_the_weights(eta, ratios, mixture):
    found, weights, count, seen = taught([SLOPE], [1, 1, 0.5, 0.0], eta=eta)
    assert close(seen[0], [1, -0.5, 1.5, 0])
    assert close(weights, ratios)
    assert close(found, mixture)
    assert count == 1


def test_every_batch_sees_the_mixture_of_the_step_before():
    _, weights, _, seen = taught([SLOPE, [1.0, 0.0, 0.0, 0.0]], [1, 1, 0.5, 0.0])
    assert close(seen[1], [0.9, -0.5, 1.3, 0.05])
    assert close(weights, [0.3, 1, 0.7, 0.2])


LOSSES = [1, 0.9, 0.82, 0.76, 0.72, 0.69, 0.67, 0.66, 0.655, 0.652, 0.651]


def test_the_first_learning_ends_when_the_loss_settles():
    assert passes(LOSSES) == 11
    assert torch.tensor(LOSSES[1:], dtype=torch.float64).std(correction=0) == pytest.approx(0.080350, abs=5e-7)
    assert passes([*LOSSES, 0.65], threshold=0.08035) == 12
    assert passes(LOSSES, threshold=0.0803509) == 11
    assert passes([0.5] * 20) == 11
    assert passes([0.5] * 20, window=4) == 5
    assert passes([float(i % 2) for i in range(200)]) == 100
    assert passes([float(i % 2) for i in range(200)], most=7) == 7


def test_the_loss_that_counts_is_that_of_a_passs_last_batch():
    noisy = [value for i in range(20) for value in (float(i), 0.5)]
    assert passes(noisy, gradients=2) == 11


@given(st.lists(st.tuples(*[st.floats(-9, 9, width=32)] * 4), min_size=1, max_size=4), st.floats(0, 5, width=32))
@settings(max_examples=50)
def test_mixtures_lie_between_own_and_received(gradients, eta):
    found, weights, _, _ = taught([list(g) for g in gradients], [1, 1, 0.5, 0.0], eta=eta)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert (found >= torch.minimum(OWN, RECEIVED) - 1e-6).all()
    assert (found <= torch.maximum(OWN, RECEIVED) + 1e-6).all()


def test_without_learning_it_is_fedavg():
    mine, plain = (run(name, norm=True, train=EXACT, **o) for name, o in (("fedala", {"eta": 0}), ("fedavg", {})))
    for one, other in zip(mine.log, plain.log, strict=True):
        for i in range(3):
            assert torch.allclose(one.after_agg[i].params, other.after_agg[i].params, rtol=0, atol=1e-12)
            assert torch.allclose(one.after_fit[i].params, other.after_fit[i].params, rtol=0, atol=1e-12)


def test_weights_of_zero_over_all_layers_are_local_training():
    mine, alone = Simulation("fedala", blobs(SIZES), eta=0, num_layers=2), Simulation("local", blobs(SIZES))
    for simulation in (mine, alone):
        simulation.round()
    for i, state in mine.states.items():
        mine.keep(i, **{**vars(state), "ratios": torch.zeros(mine.context.layout.size)})
    for simulation in (mine, alone):
        simulation.round()
        simulation.round()
    assert_same(mine, alone, points=("after_fit",))
    assert all(equal(mine.log[2].after_agg[i], mine.log[2].after_fit[i]) for i in range(3))


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_lower_layers_and_statistics_are_the_received_ones(num_layers):
    mine = run(norm=True, num_layers=num_layers)
    names = ["body.0", "body.1", "head"][-num_layers:]
    for i in range(3):
        found = mine.method.receive(mine.client(i, 3))
        got = mine.log[2].after_agg[i]
        for slot in mine.context.layout.params:
            part = slice(slot.start, slot.stop)
            same = torch.equal(got.params[part], mine.server.params[part])
            if slot.name != "body.0.bias":  # which BatchNorm makes useless, so that it hardly moves
                assert same == (slot.name.rpartition(".")[0] not in names), slot.name
        assert torch.equal(got.buffers, mine.server.buffers)
        assert len(found.ratios) == sum(
            s.size for s in mine.context.layout.params if s.name.rpartition(".")[0] in names
        )


def test_weights_are_learned_on_a_random_part_of_the_images_in_evaluation_mode():
    """Recomputed by hand for the second round, in which learning makes several passes."""
    mine = run(rounds=2, norm=True, start_max_epochs=3, threshold=1e-9)
    client, learner, head = mine.client(1, 2), mine.learner, mine.context.layout.mask("head")
    own, shared = mine.log[1].after_fit[1].params, mine.server.params
    ratios = mine.method.receive(mine.client(1, 2)).ratios
    before = mine.states[1].ratios
    drawn = torch.randperm(17, generator=client.generator("weights"))[:13]
    expected = before.clone()
    for index in drawn.split(8):
        mixed = shared.clone()
        mixed[head] = own[head] + (shared - own)[head] * expected
        learner.flat.load(mine.log[1].after_agg[1].replace(params=mixed))
        learner.module.eval()
        loss = prediction_loss(learner.task)(learner.module, client.train.batch(index))
        slope = torch.cat([p.flatten() for p in torch.autograd.grad(loss, learner.flat.parameters)])
        expected = (expected - (slope * (shared - own))[head]).clamp(0, 1)
    assert torch.allclose(ratios, expected, atol=1e-6)
    assert not torch.equal(ratios, before)


def test_first_learning_repeats_and_later_ones_do_not():
    mine = run(rounds=4, threshold=1e-9, start_max_epochs=4, num_pre_loss=2, draw=lambda t: [0, 1, 2] if t < 4 else [0])
    assert "passes" not in {name for _, name in mine.log[0].traces}
    assert [mine.log[t].traces[0, "passes"] for t in (1, 2, 3)] == [4, 1, 1]


def test_the_start_is_a_clients_second_participation():
    mine = run(rounds=4, start_max_epochs=2, draw=lambda t: [0, 1] if t < 3 else [0, 1, 2])
    assert (2, "passes") not in mine.log[2].traces
    assert mine.log[3].traces[2, "passes"] == 2
    two = run(rounds=2, draw=lambda t: [0, 1])
    assert torch.equal(two.log[1].after_agg[2].params, two.server.params)
    assert not torch.equal(two.log[1].after_agg[1].params, two.server.params)


def test_a_client_trains_from_what_was_evaluated():
    mine = run(rounds=2)
    shown = mine.log[1].after_agg[1]
    received = mine.method.receive(mine.client(1, 2))
    assert equal(shown, received)
    mine.round()
    assert torch.equal(mine.states[1].ratios, received.ratios)


def test_who_sits_out_keeps_model_and_weights():
    mine = run(rounds=4, draw=lambda t: [0, 1, 2] if t < 3 else [0, 1], evaluate=False)
    other = run(rounds=2, evaluate=False)
    assert all(torch.equal(getattr(mine.states[2], key), getattr(other.states[2], key)) for key in ("local", "ratios"))


@pytest.mark.parametrize("ratio", [0.8, 0.01])
def test_a_client_with_one_image_learns_too(ratio):
    mine = run(clients=[1, 9], norm=True, sample_ratio=ratio)
    assert mine.log[1].traces[0, "passes"] > 1


def test_the_share_of_images_is_a_decimal():
    made = Simulation("fedala", blobs([50]), sample_ratio=0.58, train={"batch_size": "full"})
    (batch,) = made.method._batches(made.client(0, 1))
    assert len(batch) == len(set(batch.tolist())) == 29  # 0.58 * 50 is 28.999999999999996
    (other,) = made.method._batches(made.client(0, 2))
    assert sorted(batch.tolist()) != sorted(other.tolist())


def test_more_layers_than_there_are_are_refused():
    with pytest.raises(ConfigError, match="num_layers = 4: the model has 3 layers"):
        run(num_layers=4, norm=True, rounds=0)
    run(num_layers=3, norm=True, rounds=0)


def test_the_classifier_is_the_top_layer_wherever_it_is_made():
    class HeadFirst(Mlp):
        def __init__(self):
            super().__init__()
            body, head = self.body, self.head
            del self.body, self.head
            self.head, self.body, self.scale = head, body, nn.Parameter(torch.ones(()))

    assert layers_of(HeadFirst()) == ["", "body.0", "head"]


class Backwards(Mlp):
    """Layers made in another order than they work; one of them works through the parameters of its child."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first, self.head = nn.Linear(6, 5), Outer(), nn.Linear(5, 4)
        del self.body

    def forward(self, x):
        return self.head(self.last(self.first(x)))


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(())), nn.Linear(6, 6)

    def forward(self, x):
        return F.linear(x, self.inner.weight, self.inner.bias) * self.scale


def layers_of(module) -> list[str]:
    made = Simulation("fedala", blobs([9]), module=module)
    return layer_names(made.context.layout, made.learner.forward_order(made.client(0, 1).train))


def test_layers_are_in_the_order_of_their_work():
    assert layers_of(Backwards()) == ["first", "first.inner", "last", "head"]
    made = Simulation("fedala", blobs(SIZES), module=Backwards(), num_layers=2)
    top = made.method.top(made.client(0, 1)).mask
    for slot in made.context.layout.params:
        assert top[slot.start : slot.stop].unique().tolist() == [not slot.name.startswith("first")]


def test_bytes_are_fedavgs():
    mine = run(norm=True)
    size = 4 * (mine.context.layout.size + mine.context.layout.buffer_size)
    assert all(set(seen.up.values()) == set(seen.down.values()) == {size} for seen in mine.log)


def test_traces():
    mine = run(rounds=2)
    assert mine.log[1].traces[0, "aggregation_weight"] == pytest.approx(float(mine.states[0].ratios.mean()))
