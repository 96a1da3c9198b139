"""Several clients in one step: one of them alone is the loop to the bit, several are the loop's arithmetic."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from fedbench.config import TrainConfig
from fedbench.engine.compiled import Compiled, transpose_factors
from fedbench.engine.cursor import FitRequest
from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Amount, Fit, Loss, Move, OneBatch, PairedBatches, Step
from fedbench.engine.kind import fit_kind
from fedbench.engine.learner import Learner
from fedbench.engine.losses import task_loss
from fedbench.engine.probe import probe
from fedbench.errors import ConfigError
from fedbench.methods.fedprox import proximal_pull
from fedbench.models import build
from fedbench.module.weights import Weights

UNKNOWN = partial(torch.optim.SGD, nesterov=True, momentum=0.5)
SIZES = (20, 16, 33, 7, 8)
TRAIN = dict(batch_size=8, epochs=2, lr=0.1, momentum=0.5)


GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")]
on_every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])


def learner_of(net: Any, engine: str, width: int = 1, device: str = "cpu", **train: Any) -> Learner:
    torch.manual_seed(0)
    config = TrainConfig(**{**TRAIN, **train}, engine=engine, width=width)
    return Learner(net(), config, optimizer="sgd", device=device)


def trained(
    learner: Learner, fits: Sequence[Fit], clients: Sequence[int] | None = None
) -> tuple[list[Weights], list[Ledger]]:
    """By the loop one after another, in rows so many at a time as it takes. clients: by which they have rows."""
    ledgers = [Ledger(learner.device) for _ in fits]
    if learner.row_engine is None:
        found = []
        for fit, ledger in zip(fits, ledgers, strict=True):
            learner.engine.ledger = ledger
            found.append(learner.fit(fit))
        return found, ledgers
    width = learner.row_engine.width
    rows = [client % width for client in clients or range(len(fits))]
    asked = [FitRequest(*each) for each in zip(fits, ledgers, rows, strict=True)]
    parts = [learner.row_engine.fit_together(asked[i : i + width]) for i in range(0, len(asked), width)]
    return [weights for part in parts for weights in part], ledgers


def pulled(net: Any, batch: Any, s: Any) -> Tensor:
    """A loss with a term of its own that counts how often it was asked."""
    s.count.add_(1)
    return task_loss(net, batch) + s.mu * sum(p.square().sum() for p in net.parameters())


def of_pairs(net: Any, batch: Any, s: Any) -> Tensor:
    (x, y), (u, t) = batch
    return F.cross_entropy(net(x), y) + s.lam * F.cross_entropy(net(u), t)


def of_rows(net: Any, batch: Any, s: Any) -> Tensor:
    """Needs what lies at the places of its batch."""
    return F.mse_loss(net(batch[0]), s.wanted.index_select(0, s.index))


def of_all_rows(net: Any, batch: Any, s: Any) -> Tensor:
    """Needs more than what lies at the places of its batch."""
    return F.mse_loss(net(batch[0]), s.wanted.mean(0).expand(len(batch[0]), -1))


def head_of(learner: Learner, **more: Any) -> Move:
    return Move(learner.layout.mask("head"), **more)


def scattered(learner: Learner, seed: int) -> Move:
    return Move(torch.rand(learner.layout.size, generator=torch.Generator().manual_seed(seed)) < 0.5)


def fits(name: str, learner: Learner, blobs: Callable) -> list[Fit]:
    start, like = learner.initial(), learner.flat.w
    data = [blobs(n, key=(0, n, 1)) for n in SIZES]
    make: dict[str, Callable[[int], Fit]] = {
        "plain": lambda i: Fit(start, data[i]),
        "steps": lambda i: Fit(start, data[i], amount=Amount(steps=5, min_batch=2)),
        "edit": lambda i: Fit(start, data[i], step=Step(proximal_pull, anchor=start.params * i, mu=0.3, lr=0.05)),
        "loss": lambda i: Fit(start, data[i], loss=Loss(pulled, mu=0.1, count=like.new_zeros(()))),
        "head": lambda i: Fit(start, data[i], move=head_of(learner)),
        "resting norm": lambda i: Fit(start, data[i], move=head_of(learner, frozen="norm_eval")),
        "masked": lambda i: Fit(start, data[i], move=scattered(learner, i)),
        "rule": lambda i: Fit(start, data[i], step=Step(rule=partial(torch.optim.SGD, momentum=0.8), memory={})),
        "memory": lambda i: Fit(start, data[i], step=Step(memory={"optimizer": {"momentum_buffer": start.params + i}})),
        "masked memory": lambda i: Fit(start, data[i], move=scattered(learner, i), step=Step(memory={})),
        "pairs": lambda i: Fit(
            start, PairedBatches(data[i], blobs(11, key=(1, i, 1)), 8), loss=Loss(of_pairs, lam=0.5)
        ),
        "rows": lambda i: Fit(start, data[i], loss=Loss(of_rows, wanted=data[i].x[:, :3])),
        "one batch": lambda i: Fit(start, OneBatch(*data[i].batch(torch.arange(6)), key=(i,))),
    }
    return [make[name](i) for i in range(len(SIZES))]


NAMES = [
    "plain",
    "steps",
    "edit",
    "loss",
    "head",
    "masked",
    "memory",
    "pairs",
    "rows",
    "masked memory",
    "one batch",
]


def assert_same(a: Weights, b: Weights) -> None:
    assert all(torch.equal(getattr(a, name), getattr(b, name)) for name in vars(a))


def assert_needs_are_same(a: Fit, b: Fit, exact: bool = True) -> None:
    """What a loss has written to, and what the optimiser keeps."""
    for name, value in (a.loss.needs if a.loss else {}).items():
        if isinstance(value, Tensor):
            torch.testing.assert_close(value, b.loss.needs[name], rtol=0, atol=0 if exact else 1e-12)
    assert (a.memory is None) == (b.memory is None)
    if a.memory is not None:
        for name, value in a.memory["optimizer"].items():
            other = b.memory["optimizer"][name]
            torch.testing.assert_close(value.double(), other.double(), rtol=0, atol=0 if exact else 1e-12)


@pytest.mark.parametrize("name", [*NAMES, "rule"])
@pytest.mark.parametrize("width", [3, 8])
def test_several_are_the_arithmetic_of_the_loop(name, width, net, blobs):
    double = partial(blobs_of, blobs, torch.float64)
    loop = learner_of(net, "loop", precision="64-true")
    compiled = learner_of(net, "compiled", width, precision="64-true")
    asked, again = fits(name, loop, double), fits(name, compiled, double)
    (a, costs), (b, same_costs) = trained(loop, asked), trained(compiled, again)
    assert not compiled.row_engine.remarks
    for one, other in zip(a, b, strict=True):
        assert float((one.params - other.params).abs().max()) < 1e-13
    assert [ledger.steps for ledger in costs] == [ledger.steps for ledger in same_costs]
    assert [ledger.loss for ledger in costs] == pytest.approx([ledger.loss for ledger in same_costs], rel=1e-12)
    for one, other in zip(asked, again, strict=True):
        assert_needs_are_same(one, other, exact=False)


def blobs_of(blobs: Callable, dtype: torch.dtype, *args: Any, **more: Any) -> Any:
    found = blobs(*args, **more)
    found.x, found.dtype = found.x.to(dtype), dtype
    return found


def test_kept_states_of_adam_are_the_loops(net, blobs):
    double = partial(blobs_of, blobs, torch.float64)
    asked = dict(precision="64-true", weight_decay=0.01)
    found = []
    for engine, width in (("loop", 1), ("compiled", 3)):
        torch.manual_seed(0)
        train = TrainConfig(**{**TRAIN, **asked}, engine=engine, width=width)
        own = Learner(net(), train, optimizer="adamw")
        memories = [dict[str, Any]() for _ in SIZES]
        for _ in range(2):
            again = [Fit(own.initial(), double(n), step=Step(memory=m)) for n, m in zip(SIZES, memories, strict=True)]
            weights, _ = trained(own, again)
        found.append((weights, memories))
    (a, kept), (b, other) = found
    for one, two in zip(a, b, strict=True):
        torch.testing.assert_close(one.params, two.params, rtol=0, atol=1e-12)
    for one, two in zip(kept, other, strict=True):
        assert one["optimizer"].keys() == two["optimizer"].keys()
        for name, value in one["optimizer"].items():
            torch.testing.assert_close(value.double(), two["optimizer"][name].double(), rtol=0, atol=1e-12)


@pytest.mark.compiled
def test_who_else_is_there_and_who_is_asked_first_changes_no_bit(blobs):
    own = partial(learner_of, lambda: build("mlp", (64,), 3, hidden=[11]), batch_size=10)
    compiled, loop = own("compiled", 10), own("loop")
    sizes = {0: 30, 13: 24, 2: 12, 5: 33, 7: 20, 11: 16, 9: 11}  # no two have a row in common
    fit = lambda client: Fit(compiled.initial(), blobs(sizes[client], (64,), key=(client,)))  # noqa: E731
    together = dict(zip(sizes, trained(compiled, [fit(client) for client in sizes], [*sizes])[0], strict=True))
    assert not compiled.row_engine.remarks
    for clients in ([*sizes][::-1], [7, 13], *([client] for client in sizes)):
        for client, weights in zip(clients, trained(compiled, [fit(c) for c in clients], clients)[0], strict=True):
            assert_same(weights, together[client])
    for client, weights in zip(sizes, trained(loop, [fit(client) for client in sizes])[0], strict=True):
        torch.testing.assert_close(weights.params, together[client].params, rtol=0, atol=1e-6)


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["masked memory", pytest.param("loss", marks=pytest.mark.night)])
def test_compiled_steps_are_the_arithmetic_of_the_loop(name, net, blobs):
    kind = normed(net)
    double = partial(blobs_of, blobs, torch.float64)
    loop, compiled = (learner_of(kind, engine, 3, precision="64-true") for engine in ("loop", "compiled"))
    asked, again = fits(name, loop, double), fits(name, compiled, double)
    for one, other in zip(trained(loop, asked)[0], trained(compiled, again)[0], strict=True):
        for part in ("params", "buffers"):
            torch.testing.assert_close(getattr(one, part), getattr(other, part), rtol=0, atol=1e-12)
        assert torch.equal(one.counters, other.counters)
    assert not compiled.row_engine.remarks
    for one, other in zip(asked, again, strict=True):
        assert_needs_are_same(one, other, exact=False)


def test_a_fit_that_diverges_by_samples_is_the_loops(net, blobs):
    """The loss of a batch ignores some samples, of which one alone has no loss."""

    def step(self: Any, batch: Any) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1], ignore_index=-100)

    kind = type("Ignores", (net,), {"training_step": step})
    loop, compiled = learner_of(kind, "loop"), learner_of(kind, "compiled", 3)
    data = [blobs(n, key=(0, n, 1)) for n in SIZES]
    data[1].y[::3] = -100
    both = [trained(own, [Fit(own.initial(), own_data) for own_data in data])[0] for own in (loop, compiled)]
    assert_same(both[0][1], both[1][1])
    for one, other in zip(*both, strict=True):
        assert other.is_finite()
        torch.testing.assert_close(one.params, other.params, rtol=0, atol=1e-6)


def normed(net: Any) -> Any:
    class Normed(net):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())

    return Normed


@pytest.mark.parametrize("name", ["plain", "head", "resting norm", "edit"])
def test_running_statistics_are_each_clients_own(name, net, blobs):
    kind = normed(net)
    double = partial(blobs_of, blobs, torch.float64)
    exact, three = learner_of(kind, "loop", precision="64-true"), learner_of(kind, "compiled", 3, precision="64-true")
    found = [trained(own, fits(name, own, double))[0] for own in (exact, three)]
    assert not three.row_engine.remarks
    for a, b in zip(*found, strict=True):
        for part in ("params", "buffers"):
            torch.testing.assert_close(getattr(a, part), getattr(b, part), rtol=0, atol=1e-12)
        assert torch.equal(a.counters, b.counters)


def test_what_lies_at_samples_is_of_one_kind_for_clients_of_similar_sizes(net, blobs):
    learner = learner_of(net, "compiled", 3)
    sizes = (20, 33, 40, 64)
    asked = [Fit(learner.initial(), blobs(n), loss=Loss(of_rows, wanted=blobs(n).x[:, :3])) for n in sizes]
    kinds = [fit_kind(learner.engine, fit) for fit in asked]
    assert [kind.needs for kind in kinds] == [(("wanted", (n, 3), torch.float32),) for n in (32, 64, 64, 64)]
    loop = learner_of(net, "loop")
    for a, b in zip(trained(loop, asked)[0], trained(learner, asked)[0], strict=True):
        torch.testing.assert_close(a.params, b.params, rtol=0, atol=1e-6)
    assert not learner.row_engine.remarks


def test_fits_of_different_kinds_are_sorted_apart(net, blobs):
    loop, compiled = learner_of(net, "loop"), learner_of(net, "compiled", 6)
    mixed = lambda own: [fit for name in ("edit", "head", "plain") for fit in fits(name, own, blobs)[:2]]  # noqa: E731
    for a, b in zip(trained(loop, mixed(loop))[0], trained(compiled, mixed(compiled))[0], strict=True):
        torch.testing.assert_close(a.params, b.params, rtol=0, atol=1e-6)


def test_a_step_that_the_compiler_cannot_compile_is_tried_once_and_is_the_loops(net, blobs, monkeypatch):
    tried = list[int]()

    def fails(function: Any, example: Sequence[Tensor]) -> Any:
        tried.append(len(example))
        raise KeyError("buf17")

    monkeypatch.setattr(Compiled, "compiler", staticmethod(fails))
    loop, compiled = learner_of(net, "loop"), learner_of(net, "compiled", 3)
    for _ in range(2):
        asked = [fits("plain", own, blobs)[:3] for own in (loop, compiled)]
        for a, b in zip(trained(loop, asked[0])[0], trained(compiled, asked[1])[0], strict=True):
            assert_same(a, b)
    assert len(tried) == 1
    (remark,) = compiled.row_engine.remarks
    assert remark.endswith("its step cannot be compiled: 'buf17'")


def test_what_the_module_logs_is_each_clients_own(net, blobs):
    def step(self: Any, batch: Any) -> Tensor:
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("twice", 2 * loss)
        self.log_dict({"most": loss}, reduce_fx="max")
        return loss

    kind = type("Talks", (net,), {"training_step": step})
    loop, compiled = learner_of(kind, "loop"), learner_of(kind, "compiled", 3)
    a, b = (trained(own, fits("plain", own, blobs))[1] for own in (loop, compiled))
    for one, other in zip(a, b, strict=True):
        assert one.logged.keys() == other.logged.keys() == {"twice", "most"}
        assert list(one.logged.values()) == pytest.approx(list(other.logged.values()), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda fit: setattr(fit, "step", Step(rule=partial(torch.optim.SGD, nesterov=True, momentum=0.5))),
            "the method sets the optimiser",
        ),
        (lambda fit: setattr(fit, "loss", Loss(pulled_by, by=nn.Linear(1, 1))), "needs by, which is not a tensor"),
        (
            lambda fit: setattr(fit, "loss", Loss(of_all_rows, wanted=fit.data.x[:, :3])),
            "its loss reads more of wanted than the places of a batch",
        ),
    ],
)
def test_a_fit_that_cannot_be_stacked_is_the_loops(change, why, net, blobs):
    loop, compiled = learner_of(net, "loop"), learner_of(net, "compiled", 3)
    asked = [fits("plain", own, blobs) for own in (loop, compiled)]
    for fit in (asked[0][1], asked[1][1]):
        change(fit)
    a, b = trained(loop, asked[0])[0], trained(compiled, asked[1])[0]
    assert_same(a[1], b[1])
    (remark,) = compiled.row_engine.remarks
    assert remark.startswith("train.engine = compiled: fits are done one client after another: ")
    assert remark.endswith(why)


def pulled_by(net: Any, batch: Any, s: Any) -> Tensor:
    return task_loss(net, batch) + s.by.weight.sum()


def test_models_that_cannot_be_stacked_say_why(net, conv_net, blobs):
    class Asks(net):
        def training_step(self, batch: Any) -> Tensor:
            loss = F.cross_entropy(self(batch[0]), batch[1])
            return loss * 2 if loss.item() > 1 else loss

    class Counts(net):
        seen = 0

        def training_step(self, batch: Any) -> Tensor:
            self.seen = self.seen + 1
            return F.cross_entropy(self(batch[0]), batch[1])

    class Hooked(net):
        def on_train_epoch_start(self) -> None:
            pass

    for kind, why in ((Asks, "item"), (Counts, "attributes of the module"), (Hooked, "overrides on_train_epoch_start")):
        loop, compiled = learner_of(kind, "loop"), learner_of(kind, "compiled", 3)
        found = [trained(own, fits("plain", own, blobs))[0] for own in (loop, compiled)]
        for a, b in zip(*found, strict=True):
            assert_same(a, b)
        assert any(why in remark for remark in compiled.row_engine.remarks), compiled.row_engine.remarks
    dropout, compiled = learner_of(conv_net, "loop"), learner_of(conv_net, "compiled", 3)
    images = [Fit(dropout.initial(), blobs(n, shape=(2, 6, 6), key=(n,))) for n in SIZES]
    for a, b in zip(trained(dropout, images)[0], trained(compiled, images)[0], strict=True):
        assert_same(a, b)
    assert "it draws random numbers" in " ".join(compiled.row_engine.remarks)


def test_a_client_that_fails_leaves_the_others_alone(net, blobs):
    compiled = learner_of(net, "compiled", 4)
    asked = fits("plain", compiled, blobs)[:3]
    asked[1].data.key = ("broken",)
    asked[1].data.batch = None
    found, _ = trained(compiled, asked)
    assert [type(one).__name__ for one in found] == ["Weights", "TypeError", "Weights"]
    assert_same(found[2], trained(compiled, fits("plain", compiled, blobs)[:3])[0][2])
    few = Fit(compiled.initial(), blobs(4, key=(4,)), amount=Amount(min_batch=5))
    found, _ = trained(compiled, [fits("plain", compiled, blobs)[0], few])
    assert isinstance(found[1], ConfigError)
    assert "batches of 4 samples from 4: this model trains on 5 or more at a time" in str(found[1])


def test_numbers_that_are_not_finite_stay_with_their_client(net, blobs):
    compiled = learner_of(net, "compiled", 4)
    asked = fits("plain", compiled, blobs)[:3]
    asked[1] = Fit(compiled.initial(), asked[1].data, step=Step(lr=1e38))
    wild, _ = trained(compiled, [Fit(f.start, f.data, step=Step(lr=1e30)) for f in asked[:1]])
    assert not wild[0].is_finite()
    calm, _ = trained(compiled, fits("plain", compiled, blobs)[:3])
    again, _ = trained(learner_of(net, "compiled", 4), fits("plain", compiled, blobs)[:3])
    for one, other in zip(calm, again, strict=True):
        assert_same(one, other)


class There:
    """Data on a device."""

    def __init__(self, data: Any, device: str) -> None:
        self.data, self.device, self.key = data, device, data.key

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self.data.batch(index.cpu())
        return x.to(self.device), y.to(self.device)


@on_every_device
@pytest.mark.parametrize("name", ["plain", "edit", "masked", "memory"])
def test_a_device_does_the_arithmetic_of_the_processor_and_repeats_its_bits(name, device, net, blobs):
    double = partial(blobs_of, blobs, torch.float64)
    exact = learner_of(net, "loop", precision="64-true")
    expected, _ = trained(exact, fits(name, exact, double))
    for engine, width in (("loop", 1), ("compiled", 3)):
        own = learner_of(net, engine, width, device, precision="64-true")
        there = lambda own=own: fits(name, own, lambda *args, **more: There(double(*args, **more), device))  # noqa: E731
        found, again = trained(own, there())[0], trained(own, there())[0]
        for one, other, same in zip(found, expected, again, strict=True):
            assert one.params.device.type == device
            # GPU kernels read the learning rate in single precision.
            torch.testing.assert_close(one.params.cpu(), other.params, rtol=0, atol=1e-10 if device == "cpu" else 1e-8)
            assert_same(one, same)


def test_buffers_keep_their_types(net, blobs):
    class Masked(net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.tensor([True, False, True, True, False, True]))
            self.register_buffer("shift", torch.arange(6).to(torch.bfloat16))

        def forward(self, x: Tensor) -> Tensor:
            assert self.shift.dtype == torch.bfloat16
            return self.head(self.body(torch.where(self.seen, x, self.shift.float())))

    learners = [learner_of(Masked, engine) for engine in ("loop", "compiled")]
    found = [trained(learner, [Fit(learner.initial(), blobs(20))])[0][0] for learner in learners]
    assert learners[1].row_engine.remarks == {}
    torch.testing.assert_close(found[0].params, found[1].params, rtol=0, atol=1e-6)
    assert found[1].buffers.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_tensor_of_the_module_that_is_no_buffer_is_a_constant(net, blobs):
    class Scaled(net):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.tensor([0.5, 2.0, 1.0, -1.0, 3.0, 0.25])

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x * self.scale)

    learners = [learner_of(kind, engine) for kind, engine in ((Scaled, "loop"), (Scaled, "compiled"), (net, "loop"))]
    loop, compiled, plain = (trained(learner, [Fit(learner.initial(), blobs(20))])[0][0] for learner in learners)
    assert learners[1].row_engine.remarks == {}
    torch.testing.assert_close(loop.params, compiled.params, rtol=0, atol=1e-6)
    assert not torch.allclose(loop.params, plain.params, rtol=0, atol=1e-3)


def test_a_trial_of_the_model_compiles_nothing(net, blobs, monkeypatch):
    monkeypatch.setattr(Compiled, "compiler", staticmethod(lambda function, example: pytest.fail("compiled")))
    learner = learner_of(net, "compiled", 3)
    probe(learner, blobs(20), 3)
    assert learner.row_engine.refusals == learner.row_engine.remarks == {}


def transposed(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b).transpose(1, 2) + 1


def read_twice(a: Tensor, b: Tensor) -> Tensor:
    product = a @ b
    return product.sum() + product.transpose(1, 2)


def changed_in_between(a: Tensor, b: Tensor) -> Tensor:
    product = a @ b
    product[:, 0] = 0
    return product.transpose(1, 2) + 1


def changed_factor(a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    product = a @ b
    a.zero_()
    return product.transpose(1, 2) + a.sum()


@pytest.mark.parametrize(
    ("function", "is_replaced"),
    [(transposed, True), (changed_factor, True), (read_twice, False), (changed_in_between, False)],
)
def test_a_product_that_only_a_transpose_reads_is_computed_in_the_order_in_which_it_is_read(function, is_replaced):
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(a, b)
    transpose_factors(graph)
    graph.graph.eliminate_dead_code()
    (product,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.bmm.default)
    assert (list(product.meta["val"].shape) == [2, 5, 3]) == is_replaced
    torch.testing.assert_close(graph(a, b), function(a, b))


def test_transposes_of_constants_stay():
    a, table = torch.randn(2), torch.randn(6)

    def transposed_table(a: Tensor) -> Tensor:
        return table.view(1, 6, 1).transpose(1, 2) + a.sum()

    graph = make_fx(transposed_table, tracing_mode="fake", _allow_non_fake_inputs=True)(a)
    transpose_factors(graph)
    torch.testing.assert_close(graph(a), transposed_table(a))


@pytest.mark.parametrize("name", ["plain", "masked", "edit"])
def test_clipped_steps_are_the_loops(name, net, blobs):
    """Each row has its own norm."""
    double = partial(blobs_of, blobs, torch.float64)
    asked = dict(clip_norm=0.1, precision="64-true")
    loop, several = (learner_of(net, *kind, **asked) for kind in (("loop",), ("compiled", 3)))
    found = [trained(own, fits(name, own, double))[0] for own in (loop, several)]
    free = learner_of(net, "loop", precision="64-true")
    assert not several.row_engine.remarks
    for one, near, unclipped in zip(*found, trained(free, fits(name, free, double))[0], strict=True):
        assert float((one.params - near.params).abs().max()) < 1e-13
        assert not torch.equal(one.params, unclipped.params)


def test_steps_of_several_batches_are_left_to_the_loop(net, blobs):
    loop, compiled = (learner_of(net, *kind, accumulate=2) for kind in (("loop",), ("compiled", 3)))
    for one, other in zip(*(trained(own, fits("plain", own, blobs))[0] for own in (loop, compiled)), strict=True):
        assert_same(one, other)
    assert list(compiled.row_engine.remarks) == [
        "train.engine = compiled: fits are done one client after another: train.accumulate = 2"
    ]
