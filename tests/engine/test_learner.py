"""The learner's promises: same seed same bits, and nothing leaks from one fit into the next."""

from typing import Any

import pytest
import torch
import torchmetrics
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Fit, Move, Step
from fedbench.engine.learner import Learner
from fedbench.errors import ConfigError


def streams():
    return torch.get_rng_state().tolist()


@pytest.mark.parametrize("optimizer", ["module", "sgd"])
def test_a_rerun_gives_the_same_bits_whatever_happened_between(learner, conv_net, blobs, same, optimizer):
    trained, data = learner(conv_net, optimizer), blobs(18, (2, 6, 6))
    first = trained.fit(Fit(trained.initial(), data))
    trained.evaluate(first, blobs(11, (2, 6, 6)))
    trained.fit(Fit(first, blobs(9, (2, 6, 6), key=(5, 5, 5)), move=Move(trained.layout.mask("head"))))
    torch.rand(10)
    assert same(first, trained.fit(Fit(trained.initial(), data)))
    assert same(first, (fresh := learner(conv_net, optimizer)).fit(Fit(fresh.initial(), data)))


def test_the_key_and_the_purpose_decide_order_and_dropout(learner, conv_net, blobs, same):
    trained = learner(conv_net, batch_size="full", shuffle=False)
    fits = [
        trained.fit(Fit(trained.initial(), blobs(18, (2, 6, 6), key=key), stream=purpose))
        for key, purpose in [((0, 1, 2), "fit"), ((0, 1, 3), "fit"), ((0, 1, 2), "ft")]
    ]
    assert not same(fits[0], fits[1])
    assert not same(fits[0], fits[2])


def test_a_module_may_be_adapted_before_its_parameters_are_counted(net):
    def widen(module, layout):
        assert layout.mask("head").sum() == 18
        module.extra = nn.Parameter(torch.ones(3, dtype=module.head.weight.dtype))

    trained = Learner(net(), TrainConfig(precision="64-true"), adapt=widen)
    assert trained.layout.size == 56
    assert trained.initial().params[:3].tolist() == [1, 1, 1]


def test_batchnorm_buffers_and_counters(learner, conv_net, blobs):
    trained = learner(conv_net)
    weights = trained.fit(Fit(trained.initial(), blobs(18, (2, 6, 6))))
    assert weights.counters.tolist() == [10]
    assert weights.buffers.shape == (8,)
    assert not torch.equal(weights.buffers, trained.initial().buffers)
    other = trained.fit(Fit(trained.initial(), blobs(10, (2, 6, 6))))
    assert other.counters.tolist() == [6]


def test_buffers_that_a_module_replaces(learner, net, blobs, same):
    class Centred(net):
        def __init__(self):
            super().__init__()
            self.register_buffer("center", torch.zeros(6))
            self.register_buffer("seen", torch.zeros((), dtype=torch.int32))
            self.register_buffer("mask", torch.tensor([True, False]))

        def training_step(self, batch, batch_idx):
            self.center = 0.9 * self.center + 0.1 * batch[0].mean(0)
            self.seen = self.seen + 1
            return super().training_step(batch, batch_idx)

    trained = learner(Centred)
    weights = trained.fit(Fit(trained.initial(), blobs(18)))
    assert weights.counters.tolist() == [10, 1, 0]
    assert torch.equal(weights.buffers, trained.module.center)
    assert trained.initial().buffers.eq(0).all()
    assert same(weights, trained.fit(Fit(trained.initial(), blobs(18))))


def test_a_buffer_that_changes_its_shape_is_refused(learner, net, blobs):
    class Queue(net):
        def __init__(self):
            super().__init__()
            self.register_buffer("queue", torch.zeros(1, 6))

        def training_step(self, batch, batch_idx):
            self.queue = torch.cat([self.queue, batch[0]])
            return super().training_step(batch, batch_idx)

    with pytest.raises(ConfigError, match="changed the shape of its buffer 'queue'"):
        (trained := learner(Queue)).fit(Fit(trained.initial(), blobs(8)))


@pytest.mark.parametrize("optimizer", ["module", "sgd"])
def test_tied_weights_stay_tied(learner, net, blobs, optimizer):
    class Tied(net):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(6, 3)
            self.middle = nn.Linear(3, 6)
            self.head = nn.Linear(6, 3)
            self.head.weight = self.body.weight

        def forward(self, x):
            return self.head(self.middle(self.body(x)))

    trained = learner(Tied, optimizer)
    assert trained.layout.size == 18 + 3 + 18 + 6 + 3
    weights = trained.fit(Fit(trained.initial(), blobs(18)))
    assert trained.module.head.weight is trained.module.body.weight
    state = trained.flat.state_dict(weights)
    assert torch.equal(state["head.weight"], state["body.weight"])
    assert trained.layout.mask("head")[:18].all()


@pytest.mark.parametrize("optimizer", ["module", "sgd", "adamw"])
def test_frozen_parameters_never_move(learner, net, blobs, optimizer):
    class Frozen(net):
        def __init__(self):
            super().__init__()
            self.body.requires_grad_(False)

    trained = learner(Frozen, optimizer)
    before = trained.module.body[0].weight.clone()
    weights = trained.fit(Fit(trained.initial(), blobs(18)))
    assert weights.params.shape == (18,)
    assert not torch.equal(weights.params, trained.initial().params)
    assert torch.equal(trained.module.body[0].weight, before)


def test_a_state_dict_loads_into_the_users_module(learner, conv_net, blobs):
    trained, data = learner(conv_net), blobs(18, (2, 6, 6))
    weights = trained.fit(Fit(trained.initial(), data))
    module = conv_net()
    module.load_state_dict(trained.flat.state_dict(weights))
    module.eval()
    torch.testing.assert_close(module(data.x), trained.logits(weights, data))


@pytest.mark.parametrize("optimizer", ["module", "sgd"])
@pytest.mark.parametrize(
    "hook", ["on_train_batch_start", "on_before_zero_grad", "on_train_batch_end", "on_train_start"]
)
def test_zero_grad_in_a_hook_does_no_harm(learner, net, blobs, same, optimizer, hook):
    for clear in (lambda self, *args: self.zero_grad(), lambda self, *args: self.zero_grad(set_to_none=False)):
        hooked, plain = learner(type("Own", (net,), {hook: clear}), optimizer), learner(net, optimizer)
        assert same(hooked.fit(Fit(hooked.initial(), blobs(18))), plain.fit(Fit(plain.initial(), blobs(18))))


@pytest.mark.parametrize("optimizer", ["module", "sgd"])
def test_hooks_may_edit_gradients(learner, net, blobs, optimizer):
    def clip(self, *args):
        nn.utils.clip_grad_norm_(self.parameters(), 1e-12)

    def replace(self, *args):
        for p in self.parameters():
            p.grad = p.grad * 1e-12

    for hook, edit in [("on_after_backward", replace), ("on_before_optimizer_step", clip)]:
        members = {hook: edit, "configure_optimizers": lambda self: torch.optim.SGD(self.parameters(), 0.1)}
        trained = learner(type("Own", (net,), members), optimizer, weight_decay=0.0)
        weights = trained.fit(Fit(trained.initial(), blobs(18)))
        torch.testing.assert_close(weights.params, trained.initial().params, rtol=0, atol=1e-9)


def test_load_state_dict_in_a_hook(learner, net, blobs, same):
    class Restarts(net):
        def on_train_start(self):
            self.load_state_dict({k: torch.zeros_like(v) for k, v in self.state_dict().items()})

    trained, plain = learner(Restarts), learner(net)
    zeros = plain.initial().replace(params=torch.zeros(53))
    assert same(trained.fit(Fit(trained.initial(), blobs(18))), plain.fit(Fit(zeros, blobs(18))))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda self: setattr(self.head.weight, "data", self.head.weight.data.clone()),
            "storage of parameter 'head.weight'",
        ),
        (
            lambda self: setattr(self.head, "weight", nn.Parameter(torch.ones(3, 5))),
            "storage of parameter 'head.weight'",
        ),
        (
            lambda self: self.load_state_dict({k: v.clone() for k, v in self.state_dict().items()}, assign=True),
            "storage",
        ),
        (lambda self: self.half(), "storage of parameter 'body.0.weight'"),
        (lambda self: setattr(self, "new", nn.Linear(2, 2)), "6 trainable parameter tensors after training and had 4"),
        (lambda self: self.fixed.data.add_(1), "changed its frozen parameter 'fixed'"),
        (lambda self: self.fixed.requires_grad_(True), "5 trainable parameter tensors after training and had 4"),
    ],
)
def test_broken_storage_is_refused_clearly(learner, net, blobs, harm, message):
    class Breaks(net):
        def __init__(self):
            super().__init__()
            self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)

        def on_train_end(self):
            harm(self)

    trained = learner(Breaks)
    with pytest.raises(ConfigError, match=message) as error:
        trained.fit(Fit(trained.initial(), blobs(8)))
    assert "\n" not in str(error.value)


def test_freezing_in_a_hook_lasts_for_one_fit(learner, net, blobs):
    class Freezes(net):
        def on_fit_start(self):
            self.body.requires_grad_(False)

    trained = learner(Freezes)
    weights = trained.fit(Fit(trained.initial(), blobs(18)))
    moved = weights.params != trained.initial().params
    assert torch.equal(moved, trained.layout.mask("head"))
    assert all(p.requires_grad for p in trained.module.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.LazyLinear(3), "'odd.weight' is lazy"),
        (lambda: nn.ParameterDict({"c": nn.Parameter(torch.zeros(2, dtype=torch.complex64))}), "holds complex numbers"),
    ],
)
def test_what_cannot_be_flattened(learner, net, make, message):
    class Odd(net):
        def __init__(self):
            super().__init__()
            self.odd = make()

    with pytest.raises(ConfigError, match=message):
        learner(Odd)


@pytest.mark.parametrize("optimizer", ["module", "sgd"])
def test_channels_last_batches_leave_the_weights_contiguous(learner, conv_net, blobs, optimizer):
    class Steady(conv_net):
        """Without Dropout, which draws in the order of memory."""

        def __init__(self):
            super().__init__()
            self.body[3] = nn.Identity()

    found = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        data = blobs(18, (2, 6, 6))
        data.memory_format, data.dtype = memory_format, torch.float64
        trained = learner(Steady, optimizer, precision="64-true")
        found.append(trained.fit(Fit(trained.initial(), data)).params)
        assert trained.module.body[0].weight.is_contiguous()
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("32-true", torch.float32), ("64-true", torch.float64), ("bf16-mixed", torch.float32)]
)
def test_precision(learner, conv_net, blobs, precision, dtype):
    seen = set()

    class Sees(conv_net):
        def training_step(self, batch, batch_idx):
            seen.add((self.head.weight.dtype, self(batch[0]).dtype))
            return super().training_step(batch, batch_idx)

    data, trained = blobs(18, (2, 6, 6)), learner(Sees, "sgd", precision=precision)
    data.dtype = dtype
    weights = trained.fit(Fit(trained.initial(), data))
    assert weights.params.dtype == weights.buffers.dtype == dtype
    assert seen == {(dtype, torch.bfloat16 if precision == "bf16-mixed" else dtype)}
    assert trained.loss(weights, data) > 0


def test_a_method_with_zero_pull_is_fedavg(learner, net, blobs, same):
    trained = learner(net, "sgd")
    edited = trained.fit(Fit(trained.initial(), blobs(18), step=Step(lambda g, w, s: None)))
    assert same(edited, trained.fit(Fit(trained.initial(), blobs(18))))


def test_dropout_of_what_follows_is_drawn_anew(learner, conv_net, blobs, same):
    trained, data = learner(conv_net, batch_size="full", shuffle=False), blobs(18, (2, 6, 6))
    fits = [trained.fit(Fit(trained.initial(), data, amount=Amount(epochs=1, after=after))) for after in (0, 1)]
    assert not same(*fits)


@pytest.mark.parametrize("optimizer", ["module", "sgd"])
def test_a_running_average_goes_from_fit_to_fit_as_in_plain_pytorch(learner, net, blobs, optimizer):
    class Averaged(net):
        def __init__(self) -> None:
            super().__init__()
            self.slow = AveragedModel(self.body)

        def on_train_batch_end(self, *_: Any) -> None:
            self.slow.update_parameters(self.body)
            seen.append(self.body[0].weight.detach().clone())

    seen: list[Tensor] = []
    trained = learner(Averaged, optimizer, weight_decay=0.1)
    start = trained.initial()
    for _ in range(2):
        start = trained.fit(Fit(start, blobs(18)))
    trained.flat.load(start)
    assert torch.allclose(trained.module.slow.module[0].weight, torch.stack(seen).mean(0), atol=1e-6)
    assert int(trained.module.slow.n_averaged) == len(seen)


@pytest.mark.parametrize("engine", ["loop", "trainer", "compiled"])
def test_what_a_module_counts_in_an_attribute_gets_to_no_other_client(learner, net, blobs, same, engine):
    class Counts(net):
        def __init__(self):
            super().__init__()
            self.seen, self.mean = 0, torch.zeros(())

        def forward(self, x):
            return super().forward(x) * (1 + self.mean)

        def training_step(self, batch, batch_idx):
            self.seen += 1
            self.mean = 0.9 * self.mean + 0.1 * batch[0].mean()
            return super().training_step(batch, batch_idx) * self.seen

    def fit(trained, key):
        return trained.fit(Fit(trained.initial(), blobs(18, key=(0, 1, key))))

    first, other = learner(Counts, engine=engine), learner(Counts, engine=engine)
    assert first.remarks() == []
    weights = [fit(first, 0), fit(first, 1)]
    assert same(fit(other, 1), weights[1])
    assert same(fit(other, 0), weights[0])
    assert first.evaluate(weights[0], blobs(9)) == learner(Counts).evaluate(weights[0], blobs(9))
    (line,) = first.remarks()
    assert line.startswith("model Counts: its code changes self.mean, self.seen, which stays with no client: ")


@pytest.mark.parametrize("engine", ["loop", "trainer", "compiled"])
def test_an_evaluation_in_a_fit_leaves_attributes_as_they_are(learner, net, blobs, same, engine):
    seen = []

    class Counts(net):
        count = 0

        def training_step(self, batch, batch_idx):
            self.count += 1
            seen.append(self.count)
            if self.count == evaluated_after:
                with trained.preserve():
                    trained.evaluate(trained.initial(), blobs(9))
            return super().training_step(batch, batch_idx)

    trained = learner(Counts, engine=engine)
    for evaluated_after in (None, 2):  # noqa: B007 (the module reads it)
        seen.clear()
        trained.fit(Fit(trained.initial(), blobs(8)))
        assert seen[-4:] == [1, 2, 3, 4]


@pytest.mark.parametrize("engine", ["loop", "trainer", "compiled"])
def test_a_module_that_counts_nothing_is_not_spoken_of(learner, conv_net, blobs, engine):
    class Gathers(conv_net):
        def __init__(self):
            super().__init__()
            self.outputs, self.accuracy = [], torchmetrics.MeanMetric()
            self.save_hyperparameters()

        def training_step(self, batch, batch_idx):
            self.outputs.append(batch_idx)
            self.accuracy(1.0)
            self.log("accuracy", self.accuracy)
            return super().training_step(batch, batch_idx)

        def on_train_epoch_end(self):
            self.outputs.clear()

    trained = learner(Gathers, engine=engine)
    weights = trained.fit(Fit(trained.initial(), data := blobs(18, (2, 6, 6))))
    trained.evaluate(weights, data)
    assert trained.remarks() == []
