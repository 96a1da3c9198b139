"""fedselect: what the specification promises."""

from itertools import accumulate, pairwise
from math import ceil
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning import LightningModule
from torch import nn

from fedbench.aggregation.packed import bits_to_mask, mask_to_bits
from fedbench.config import Config, TrainConfig
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.methods.fedselect import FedSelect, competing_entries, grow_mask
from fedbench.methods.messages import Upload
from fedbench.methods.server import Context, ServerState
from fedbench.module.layout import Layout, Slot
from fedbench.module.weights import Weights
from tests.methods.simulator import Mlp, Simulation, assert_same, blobs, close, targets

SIZES = [9, 17, 12]
FULL = {"lr": 0.1, "epochs": 2, "batch_size": "full", "shuffle": False, "precision": "64-true"}
FULL |= {"momentum": 0, "weight_decay": 0}


def bits(text: str) -> torch.Tensor:
    return torch.tensor([c == "1" for c in text if c != "|"])


def text(mask: torch.Tensor) -> str:
    return "".join(str(int(m)) for m in mask)


def layered(*sizes) -> Layout:
    """Of weights of these sizes."""
    edges = pairwise(accumulate(sizes, initial=0))
    slots = [Slot(f"layer{i}.weight", (stop - start,), start, stop) for i, (start, stop) in enumerate(edges)]
    return Layout(tuple(slots), (), ())


def run(rounds=4, norm=False, clients=SIZES, **options) -> Simulation:
    draw, train = options.pop("draw", None), {"lr": 0.05, "epochs": 2, "batch_size": 8, **options.pop("train", {})}
    return Simulation("fedselect", blobs(clients), module=Mlp(norm), draw=draw, train=train, **options).run(rounds)


CHANGE = torch.tensor([0.3, 0.1, 0.3, 0.2, 0, 0.4, 0.4, 0.4])


@pytest.mark.parametrize(
    ("mask", "p", "alpha", "expected"),
    [
        ("00000|000", 0.4, 0.6, "10100|100"),
        ("00000|000", 0.25, 0.8, "10000|100"),
        ("00000|000", 0.5, 1, "10110|100"),
        ("00000|000", 0.4, 0.3, "10000|000"),
        ("00000|000", 1, 1, "11111|111"),
        ("10100|100", 0.4, 0.6, "10110|100"),
        ("10100|100", 0.4, 1, "10110|110"),
    ],
)
def test_masks_grow_layer_by_layer(mask, p, alpha, expected):
    found = grow_mask(bits(mask), CHANGE, competing_entries(layered(5, 3), "layer", False), p, alpha)
    assert text(found) == expected.replace("|", "")


def test_all_layers_may_compete():
    found = grow_mask(bits("00000000"), CHANGE, competing_entries(layered(5, 3), "global", False), 0.5, 0.5)
    assert text(found) == "10000111"


def test_biases_and_the_like_are_personal_on_request_only():
    layout = Simulation("fedselect", blobs([9]), module=Mlp(norm=True)).context.layout
    weights = [slot.name for slot in layout.params if slot.name.endswith("weight")]
    assert weights == ["body.0.weight", "body.1.weight", "head.weight"]
    assert len(competing_entries(layout, "layer", False)) == 3
    assert len(competing_entries(layout, "layer", True)) == 6
    assert int(competing_entries(layout, "global", False)[0].sum()) == 30 + 5 + 20
    assert competing_entries(layout, "global", True)[0].all()


layers = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=9), min_size=1, max_size=4)


@given(layers, st.floats(0, 1), st.floats(0, 1), st.sampled_from(["layer", "global"]))
def test_masks_only_grow_and_keep_to_the_limit(changes, p, alpha, scope):
    compete = competing_entries(layered(*map(len, changes)), scope, False)
    change = torch.tensor([v for layer in changes for v in layer], dtype=torch.float32)
    mask = torch.zeros(len(change), dtype=torch.bool)
    for shift in range(3):
        larger = grow_mask(mask, change.roll(shift), compete, p, alpha)
        assert (larger >= mask).all()
        for part in compete:
            before, now = mask[part], larger[part]
            free = int((~before).sum())
            assert now.sum() <= int(alpha * len(now) + 1e-9)
            assert now.sum() - before.sum() <= free - round((1 - p) * free)
            chosen, left = change.roll(shift)[part][now & ~before], change.roll(shift)[part][~now]
            assert not (len(chosen) and len(left)) or chosen.min() >= left.max()
        mask = larger


def test_masks_grow_every_so_many_rounds():
    simulation = run(rounds=5, mask_interval=2, personalization_limit=1.0)
    shares = [seen.traces[0, "personal_share"] for seen in simulation.log]
    assert shares[0] == 0 < shares[1] == shares[2] < shares[3] == shares[4]


def test_change_counts_from_the_received_model_or_from_the_last_growth():
    options = dict(personalization_rate=0.1, personalization_limit=1.0, mask_interval=2)
    compete = competing_entries(run(rounds=0).context.layout, "layer", False)
    for reference in ("round_start", "last_update"):
        simulation = run(rounds=4, delta_reference=reference, **options)
        before = bits_to_mask(run(rounds=3, **options, delta_reference=reference).log[2].uploads[0].mask, 59)
        starts = {
            "round_start": simulation.log[2].after_agg[0].params,
            "last_update": simulation.log[1].after_fit[0].params,
        }
        change = (simulation.log[3].after_fit[0].params - starts[reference]).abs()
        assert torch.equal(simulation.states[0].mask, grow_mask(before, change, compete, 0.1, 1.0))
    first = run(rounds=2, delta_reference="last_update", **options)
    change = (first.log[1].after_fit[0].params - first.initial.params).abs()
    assert torch.equal(first.states[0].mask, grow_mask(torch.zeros(59, dtype=torch.bool), change, compete, 0.1, 1.0))


class Sum(LightningModule):
    """(w1 + w2 - 1)^2 / 2 from (0, 0)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def training_step(self, batch):
        return (self.weight.sum() - 1).square() / 2


def alternated(rounds=1, mask="10", passes=None, **options) -> Simulation:
    train = {"lr": 0.1, "batch_size": 1, "epochs": 2, **options.pop("train", {})}
    simulation = Simulation("fedselect", targets(0.0), module=Sum(), train=train, personalization_rate=0, **options)
    simulation.keep(0, mask=bits(mask), kept=bits("00"), trained=simulation.initial.params)
    if passes is not None:
        watch(simulation, lambda stream, start, end: passes.append(end.tolist()))
    return simulation.run(rounds, evaluate=False)


def watch(simulation: Simulation, look) -> None:
    """Call `look(stream, start, end)` with the parameters of every fit from now on."""
    train = simulation.learner.fit

    def watched(fit):
        end = train(fit)
        look(fit.stream, fit.start.params.clone(), end.params.clone())
        return end

    simulation.learner.fit = watched


def test_personal_and_shared_parameters_are_trained_in_turns():
    passes = []
    alternated(passes=passes)
    for found, expected in zip(passes, [(0.1, 0), (0.1, 0.09), (0.181, 0.09), (0.181, 0.1629)], strict=True):
        assert close(found, expected)


def test_an_empty_part_has_no_pass():
    for mask, value in (("00", 0.1), ("11", 0.1)):
        passes = []
        alternated(mask=mask, passes=passes, train={"epochs": 1})
        assert len(passes) == 1
        assert close(passes[0], [value, value])


def test_momentum_rests_during_the_others_pass_and_is_dropped_each_round():
    w, velocity = [0.0, 0.0], [0.0, 0.0]
    for _ in range(2):
        for i in (0, 1):
            velocity[i] = 0.5 * velocity[i] + (sum(w) - 1)
            w[i] -= 0.1 * velocity[i]
    simulation = alternated(train={"momentum": 0.5})
    assert close(simulation.log[0].after_fit[0].params, w)
    dropped, kept = (alternated(2, train={"momentum": 0.5, "keep_optimizer": keep}) for keep in (False, True))
    assert close(kept.log[0].after_fit[0].params, w)
    for simulation, start in ((dropped, [0.0, 0.0]), (kept, velocity)):
        x, v = list(simulation.log[0].after_fit[0].params.tolist()), list(start)
        for _ in range(2):
            for i in (0, 1):
                v[i] = 0.5 * v[i] + (sum(x) - 1)
                x[i] -= 0.1 * v[i]
        assert close(simulation.log[1].after_fit[0].params, x)


def test_decay_acts_on_the_part_that_is_trained():
    simulation = alternated(train={"weight_decay": 0.5, "epochs": 2})
    w = [0.0, 0.0]
    for _ in range(2):
        for i in (0, 1):
            w[i] -= 0.1 * (sum(w) - 1 + 0.5 * w[i])
    assert close(simulation.log[0].after_fit[0].params, w)


def test_the_whole_gradient_is_clipped_before_decay_and_mask():
    passes = []
    alternated(passes=passes, clip_norm=0.5, train={"epochs": 1, "weight_decay": 0.1})
    first = 0.1 * 0.5 / 2**0.5  # the gradient is (-1, -1)
    assert close(passes[0], [first, 0])
    assert close(passes[1], [first, first])
    unclipped = alternated(clip_norm=5.0)
    assert close(unclipped.log[0].after_fit[0].params, [0.181, 0.1629])


@pytest.mark.parametrize("keep", [False, True])
def test_a_pass_moves_its_own_part_only(keep):
    simulation = run(rounds=2, norm=True, train={"momentum": 0.5, "weight_decay": 0.1, "keep_optimizer": keep})
    mask, calls = simulation.states[0].mask, []
    watch(simulation, lambda *call: calls.append(call))
    simulation.draw = lambda t: [0]
    simulation.round(evaluate=False)
    assert [stream for stream, _, _ in calls] == ["personal/0", "shared/0", "personal/1", "shared/1"]
    for stream, start, end in calls:
        frozen = ~mask if stream.startswith("personal") else mask
        assert torch.equal(end[frozen], start[frozen])
        assert (end != start)[~frozen].any()
    assert all(torch.equal(a[2], b[1]) for a, b in pairwise(calls))


MODELS, MASKS = [[1.0, 2, 3], [4.0, 5, 6], [7.0, 8, 9]], ["101", "001", "011"]


def served(samples=(10, 10, 10), **options) -> tuple[ServerState, list[Weights]]:
    """The server's vector after a round, and what every client starts from then."""
    context = Context(layered(3), TrainConfig(optimizer="sgd"), 0, 10, 2, samples)
    made = FedSelect(FedSelect.Options(**options), context)
    nothing, none = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    initial = Weights(torch.tensor([-1.0, -2, -3]), nothing, none)
    server = made.start(initial)
    uploads = [
        Upload(i, n, params=torch.tensor(w), buffers=nothing, counters=none, mask=mask_to_bits(bits(m)))
        for i, (w, m, n) in enumerate(zip(MODELS, MASKS, samples, strict=True))
    ]
    made.aggregate(server, uploads)
    held = []
    for i in range(3):
        state = FedSelect.State(trained=torch.tensor(MODELS[i]), kept=bits(MASKS[i]), mask=bits("111"))
        held.append(made.receive(SimpleNamespace(initial=initial, state=state, message=made.send(server, i))))
    return server, held


def test_a_parameter_is_averaged_over_those_who_share_it():
    server, held = served()
    assert close(server.params, [5.5, 3.5, -3])
    assert close(held[0].params, [1, 3.5, 3])
    assert close(held[1].params, [5.5, 3.5, 6])
    assert close(held[2].params, [5.5, 8, 9])


def test_the_average_may_weigh_by_images():
    server, _ = served(samples=(10, 10, 30), weighting="samples")
    assert close(server.params, [(4 + 3 * 7) / 4, 3.5, -3])


@pytest.mark.parametrize("newly_selected", ["from_server", "keep_local"])
def test_what_was_just_selected_starts_from_the_mean_or_stays(newly_selected):
    simulation = run(rounds=1, newly_selected=newly_selected)
    seen, masks = simulation.log[0], [simulation.states[i].mask for i in range(3)]
    stays = newly_selected == "keep_local"
    for i in range(3):
        kept = seen.after_agg[i].params == seen.after_fit[i].params
        assert kept[masks[i]].all() if stays else not kept[masks[i]].any()
        assert torch.equal(seen.after_agg[i].params[~masks[i]], simulation.server.params[~masks[i]])
    second = simulation.round()
    for i in range(3):
        personal = second.after_agg[i].params[masks[i]]
        assert torch.equal(personal, second.after_fit[i].params[masks[i]])


def test_an_absent_client_returns_to_the_server_where_its_last_training_was_shared():
    simulation = run(rounds=3, draw=lambda t: [0, 1, 2] if t < 3 else [0, 1])
    held, after = simulation.states[2], simulation.log[2].after_agg[2].params
    assert (held.mask > held.kept).any()
    assert torch.equal(after[held.kept], simulation.log[1].after_fit[2].params[held.kept])
    assert torch.equal(after[~held.kept], simulation.server.params[~held.kept])
    new = run(rounds=2, draw=lambda t: [0, 1])
    assert torch.equal(new.log[1].after_agg[2].params, new.server.params)


@pytest.mark.parametrize("share", [{"personalization_rate": 0.0}, {"personalization_limit": 0.0}])
def test_without_personal_parameters_it_is_fedavg(share):
    draw = lambda t: [t % 3, 2] if t % 3 != 2 else [0]  # noqa: E731
    ours, theirs = (
        Simulation(name, blobs(SIZES), draw=draw, module=Mlp(True), train=FULL, buffers="average", **options).run(3)
        for name, options in (("fedselect", share), ("fedavg", {"weighting": "uniform"}))
    )
    for a, b in zip(ours.log, theirs.log, strict=True):
        for i in a.after_fit:
            assert torch.allclose(a.after_fit[i].params, b.after_fit[i].params, rtol=0, atol=1e-12)
        assert torch.allclose(a.after_agg[0].params, b.after_agg[0].params, rtol=0, atol=1e-12)
        assert torch.allclose(a.after_agg[0].buffers, b.after_agg[0].buffers, rtol=0, atol=1e-12)


def test_with_all_parameters_personal_it_is_local_training_from_the_first_average():
    everything = dict(personalization_rate=1, personalization_limit=1, mask_biases=True)
    ours = Simulation("fedselect", blobs(SIZES), train=FULL, **everything).run(4)
    average = Simulation("fedavg", blobs(SIZES), train=FULL, weighting="uniform").run(1).server.params
    assert torch.allclose(ours.log[0].after_agg[0].params, average, rtol=0, atol=1e-12)
    alone = Simulation("local", blobs(SIZES), train=FULL)
    for i in range(3):
        alone.keep(i, params=average)
    alone.run(3)
    for mine, theirs in zip(ours.log[1:], alone.log, strict=True):
        for i in range(3):
            assert torch.allclose(mine.after_agg[i].params, theirs.after_agg[i].params, rtol=0, atol=1e-12)


def test_where_it_meets_co_pfl():
    train = {**FULL, "epochs": 1}
    select = dict(scope="global", mask_biases=True, newly_selected="keep_local", personalization_limit=0.25)
    co = dict(moments="none", grad_score=False, pred_score=False, server_rule="per_index", merge_mask="client")
    co |= dict(phase_coupling="sequential", select_from="unmasked", personalization_budget=0.25)
    ours, theirs = (
        Simulation(name, blobs(SIZES), module=Mlp(True), train=train, personalization_rate=0.25, **options).run(4)
        for name, options in (("fedselect", select), ("co-pfl", co))
    )
    assert_same(ours, theirs)
    assert int(ours.states[0].mask.sum()) == ours.context.layout.size // 4


def test_invariants_of_a_run():
    simulation = run(rounds=0, norm=True, draw=lambda t: [0, 1, 2] if t % 2 else [0, 2])
    layout = simulation.context.layout
    before = {i: torch.zeros(layout.size, dtype=torch.bool) for i in range(3)}
    biases = torch.zeros(layout.size, dtype=torch.bool)
    for slot in layout.params:
        biases[slot.start : slot.stop] = not slot.name.endswith("weight")
    for _ in range(4):
        seen = simulation.round()
        shared_by_all = torch.ones(layout.size, dtype=torch.bool)
        for i, upload in seen.uploads.items():
            mask, old = simulation.states[i].mask, before[i]
            assert (mask >= old).all()
            assert not mask[biases].any()
            assert torch.equal(bits_to_mask(upload.mask, layout.size), old)
            assert not upload.params[old].any()
            assert all(mask[s.start : s.stop].sum() <= s.size // 2 for s in layout.params)
            assert torch.equal(seen.after_agg[i].params[old], seen.after_fit[i].params[old])
            assert torch.equal(seen.after_agg[i].buffers, seen.after_fit[i].buffers)
            shared_by_all &= ~old
            before[i] = mask
        for i in seen.uploads:
            assert torch.equal(seen.after_agg[i].params[shared_by_all], simulation.server.params[shared_by_all])


@pytest.mark.parametrize(("buffers", "sent"), [("private", 0), ("average", 1)])
def test_bytes(buffers, sent):
    simulation = run(norm=True, buffers=buffers)
    size, statistics = simulation.context.layout.size, 4 * sent * simulation.context.layout.buffer_size
    for t, seen in enumerate(simulation.log, 1):
        for i, upload in seen.uploads.items():
            personal = int(bits_to_mask(upload.mask, size).sum())
            assert (personal > 0) == (t > 1)
            assert seen.up[i] == 4 * (size - personal) + ceil(size / 8) + statistics
            assert seen.down[i] == 4 * size + statistics


def test_mask_shares_are_traced():
    simulation = run(rounds=2, mask_biases=True)
    traces, size = simulation.log[1].traces, simulation.context.layout.size
    assert traces[0, "personal_share"] == pytest.approx(int(simulation.states[0].mask.sum()) / size)
    used = [bits_to_mask(simulation.log[1].uploads[i].mask, size) for i in range(3)]
    slot = simulation.context.layout.params[0]
    share = sum(int(m[slot.start : slot.stop].sum()) for m in used) / (3 * slot.size)
    assert traces[-1, f"personal_share/{slot.name}"] == pytest.approx(share)


def test_nobody_is_asked_for_a_global_model():
    simulation = run(rounds=1)
    assert simulation.method.global_model(simulation.server, simulation.initial) is None
    part = simulation.method.shared_part(simulation.server, simulation.initial)
    assert torch.equal(part.params, simulation.server.params), "which all of them receive"


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ({"optimizer": "adam"}, "train.optimizer = 'adam': fedselect is defined for sgd only"),
        ({"epochs": 0}, "train.epochs = 0: fedselect trains at least 1 epoch"),
    ],
)
def test_training_that_it_is_not_defined_for_is_refused(train, told):
    with pytest.raises(ConfigError, match=told):
        run(rounds=0, train=train)


def test_local_steps_are_refused():
    with pytest.raises(ConfigError, match=r"train.steps: fedselect names its own epochs"):
        resolve(Config(method="fedselect", train={"steps": 3}))


@pytest.mark.parametrize(
    "option",
    [
        {"personalization_rate": 1.1},
        {"personalization_limit": -0.1},
        {"mask_interval": 0},
        {"scope": "network"},
        {"clip_norm": 0.0},
    ],
)
def test_values_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        FedSelect.Options(**option)
