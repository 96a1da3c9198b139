"""Built-in optimisers on the flat vector, hard freezing, and optimiser state across rounds."""

from functools import partial

import pytest
import torch
from torch import nn

from fedbench.engine.fit import Amount, Fit, Move, Part, Step
from fedbench.engine.optimizers import clip_gradient
from fedbench.errors import ConfigError
from fedbench.module.masks import MOST_SLICES


def vector(module):
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", 1e-6), ("64-true", 1e-12)])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, 0.05, momentum=0.5, weight_decay=5e-4)),
        ("adam", lambda p: torch.optim.Adam(p, 0.05, weight_decay=5e-4)),
        ("adamw", lambda p: torch.optim.AdamW(p, 0.05, weight_decay=5e-4)),
    ],
)
def test_built_in_optimizers_are_torchs(learner, net, blobs, name, make, precision, tolerance):
    data = blobs(18)
    data.dtype = torch.float64 if precision == "64-true" else torch.float32
    trained = learner(net, name, lr=0.05, precision=precision, shuffle=False, epochs=3)
    weights = trained.fit(Fit(trained.initial(), data))
    torch.manual_seed(7)
    module = net().to(data.dtype)
    optimizer = make(module.parameters())
    for _ in range(3):
        for index in torch.arange(18).split(4):
            optimizer.zero_grad()
            module.training_step(data.batch(index), 0).backward()
            optimizer.step()
    tolerance *= 1 if name == "sgd" else 10
    torch.testing.assert_close(weights.params, vector(module), rtol=0, atol=tolerance)


def patterns(size: int) -> dict[str, torch.Tensor]:
    scattered = torch.zeros(size, dtype=torch.bool)
    scattered[torch.randperm(size, generator=torch.Generator().manual_seed(0))[: size // 2]] = True
    contiguous = torch.zeros(size, dtype=torch.bool)
    contiguous[3:20] = True
    return {"contiguous": contiguous, "scattered": scattered, "alternating": torch.arange(size) % 2 == 0}


WAYS = {"ranges": (64, 0.25), "gathered": (-1, 1.0), "put back": (-1, 0.0)}
"""Runs from which a mask is scattered, and the share of moving entries up to which those are gathered."""


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """How frozen entries are kept from moving."""
    monkeypatch.setattr("fedbench.engine.optimizers.MOST_SLICES", WAYS[request.param][0])
    monkeypatch.setattr("fedbench.engine.optimizers.LITTLE", WAYS[request.param][1])


@pytest.mark.parametrize("engine", ["loop", "trainer"])
@pytest.mark.parametrize("optimizer", ["module", "sgd", "adamw"])
@pytest.mark.parametrize("pattern", ["contiguous", "scattered", "alternating"])
def test_a_frozen_entry_never_moves(learner, conv_net, blobs, pattern, optimizer, engine, way):
    trained = learner(conv_net, optimizer, engine=engine, momentum=0.9, weight_decay=0.1)
    mask, start, memory = patterns(trained.layout.size)[pattern], trained.initial(), {}
    weights = trained.fit(Fit(start, blobs(18, (2, 6, 6)), move=Move(mask), step=Step(memory=memory)))
    weights = trained.fit(Fit(weights, blobs(18, (2, 6, 6)), move=Move(mask), step=Step(memory=memory)))
    assert torch.equal(weights.params[~mask], start.params[~mask])
    assert (weights.params != start.params)[mask].float().mean() > 0.9


@pytest.mark.parametrize("pattern", ["contiguous", "scattered", "alternating"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_masks_are_kept_to_in_three_ways_with_one_result(learner, net, blobs, monkeypatch, optimizer, pattern):
    results = []
    for most, little in WAYS.values():
        monkeypatch.setattr("fedbench.engine.optimizers.MOST_SLICES", most)
        monkeypatch.setattr("fedbench.engine.optimizers.LITTLE", little)
        trained, memory = learner(net, optimizer, momentum=0.9, weight_decay=0.1), {}
        weights, mask = trained.initial(), patterns(trained.layout.size)[pattern]
        for part in (mask, ~mask, mask, None):
            move = None if part is None else Move(part)
            weights = trained.fit(Fit(weights, blobs(18), move=move, step=Step(memory=memory)))
        results.append([weights.params, *(v for v in memory["optimizer"].values() if v is not None)])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-5, atol=1e-6)


def test_what_a_model_does_to_its_parameters_between_steps_counts(learner, net, blobs, way):
    class Clipped(net):
        def on_train_batch_end(self, *_):
            with torch.no_grad():
                for parameter in self.parameters():
                    parameter.clamp_(-0.05, 0.05)

    trained = learner(Clipped, "sgd", weight_decay=0.0)
    mask = torch.arange(trained.layout.size) % 5 == 0
    weights = trained.fit(Fit(trained.initial(), blobs(18), move=Move(mask)))
    assert weights.params[mask].abs().max() <= 0.05


@pytest.mark.parametrize("optimizer", ["sgd", "module"])
def test_a_fit_begins_without_the_gradients_of_the_one_before(learner, net, blobs, optimizer):
    seen = []

    class Curious(net):
        def on_train_batch_start(self, batch, batch_idx):
            seen.append(sum(float(p.grad.abs().sum()) for p in self.parameters() if p.grad is not None))

    made = learner(Curious, optimizer=optimizer, epochs=1)
    for _ in range(2):
        made.fit(Fit(made.initial(), blobs(12)))
    first, *_ = seen
    assert first == seen[len(seen) // 2] == 0
    assert max(seen) > 0


def test_freezing_a_part_does_not_change_how_the_rest_moves(learner, net, blobs, same, way):
    """Leaving out ranges, freezing whole tensors and undoing a scattered mask are the same thing."""

    def expected(mask):
        def keep(g, w, s):
            g.mul_(s.mask)

        trained = learner(net, "sgd", weight_decay=0.0)
        return trained.fit(Fit(trained.initial(), blobs(18), step=Step(keep, mask=mask.float())))

    trained = learner(net, "sgd", weight_decay=0.0)
    masks = [trained.layout.mask("head"), torch.arange(53) % 2 == 0, torch.arange(53) < 20]
    for mask in masks:
        got = trained.fit(Fit(trained.initial(), blobs(18), move=Move(mask)))
        torch.testing.assert_close(got.params, expected(mask).params, rtol=0, atol=1e-7)


def test_nothing_to_train(learner, net, blobs, same):
    trained = learner(net)
    nothing = torch.zeros(53, dtype=torch.bool)
    assert same(trained.fit(Fit(trained.initial(), blobs(18), move=Move(nothing))), trained.initial())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "module"])
def test_rounds_with_memory_are_one_long_round(learner, net, blobs, same, optimizer):
    options = {"batch_size": "full", "shuffle": False}
    rounds, once = (learner(net, optimizer, **options) for _ in range(2))
    weights, memory = rounds.initial(), {}
    for _ in range(3):
        weights = rounds.fit(Fit(weights, blobs(18), amount=Amount(epochs=2), step=Step(memory=memory)))
    assert same(weights, once.fit(Fit(once.initial(), blobs(18), amount=Amount(epochs=6))))
    assert not same(weights, without_memory(learner(net, optimizer, **options), blobs(18)))


def without_memory(trained, data):
    weights = trained.initial()
    for _ in range(3):
        weights = trained.fit(Fit(weights, data, amount=Amount(epochs=2)))
    return weights


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "module"])
def test_a_memory_is_not_written_by_the_fit_that_goes_on_with_it(learner, net, blobs, optimizer):
    trained, memory = learner(net, optimizer), {}
    weights = trained.fit(Fit(trained.initial(), blobs(18), step=Step(memory=memory)))
    before = memory["optimizer"]
    kept = [t.clone() for t in tensors(before)]
    trained.fit(Fit(weights, blobs(18), step=Step(memory=memory)))
    assert memory["optimizer"] is not before
    assert all(torch.equal(a, b) for a, b in zip(kept, tensors(before), strict=True))


@pytest.mark.parametrize("engine", ["loop", "trainer"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "module"])
def test_phases_with_one_memory(learner, net, blobs, same, optimizer, engine):
    """A phase of the head alone leaves the body's momentum as it was; the next phase goes on with both."""
    trained, memory = learner(net, optimizer, engine=engine), {}
    start = trained.fit(Fit(trained.initial(), blobs(18), step=Step(memory=memory)))
    before = [t.clone() for t in tensors(memory["optimizer"]) if t.dim()]
    tuned = trained.fit(Fit(start, blobs(18), move=Move(trained.layout.mask("head")), step=Step(memory=memory)))
    after = [t for t in tensors(memory["optimizer"]) if t.dim()]
    flat = [torch.cat([t.flatten() for t in kept]) for kept in (before, after)]
    assert len(flat[0]) == len(flat[1]) == (2 if optimizer == "adam" else 1) * trained.layout.size
    assert 0 < (flat[0] == flat[1]).float().mean() < 1
    again = trained.fit(Fit(tuned, blobs(18), step=Step(memory=memory)))
    assert not same(again, trained.fit(Fit(tuned, blobs(18), step=Step(memory={}))))


@pytest.mark.parametrize("pattern", ["contiguous", "scattered", "alternating"])
def test_frozen_entries_keep_their_momentum(learner, conv_net, blobs, pattern, way):
    trained, memory, data = learner(conv_net, "sgd", momentum=0.9), {}, blobs(18, (2, 6, 6))
    start = trained.fit(Fit(trained.initial(), data, step=Step(memory=memory)))
    before, mask = memory["optimizer"]["momentum_buffer"].clone(), patterns(trained.layout.size)[pattern]
    trained.fit(Fit(start, data, move=Move(mask), step=Step(memory=memory)))
    after = memory["optimizer"]["momentum_buffer"]
    assert torch.equal(after[~mask], before[~mask])
    assert (after != before)[mask].float().mean() > 0.9


def tensors(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [t for value in tree.values() for t in tensors(value)] if isinstance(tree, dict) else []


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "module"])
def test_a_memory_outlives_a_change_of_the_mask(learner, net, blobs, optimizer):
    trained, memory = learner(net, optimizer), {}
    head = trained.layout.mask("head")
    weights = trained.fit(Fit(trained.initial(), blobs(18), move=Move(head), step=Step(memory=memory)))
    for mask in (~head, torch.arange(53) % 2 == 0, None):
        move = None if mask is None else Move(mask)
        weights = trained.fit(Fit(weights, blobs(18), move=move, step=Step(memory=memory)))
    assert weights.is_finite()


def test_the_rate_of_a_round(learner, net, blobs, same):
    decayed, lower = learner(net, "sgd", lr=0.1), learner(net, "sgd", lr=0.05)
    half = decayed.fit(Fit(decayed.initial(), blobs(18), step=Step(decay=0.5)))
    assert same(half, lower.fit(Fit(lower.initial(), blobs(18))))
    assert same(half, lower.fit(Fit(lower.initial(), blobs(18), step=Step(lr=0.1, decay=0.5))))


@pytest.mark.parametrize("engine", ["loop", "trainer"])
@pytest.mark.parametrize("optimizer", ["module", "sgd", "adamw"])
def test_a_step_that_a_method_asks_for_is_the_edited_gradient_times_the_rate(learner, net, blobs, optimizer, engine):
    trained = learner(net, optimizer, engine=engine, lr=0.1, momentum=0.9, weight_decay=0.1)
    start, state = trained.initial(), {"direction": torch.linspace(-1, 1, trained.layout.size)}
    weights = trained.fit(
        Fit(start, blobs(18), amount=Amount(steps=3), step=Step(replaced, decay=0.5, rule=torch.optim.SGD, **state))
    )
    torch.testing.assert_close(weights.params, start.params - 3 * 0.05 * state["direction"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("engine", ["loop", "trainer"])
@pytest.mark.parametrize("optimizer", ["module", "sgd"])
def test_an_optimizer_that_a_method_asks_for_goes_on_with_its_vectors(learner, net, blobs, optimizer, engine):
    trained = learner(net, optimizer, engine=engine, lr=0.1, momentum=0.9, weight_decay=0.1)
    start, size, memory = trained.initial(), trained.layout.size, {}
    direction = torch.linspace(-1, 1, size) ** 3
    adam = partial(torch.optim.Adam, betas=(0.5, 0.75), eps=0.1)
    weights = start
    for steps in (2, 3):
        weights = trained.fit(
            Fit(
                weights,
                blobs(18),
                amount=Amount(steps=steps),
                step=Step(replaced, memory=memory, rule=adam, direction=direction * steps),
            )
        )
    expected = start.params.clone().requires_grad_()
    alone = adam([expected], lr=0.1)
    for factor in (2, 2, 3, 3, 3):
        expected.grad = direction * factor
        alone.step()
    torch.testing.assert_close(weights.params, expected.detach(), rtol=0, atol=1e-6)
    held = memory["optimizer"]
    assert set(held) == {"step", "exp_avg", "exp_avg_sq"}
    assert float(held["step"]) == 5
    for name in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(held[name], alone.state[expected][name])


def replaced(g, w, s):
    g.copy_(s.direction)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("keep", [False, True])
def test_parts_have_settings_of_their_own(learner, net, blobs, name, keep):
    """As with parameter groups of torch.optim; a second fit continues with the state of the first."""
    data, own = blobs(18), {"lr": 0.2, "momentum": 0.0, "weight_decay": 0.1}
    data.dtype = torch.float64
    trained = learner(net, name, lr=0.05, precision="64-true", shuffle=False, epochs=2)
    slots = trained.layout.params
    mask = torch.zeros(trained.layout.size, dtype=torch.bool)
    mask[slots[1].start : slots[2].stop] = True
    weights, memory = trained.initial(), {} if keep else None
    for _ in range(2):
        step = Step(parts=[Part(mask, **own)], memory=memory, decay=0.5)
        weights = trained.fit(Fit(weights, data, step=step))
    torch.manual_seed(7)
    module = net().to(data.dtype)
    parameters = list(module.parameters())
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name]
    more = {"momentum": 0.5} if name == "sgd" else {}
    own = own | {"lr": 0.1} if name == "sgd" else {"lr": 0.1, "weight_decay": 0.1}

    def make():
        groups = [{"params": [parameters[0], *parameters[3:]]}, {"params": parameters[1:3], **own}]
        return kind(groups, 0.025, weight_decay=5e-4, **more)

    optimizer = make()
    for _ in range(2):
        optimizer = optimizer if keep else make()
        for index in [*torch.arange(18).split(4)] * 2:
            optimizer.zero_grad()
            module.training_step(data.batch(index), 0).backward()
            optimizer.step()
    torch.testing.assert_close(weights.params, vector(module), rtol=0, atol=1e-11)


def test_parts_keep_still_what_does_not_move(learner, net, blobs):
    trained = learner(net, "sgd", weight_decay=0.1)
    half, quarter = (torch.arange(trained.layout.size) < trained.layout.size // share for share in (2, 4))
    step = Step(parts=[Part(quarter, lr=1.0)])
    found = trained.fit(Fit(trained.initial(), blobs(18), move=Move(half), step=step))
    assert torch.equal(found.params != trained.initial().params, half)


def test_parts_need_a_built_in_optimiser_and_few_ranges(learner, net, blobs):
    trained, data = learner(net, "sgd"), blobs(18)
    scattered = Part(torch.arange(trained.layout.size) % 2 == 0, lr=1.0)
    if trained.layout.size > 2 * MOST_SLICES:
        with pytest.raises(ConfigError, match="ranges"):
            trained.fit(Fit(trained.initial(), data, step=Step(parts=[scattered])))
    own = learner(net, "module")
    with pytest.raises(ConfigError, match=r"train\.optimizer = module"):
        own.fit(Fit(own.initial(), data, step=Step(parts=[scattered])))


@pytest.mark.parametrize("most", [0.5, 20.0])
def test_a_gradient_is_clipped_as_by_torch(most):
    parameter = nn.Parameter(torch.zeros(7))
    parameter.grad = torch.arange(7.0)
    rows = torch.stack([parameter.grad, 2 * parameter.grad])
    clip_gradient(rows, most)
    nn.utils.clip_grad_norm_([parameter], most)
    assert torch.equal(rows[0], parameter.grad)
    assert float(rows[1].norm()) == pytest.approx(min(most, 2 * 91**0.5), abs=1e-4)


def test_what_does_not_move_has_no_part_in_the_norm():
    g = torch.tensor([3.0, 4.0, 1e6])
    clip_gradient(g, 1.0, torch.tensor([True, True, False]))
    torch.testing.assert_close(g, torch.tensor([0.6, 0.8, 0.0]))


def test_a_norm_that_is_not_reached_changes_no_bit(learner, net, blobs, same, way):
    mask = patterns(53)["scattered"]
    found = [learner(net, "sgd", clip_norm=most) for most in (None, 1e9)]
    assert same(*(trained.fit(Fit(trained.initial(), blobs(18), move=Move(mask))) for trained in found))


def test_clipping_and_freezing_agree_in_three_ways(learner, net, blobs, monkeypatch):
    results = []
    for ranges, little in WAYS.values():
        monkeypatch.setattr("fedbench.engine.optimizers.MOST_SLICES", ranges)
        monkeypatch.setattr("fedbench.engine.optimizers.LITTLE", little)
        trained = learner(net, "sgd", clip_norm=0.1)
        results.append(trained.fit(Fit(trained.initial(), blobs(18), move=Move(patterns(53)["alternating"]))).params)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("engine", ["loop", "trainer"])
def test_the_rates_of_a_models_own_optimiser_are_scaled(learner, net, blobs, same, engine):
    class Half(net):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)

    def trained(kind, step=None, **train):
        made = learner(kind, engine=engine, **train)
        return made.fit(Fit(made.initial(), blobs(18), step=step or Step()))

    assert same(trained(net, lr_scale=0.5), trained(Half))
    assert not same(trained(net, lr_scale=0.5), trained(net))
    assert same(trained(net, Step(lr=0.05), lr_scale=4), trained(Half)), "a rate that a method sets is as it is"


def test_the_rates_of_built_in_optimisers_are_not_scaled(learner, net, blobs, same):
    plain, scaled = learner(net, "sgd"), learner(net, "sgd", lr_scale=4)
    assert same(*(made.fit(Fit(made.initial(), blobs(18))) for made in (plain, scaled)))
