"""pfedgate: what the specification promises."""

from itertools import product
from math import ceil

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn
from torch.func import functional_call

from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods.pfedgate import Gate, GateTraining, PFedGate, SwitchNorm, copy_of_state, shorten
from fedbench.methods.server import Context
from fedbench.module.blocks import select_blocks
from fedbench.module.layout import Layout
from fedbench.module.weights import Weights
from tests.methods.simulator import Data, Mlp, Simulation, accuracy_of, blobs, close, equal
from tests.runtime.rounds import small

SIZES = [9, 17, 12]
SPARSE = {"sparsity": 0.5, "blocks_per_tensor": 3}
PARAMS = 6 * 5 + 5 + 5 * 4 + 4


def run(name="pfedgate", rounds=2, norm=False, clients=None, module=None, **options) -> Simulation:
    fixed = {k: options.pop(k) for k in ("draw", "train", "seed") if k in options}
    if name == "pfedgate":
        options = {"gate_norm": "none", **options}
    return Simulation(name, clients or blobs(SIZES), module=module or Mlp(norm), **fixed, **options).run(rounds)


def method(clients=3, batch_size=8, **options) -> PFedGate:
    context = Context(Layout((), (), ()), TrainConfig(batch_size=batch_size), 0, 10, 4, (4,) * clients)
    made = PFedGate(PFedGate.Options(**options), context)
    made.check()
    return made


def shared(mine: Simulation) -> Weights:
    return Weights(mine.server.params, mine.server.buffers, mine.server.counters)


def test_factors_of_a_batch():
    gate = Gate((2,), 2, switch=False).double()
    gate.linear.weight.data, gate.linear.bias.data = torch.eye(2).double(), torch.zeros(2).double()
    gate.batchnorm.weight.data = torch.tensor([1.0, 2.0]).double()
    gate.batchnorm.bias.data = torch.tensor([0.0, 0.5]).double()
    gate.batchnorm.running_mean, gate.batchnorm.running_var = torch.tensor([[0.5, 0.0], [4.0, 1.0]]).double()
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 1.0]]).double()
    assert close(gate.eval()(x).detach(), [0.592433, 0.698527])
    assert close(gate.train()(x).detach(), [0.493682, 0.591101])


def test_switchable_normalisation():
    x = torch.tensor([[[[1.0, 3.0]], [[0.0, 2.0]]], [[[2.0, 6.0]], [[4.0, 4.0]]]]).double()
    norm = SwitchNorm(2).double().train()
    trained = [-0.631168, 0.450834, -1.054090, 0.210818, -0.680413, 0.952579, 0.321633, 0.321633]
    assert close(norm(x).detach(), trained)
    assert close(norm.running_mean, [0.3, 0.25])
    assert close(norm.running_var, [0.6, 0.325])
    norm.eval()
    later = [-0.209728, 1.363234, -0.742293, 0.877255, -0.374095, 1.577703, 1.041061, 1.041061]
    assert close(norm(x).detach(), later)
    assert close(norm.running_mean, [0.3, 0.25])


def drawn(module: nn.Module) -> nn.Module:
    """The module with random numbers."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=draw))
        for name, buffer in module.named_buffers():
            if name.endswith(("mean", "var")):
                buffer.copy_(torch.rand(buffer.shape, dtype=torch.float64, generator=draw) + 0.5)
    return module


@pytest.mark.parametrize("training", [True, False])
def test_statistics_are_mixed_as_learned(training):
    norm = drawn(SwitchNorm(3)).train(training)
    a, b = (torch.softmax(mix.detach(), 0).tolist() for mix in (norm.mean_mix, norm.var_mix))
    x = 2 * torch.randn(4, 3, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 1
    mean, square = x.mean((2, 3)), x.var((2, 3)) + x.mean((2, 3)) ** 2
    batch = mean.mean(0), square.mean(0) - mean.mean(0) ** 2
    batch_mean, batch_var = batch if training else (norm.running_mean.clone(), norm.running_var.clone())
    expected = torch.empty_like(x)
    for n, c in product(range(4), range(3)):
        layer = mean[n].mean(), square[n].mean() - mean[n].mean() ** 2
        centre = a[0] * mean[n, c] + a[1] * layer[0] + a[2] * batch_mean[c]
        spread = b[0] * x[n, c].var() + b[1] * layer[1] + b[2] * batch_var[c]
        expected[n, c] = (x[n, c] - centre) / (spread + 1e-5).sqrt() * norm.weight[c] + norm.bias[c]
    assert torch.allclose(norm(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("switch", [True, False])
def test_every_number_of_the_gate_has_its_gradient(switch, training):
    shape = (3, 2, 4) if switch else (7,)
    gate = drawn(Gate(shape, 5, switch)).train(training)
    x = torch.randn(6, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    names, numbers = zip(*gate.named_parameters(), strict=True)
    factors = lambda *given: functional_call(gate, dict(zip(names, given, strict=True)), (x,))  # noqa: E731
    assert torch.autograd.gradcheck(factors, numbers)
    assert len(names) == (8 if switch else 4)


def test_gates_of_clients_start_apart_and_stay_the_same_whoever_else_is_there():
    gates = [run(rounds=0).client(i, 0).state.gate["linear.weight"] for i in (0, 1)]
    assert not torch.equal(gates[0], gates[1])
    assert torch.equal(gates[0], run(rounds=0, clients=blobs([9])).client(0, 5).state.gate["linear.weight"])


def test_groups_are_told_by_the_owner_of_a_tensor():
    class Named(LightningModule):
        def __init__(self):
            super().__init__()
            self.linear_looking = nn.BatchNorm1d(6)
            self.other = nn.ModuleList([nn.Linear(6, 4)])
            self.free = nn.Parameter(torch.zeros(4))

        def forward(self, x):
            return self.other[0](self.linear_looking(x)) + self.free

        def training_step(self, batch):
            return F.cross_entropy(self(batch[0]), batch[1])

    mine = run(rounds=1, module=Named(), **SPARSE)
    slots = [slot.name for slot in mine.learner.layout.params]
    assert slots == ["free", "linear_looking.weight", "linear_looking.bias", "other.0.weight", "other.0.bias"]
    assert list(mine.method.blocks.linear) == [False] * 8 + [True] * 5


def by_hand(mine: Simulation, number: int, share: float, epochs: int) -> tuple[torch.Tensor, dict, list[set[int]]]:
    """Full-batch rounds of one client: every gradient through gate and model at once."""
    train, options, data = mine.train, mine.method.options, mine.data[number]
    net, gate = Mlp().double(), Gate((6,), len(mine.method.blocks.sizes), switch=False).double()
    gate.load_state_dict(mine.client(number, 0).state.gate)
    nn.utils.vector_to_parameters(mine.server.params.clone(), net.parameters())
    start = mine.server.params.clone()
    theta = torch.optim.SGD(net.parameters(), train.lr, momentum=train.momentum, weight_decay=train.weight_decay)
    phi = torch.optim.SGD(
        gate.parameters(), train.lr if options.lr_gate is None else options.lr_gate, momentum=train.momentum
    )
    blocks, kept = mine.method.blocks, []

    def loss(note):
        factors = gate(data.x)
        keep = [True] * len(blocks.sizes)
        if share < 1:
            keep = select_blocks(factors.tolist(), blocks.sizes, [True] * len(keep), blocks.first, share)
        if note:
            kept.append({b for b, stays in enumerate(keep) if stays})
        each = torch.repeat_interleave(factors * torch.tensor(keep), torch.tensor(blocks.sizes))
        parts, place = {}, 0
        for name, p in net.named_parameters():
            parts[name] = p * each[place : place + p.numel()].view_as(p)
            place += p.numel()
        return F.cross_entropy(functional_call(net, parts, (data.x,)), data.labels)

    def step(optimizers, note):
        net.zero_grad()
        gate.zero_grad()
        loss(note).backward()
        for module, optimizer in optimizers:
            if options.clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), options.clip)
            optimizer.step()

    for _ in range(epochs):
        if options.alternation == "joint":
            gate.train()
            step([(net, theta), (gate, phi)], note=True)
        else:
            gate.train()
            step([(gate, phi)], note=False)
            gate.eval()
            step([(net, theta)], note=True)
    ever = torch.tensor([any(b in k for k in kept) for b in range(len(blocks.sizes))])
    mask = torch.repeat_interleave(ever, torch.tensor(blocks.sizes))
    end = nn.utils.parameters_to_vector(net.parameters()).detach()
    return torch.where(mask, end, start), copy_of_state(gate), kept


HARD = {"batch_size": "full", "precision": "64-true", "epochs": 3, "lr": 0.5, "momentum": 0.9, "weight_decay": 0.1}


@pytest.mark.parametrize("alternation", ["epoch", "joint"])
@pytest.mark.parametrize(
    ("options", "timing"),
    [({}, {}), (SPARSE, {}), ({"clip": 0.001}, {}), ({"clip": None, "lr_gate": 2.0}, {"steps": 3})],
)
def test_a_round_is_that_of_the_algorithm(alternation, options, timing):
    mine = run(rounds=0, train=HARD | timing, alternation=alternation, **options)
    expected = [by_hand(mine, i, options.get("sparsity", 1.0), 3) for i in range(3)]
    seen = mine.round(evaluate=False)
    for i, (params, gate, kept) in enumerate(expected):
        assert torch.allclose(seen.uploads[i].params, params, rtol=0, atol=1e-10)
        for name, value in mine.states[i].gate.items():
            assert torch.allclose(value, gate[name], rtol=0, atol=1e-9), name
        sizes = mine.method.blocks.sizes
        share = sum(sizes[b] for b in set.union(*kept)) / PARAMS
        assert seen.traces[i, "active_share"] == pytest.approx(share)
        assert 0 < seen.traces[i, "gate"] < 1


def test_only_the_gate_moves_in_its_steps_and_only_the_model_in_the_others(monkeypatch):
    mine = run(rounds=0, norm=True)
    seen = []

    def noted(name):
        original = getattr(GateTraining, name)

        def wrapper(self, *arguments):
            before = mine.learner.flat.weights(), copy_of_state(self.gate)
            original(self, *arguments)
            after = mine.learner.flat.weights(), copy_of_state(self.gate)
            seen.append((name, self.gate.training))
            gate_moved = [not torch.equal(before[1][k], after[1][k]) for k in before[1] if k != "linear.bias"]
            if name == "steps":
                assert all(gate_moved)
                assert equal(before[0], after[0])
            else:
                assert not any(gate_moved)
                assert not torch.equal(before[0].params, after[0].params)
                assert not torch.equal(before[0].buffers, after[0].buffers)

        monkeypatch.setattr(GateTraining, name, wrapper)

    noted("steps")
    noted("step_model")
    mine.round()
    assert set(seen) == {("steps", True), ("step_model", False)}


def test_statistics_of_the_model_move_in_model_steps_only():
    mine = run(rounds=1, norm=True, train={"epochs": 1, "batch_size": "full"})
    assert mine.log[0].uploads[0].counters.tolist() == [1]
    assert mine.states[0].gate["batchnorm.num_batches_tracked"] == 1


def test_gate_and_model_shuffle_from_streams_of_their_own():
    asked = []
    mine = run(rounds=0, train={"epochs": 2, "batch_size": 4}, clients=blobs([8]))
    orders = mine.learner.orders

    def noted(data, stream, *more):
        for epoch in orders(data, stream, *more):
            asked.append((stream, [order.tolist() for order in epoch]))
            yield epoch

    mine.learner.orders = mine.learner.engine.orders = noted
    mine.round()
    assert [stream for stream, _ in asked] == ["fit", "fit", "gate", "gate"]
    assert len({str(found) for _, found in asked}) == 4
    first = next(orders(mine.client(0, 1).train, "fit", 4, Amount()))
    assert asked[0][1] == [order.tolist() for order in first]


def test_steps_of_both_are_counted():
    def steps(**options):
        mine = run(
            rounds=0, clients=blobs([9]), train={"epochs": 2, "batch_size": 4, **options.pop("train", {})}, **options
        )
        mine.round()
        return mine.learner.ledger.steps

    assert steps(gate=False) == 6
    assert steps() == 8  # the last batch of one is dropped
    assert steps(alternation="joint") == 4
    assert steps(train={"steps": 5}) == 10


def test_predictors_use_the_gate_of_the_client():
    mine = run(rounds=2)
    seen, test = mine.log[-1], blobs([7], seed=5)[0]
    for i in range(3):
        gate = Gate((6,), 4, switch=False)
        gate.load_state_dict(mine.states[i].gate)
        with torch.no_grad():
            scale = mine.method.blocks.spread(gate.eval()(test.x))
        for predictor, weights in [
            (seen.after_fit[i], seen.uploads[i]),
            (seen.after_agg[i], shared(mine)),
        ]:
            expected = mine.learner.logits(Weights(weights.params * scale, weights.buffers, weights.counters), test)
            assert torch.equal(predictor.scores(test), expected)


def test_who_never_trained_is_evaluated_under_its_gate():
    mine, test = run(rounds=0), blobs([7], seed=5)[0]
    untrained = [before_training(mine, i).scores(test) for i in range(2)]
    assert torch.equal(untrained[0], mine.personal(0).scores(test))
    assert not torch.equal(untrained[0], untrained[1])
    assert mine.method.global_model(mine.server, mine.initial) is None
    plain = run(rounds=0, gate=False)
    assert equal(before_training(plain, 0), plain.initial)


def before_training(mine: Simulation, number: int):
    client = mine.client(number, 0)
    return mine.method.personal(client, mine.method.idle_model(client), "after_fit")


def test_a_batch_of_evaluation_has_its_own_factors():
    mine = run(rounds=1)
    test, predictor = blobs([7], seed=5)[0], mine.log[0].after_agg[0].scores
    whole = predictor(test)
    mine.learner.evaluator.batch_size = 4
    parts = predictor(test)
    assert not torch.allclose(whole, parts, atol=1e-6)
    assert torch.equal(parts[:4], predictor(Data(test.x[:4], test.labels[:4])))
    assert mine.learner.evaluate(predictor, test)["accuracy"][1] == 7


@pytest.mark.parametrize("options", [{}, SPARSE])
def test_one_vector_for_a_client(options):
    mine = run(rounds=2, gate_eval="client", norm=True, **options)
    mine.learner.evaluator.batch_size = 5
    found = mine.personal(0)
    gate = Gate((6,), len(mine.method.blocks.sizes), switch=False)
    gate.load_state_dict(mine.states[0].gate)
    with torch.no_grad():
        factors = gate.eval()(mine.data[0].x)
    keep = mine.method.keep(mine.client(0, 2), factors)
    assert torch.allclose(found.params, mine.server.params * mine.method.blocks.spread(factors * keep), atol=1e-6)
    if not options:
        logits = scores(mine, 0, mine.data[0])
        mine.learner.evaluator.batch_size = 500
        gated = scores(mine, 0, mine.data[0])
        assert torch.allclose(mine.learner.logits(found, mine.data[0]), gated, atol=1e-5)
        assert not torch.allclose(logits, gated, atol=1e-6)


def scores(mine: Simulation, number: int, data: Data) -> torch.Tensor:
    """Of the shared model under a client's gate."""
    client = mine.client(number, 2)
    return mine.method.scores(client, shared(mine), mine.method.gate(client), data)


def test_the_shared_model_alone_is_no_predictor():
    mine, plain = run(), run(gate=False)
    assert mine.method.global_model(mine.server, mine.initial) is None
    assert plain.method.global_model(plain.server, plain.initial) is not None
    assert torch.equal(mine.method.shared_part(mine.server, mine.initial).params, mine.server.params)


def test_a_gate_that_does_not_learn_is_not_fedavg():
    mine = run(rounds=1, lr_gate=0, train={"precision": "64-true"})
    assert not torch.allclose(mine.server.params, run("fedavg", rounds=1, train={"precision": "64-true"}).server.params)
    start = mine.client(0, 0)
    start.state = mine.method.State()
    mine.method.begin(start)
    assert torch.equal(mine.states[0].gate["linear.weight"], start.state.gate["linear.weight"])
    assert mine.log[0].traces[0, "gate"] == pytest.approx(0.5, abs=0.1)


def test_the_rate_decays_and_the_gates_own_is_given():
    train = {"lr": 0.3, "batch_size": "full", "epochs": 1}
    slow, fast = (run(rounds=2, train={**train, "lr_decay": d}, lr_gate=0.7) for d in (0.5, 1.0))
    first = [mine.states[0].gate["linear.weight"] for mine in (slow, fast)]
    assert not torch.equal(*first)
    assert_gates(run(rounds=1, train=train), run(rounds=1, train=train, lr_gate=0.3))
    halved = run(rounds=0, train={**train, "lr_decay": 0.5})
    halved.record.number = 1
    halved.round()
    plain = run(rounds=0, train={**train, "lr": 0.15})
    plain.record.number = 1
    plain.round()
    assert_gates(halved, plain)


def assert_gates(a: Simulation, b: Simulation, clients=(0, 1, 2)) -> None:
    for i in clients:
        one, other = a.states[i].gate, b.states[i].gate
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_kept_optimiser_is_kept_for_both():
    train = {"batch_size": "full", "epochs": 1, "momentum": 0.9}
    twice = run(rounds=2, clients=blobs([9]), train={**train, "keep_optimizer": True})
    once = run(rounds=1, clients=blobs([9]), train={**train, "epochs": 2, "shuffle": False})
    apart = run(rounds=2, clients=blobs([9]), train=train)
    assert torch.allclose(twice.server.params, once.server.params, atol=1e-6)
    weights = [mine.states[0].gate["linear.weight"] for mine in (twice, once, apart)]
    assert torch.allclose(weights[0], weights[1], atol=1e-6)
    assert not torch.allclose(weights[0], weights[2], atol=1e-6)


def test_absent_clients_keep_their_gate_and_evaluate_the_newest_model():
    mine = run(rounds=3, draw=lambda t: [0, 1] if t < 3 else [1, 2])
    before = run(rounds=2, draw=lambda t: [0, 1])
    assert_gates(mine, before, [0])
    test = blobs([7], seed=5)[0]
    assert torch.equal(mine.log[-1].after_agg[0].scores(test), scores(mine, 0, test))
    downloads = [mine.method.send(mine.server, i).params for i in range(3)]
    assert all(torch.equal(found, mine.server.params) for found in downloads)


@pytest.mark.parametrize("alternation", ["epoch", "joint"])
def test_a_gate_learns_nothing_from_batches_of_one(alternation):
    mine = run(rounds=2, norm=True, clients=blobs([1, 9, 2]), alternation=alternation)
    assert shared(mine).is_finite()
    assert mine.states[0].gate["batchnorm.num_batches_tracked"] == 0
    assert not torch.equal(mine.log[-1].uploads[0].params, mine.log[-2].uploads[0].params)


def test_the_trainer_engine_is_refused_where_a_gate_is_trained():
    with pytest.raises(ConfigError, match="pfedgate makes steps of its own"):
        check_run(resolve(small("pfedgate", train__engine="trainer")))
    check_run(resolve(small("pfedgate", train__engine="trainer", method__gate=False)))


@pytest.mark.parametrize("alternation", ["epoch", "joint"])
def test_half_precision_is_that_of_the_model_alone(alternation):
    coarse, fine = (run(norm=True, train={"precision": p}, alternation=alternation) for p in ("bf16-mixed", "32-true"))
    assert torch.allclose(coarse.server.params, fine.server.params, rtol=0, atol=0.02)
    assert not equal(shared(coarse), shared(fine))
    assert all(v.dtype in (torch.float32, torch.int64) for v in coarse.states[0].gate.values())


class Images(LightningModule):
    """A convolution and a head on images of two channels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(2, 3, 2), nn.Linear(12, 4)

    def forward(self, x):
        return self.head(self.conv(x).relu().flatten(1))

    def training_step(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1])


def images(count: int, seed: int) -> Data:
    stream = torch.Generator().manual_seed(seed)
    return Data(torch.randn(count, 2, 3, 3, generator=stream), torch.arange(count) % 4)


@pytest.mark.parametrize("alternation", ["epoch", "joint"])
def test_model_steps_see_the_factors_of_augmented_images(alternation, monkeypatch):
    clients = [images(9, 1), images(12, 2)]

    def trained(augmentation):
        monkeypatch.setattr(Data, "augmentation", augmentation, raising=False)
        monkeypatch.setattr(
            Data, "with_augmentation", lambda data, _: Data(augmentation(data.x), data.labels, data.key), raising=False
        )
        return run(clients=clients, module=Images(), gate_norm="switch", alternation=alternation, rounds=1)

    plain, same, other = trained(None), trained(lambda x: x), trained(lambda x: -x)
    assert torch.allclose(plain.server.params, same.server.params, rtol=0, atol=1e-6)
    assert not torch.allclose(plain.server.params, other.server.params, rtol=0, atol=1e-4)
    gates = [mine.log[0].traces[0, "gate"] for mine in (plain, same, other)]
    assert gates[1] == pytest.approx(gates[0], abs=1e-6)
    assert gates[2] != pytest.approx(gates[0], abs=1e-4)


@pytest.mark.parametrize(
    ("alternation", "hook"),
    [*product(["epoch"], ["on_after_batch_transfer", "on_train_batch_start"]), ("joint", "on_train_batch_start")],
)
def test_model_steps_see_the_factors_of_images_that_hooks_change(alternation, hook):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        return -batch[0], batch[1]

    def on_train_batch_start(self, batch, batch_idx):
        batch[0].neg_()

    changed = {"on_after_batch_transfer": on_after_batch_transfer, "on_train_batch_start": on_train_batch_start}
    Changing = type("Changing", (Images,), {hook: changed[hook]})
    clients = [images(9, 1), images(12, 2)]
    options = {"gate_norm": "switch", "alternation": alternation, "train": {"epochs": 1, "batch_size": "full"}}
    mine, plain = (run(clients=clients, module=kind(), rounds=1, **options) for kind in (Changing, Images))
    gates = [sim.log[0].traces[0, "gate"] for sim in (mine, plain)]
    assert gates[0] != pytest.approx(gates[1], abs=1e-4)
    if alternation == "epoch":
        state = mine.states[0].gate
        gate = Gate((2, 3, 3), len(mine.method.blocks.sizes), switch=True)
        gate.load_state_dict(state)
        assert gates[0] == pytest.approx(float(gate.eval()(-clients[0].x).detach().mean()), abs=1e-6)


def test_training_is_the_same_whatever_the_batches_of_evaluation():
    clients = [images(60, 1), images(40, 2)]
    one, other = (run(rounds=0, clients=clients, module=Images(), gate_norm="switch") for _ in range(2))
    other.learner.evaluator.batch_size = 7
    for sim in (one, other):
        sim.round(evaluate=False)
    assert equal(shared(one), shared(other))
    assert_gates(one, other, [0, 1])


@pytest.mark.parametrize("alternation", ["epoch", "joint"])
def test_a_step_that_fails_leaves_the_parameters_in_their_vector(alternation):
    class Failing(Mlp):
        calls = 0

        def training_step(self, batch):
            Failing.calls += 1
            if Failing.calls == 9:
                raise KeyError
            return super().training_step(batch)

    mine = run(rounds=0, module=Failing(), alternation=alternation)
    with pytest.raises(AssertionError):  # the host reports what failed
        mine.round()
    assert Failing.calls >= 9
    places = [parameter.data_ptr() for parameter in mine.learner.flat.parameters]
    assert places[0] == mine.learner.flat.w.data_ptr()
    assert places == [mine.learner.flat.w[slot.start :].data_ptr() for slot in mine.learner.layout.params]


def test_images_are_normalised_before_the_gate_and_not_before_the_model():
    clients = [images(9, 1), images(12, 2)]
    mine, plain = (run(clients=clients, module=Images(), gate_norm=norm) for norm in ("switch", "none"))
    state = mine.states[0].gate
    assert {"norm.mean_mix", "norm.running_var"} <= set(state)
    assert not torch.equal(state["norm.mean_mix"], torch.ones(3))
    assert state["norm.running_mean"].abs().sum() > 0
    assert not torch.equal(mine.server.params, plain.server.params)


@pytest.mark.parametrize("options", [{}, SPARSE])
def test_bytes(options):
    mine = run(rounds=1, norm=True, **options)
    seen, total, statistics = mine.log[0], PARAMS + 10, 10
    bits = len(mine.method.blocks.sizes) if options else 0
    for i in range(3):
        kept = round(seen.traces[i, "active_share"] * total)
        assert (kept < total) == bool(options)
        assert seen.up[i] == 4 * (kept + statistics) + ceil(bits / 8)
        assert seen.down[i] == 4 * (total + statistics)


def test_what_no_step_kept_stays_as_received():
    mine = run(
        rounds=0, sparsity=0.4, blocks_per_tensor=3, train={"weight_decay": 0.3, "epochs": 1, "batch_size": "full"}
    )
    before = mine.server.params.clone()
    seen = mine.round()
    for i in range(3):
        moved = seen.uploads[i].params != before
        assert float(moved.double().mean()) == pytest.approx(seen.traces[i, "active_share"])
        for slot in mine.learner.layout.params:
            share = float(moved[slot.start : slot.stop].double().mean())
            assert share == pytest.approx(seen.traces[i, f"active_share/{slot.name}"])


def test_a_share_for_each_client():
    seen = run(rounds=1, sparsity=[0.4, 1.0, 0.7], blocks_per_tensor=4, train={"epochs": 1, "batch_size": "full"}).log[
        0
    ]
    shares = [seen.traces[i, "active_share"] for i in range(3)]
    assert shares[0] < shares[2] < shares[1] == 1
    assert seen.up[0] < seen.up[2] < seen.up[1] == 4 * PARAMS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sparsity": 0.5}, "blocks_per_tensor"),
        ({"sparsity": [0.5, 1.0, 1.0]}, "blocks_per_tensor"),
        ({"sparsity": [0.5, 1.0], "blocks_per_tensor": 2}, "2 shares for 3 clients"),
        ({"sparsity": 0.5, "blocks_per_tensor": 2, "gate": False}, "gate"),
        ({"batch_size": 1}, "2 samples or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        method(**options)


@pytest.mark.parametrize("value", [0, 1.1, [0.5, 0.0], "half"])
def test_shares_out_of_range_are_refused(value):
    with pytest.raises(ValueError):
        PFedGate.Options(sparsity=value)


def test_the_switch_needs_images():
    with pytest.raises(ConfigError, match="gate_norm"):
        run(rounds=1, gate_norm="switch")


def test_a_gradient_is_shortened_to_its_norm():
    def result(*values, limit=10.0):
        g = torch.tensor(values, dtype=torch.float64)
        shorten(g, limit)
        return g.tolist()

    assert result(3.0, 4.0) == [3, 4]
    assert result(30.0, 40.0) == pytest.approx([6, 8], abs=1e-6)
    assert result(0.0, 0.0) == [0, 0]
    assert result(30.0, 40.0, limit=None) == [30, 40]


def test_clients_of_two_classes_gain_over_fedavg():
    def skewed(seed, size):
        found = []
        for i, data in enumerate(blobs([size] * 4, seed=seed)):
            mine = (data.labels == i) | (data.labels == (i + 1) % 4)
            found.append(Data(data.x[mine], data.labels[mine]))
        return found

    train, test = skewed(1, 80), skewed(2, 200)

    def predictor(mine, i):
        found = mine.log[-1].after_agg[i]
        return found if isinstance(found, Weights) else found.scores

    def accuracy(name, **options):
        mine = run(name, rounds=6, clients=train, train={"lr": 0.3, "epochs": 3}, **options)
        return sum(accuracy_of(mine.learner, predictor(mine, i), test[i]) for i in range(4)) / 4

    assert accuracy("pfedgate", blocks_per_tensor=4, lr_gate=1.0) > accuracy("fedavg") + 0.02
