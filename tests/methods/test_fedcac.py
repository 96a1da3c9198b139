"""fedcac: what the specification promises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.aggregation.packed import bits_to_mask, mask_overlaps, mask_to_bits
from fedbench.errors import ConfigError
from fedbench.methods.fedcac import FedCAC, above_threshold, overlaps, sensitivity, threshold
from fedbench.methods.messages import Upload
from fedbench.methods.server import Context, ServerState
from fedbench.module.layout import Layout, Slot
from fedbench.module.weights import Weights
from tests.methods.simulator import Mlp, Simulation, assert_same, blobs, close, equal

A, B, C, D = "11110000", "11101000", "00011110", "11000011"


def bits(text: str) -> torch.Tensor:
    return torch.tensor([c == "1" for c in text])


def text(mask: torch.Tensor) -> str:
    return "".join(str(int(m)) for m in mask)


def method(size=8, clients=4, rounds=20, layers=None, **options) -> FedCAC:
    """On a model that is one vector, or several layers of these sizes."""
    slots, start = [], 0
    for i, n in enumerate(layers or [size]):
        slots.append(Slot(f"layer{i}", (n,), start, start + n))
        start += n
    made = FedCAC(
        FedCAC.Options(**options), Context(Layout(tuple(slots), (), ()), None, 0, rounds, 2, tuple([10] * clients))
    )
    made.check()
    return made


class OneClient:
    """All that the choice of critical parameters asks of a client."""

    def __init__(self, seed=0):
        self.seed = seed

    def generator(self, stream):
        assert stream == "mask"
        return torch.Generator().manual_seed(self.seed)


def critical(received, trained, **options) -> str:
    received, trained = torch.tensor(received), torch.tensor(trained)
    return text(method(len(received), **options).critical(OneClient(), received, trained))


def overlap_of(*masks: str, kind="critical") -> torch.Tensor:
    return overlaps(mask_overlaps(torch.stack([mask_to_bits(bits(m)) for m in masks])), len(masks[0]), kind)


def sets(made: FedCAC, overlap: torch.Tensor, round: int) -> dict[str, str]:
    found = made.collaborators(overlap, round)
    return {name: "".join("ABCD"[j] for j in row.nonzero().flatten()) for name, row in zip("ABCD", found, strict=False)}


def upload(client: int, params, mask: str, buffers=(), samples=10) -> Upload:
    packed = mask_to_bits(bits(mask))
    return Upload(client, samples, params=torch.as_tensor(params).float(), buffers=torch.tensor(buffers), mask=packed)


RECEIVED = [0.5, -0.2, 0.3, 0, 1, -0.4, 0.25, 0.8]
TRAINED = [0.6, -0.4, 0.1, 0.1, 0.9, -0.4, 0.35, 0.7]


def test_sensitivity_is_the_change_times_the_trained_value():
    s = sensitivity(torch.tensor(RECEIVED), torch.tensor(TRAINED))
    assert close(s, [0.06, 0.08, 0.02, 0.01, 0.09, 0, 0.035, 0.07])


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({"tau": 0.5}, "11001001"),
        ({"tau": 0.5, "selection": "reverse"}, "00110110"),
        ({"tau": 0.25}, "01001000"),
        ({"tau": 0.3}, "01001000"),
        ({"tau": 0.0}, "00000000"),
        ({"tau": 1.0}, "11111111"),
        ({"tau": 0.0, "ties": "threshold"}, "00000000"),
    ],
)
def test_masks(options, mask):
    assert critical(RECEIVED, TRAINED, **options) == mask


def test_ties_go_to_the_lower_index_or_all_count():
    received, trained = [0.0] * 6, [1.0, 2, 2, 0, -2, 1]
    assert critical(received, trained, tau=0.34) == "011000"
    assert critical(received, trained, tau=0.34, ties="threshold") == "011010"
    assert critical(received, trained, tau=0.34, selection="reverse") == "100100"


def test_exact_zeros():
    received, trained = [0.0, 0, 1, 1, 0.5, 2], [0.0, 0, 1, 1.5, 0.5, 2]
    assert critical(received, trained, tau=0.5) == "110100"
    assert critical(received, trained, tau=0.5, ties="threshold") == "000100"
    assert text(above_threshold(torch.zeros(4), 2)) == "1111"
    assert text(above_threshold(torch.tensor([0.5, 0.25, 0.125]), 2)) == "110", "only a least score of 0 counts as none"


def test_layers_are_masked_one_by_one_and_the_count_is_truncated():
    received = torch.zeros(9)
    trained = torch.tensor([9.0, 8, 7, 6, 0.4, 0.3, 0.2, 0.1, 5])
    assert text(method(layers=[4, 4, 1]).critical(OneClient(), received, trained)) == "110011000"
    assert int(method(100, tau=0.29).critical(OneClient(), torch.zeros(100), torch.rand(100)).sum()) == 28


def test_random_masks_have_the_same_size_and_a_stream_of_their_own():
    made = method(layers=[50, 30, 1], selection="random")
    masks = [made.critical(OneClient(seed), torch.zeros(81), torch.rand(81)) for seed in (0, 0, 1)]
    assert [int(m[:50].sum()) for m in masks] == [25] * 3
    assert [int(m[50:80].sum()) for m in masks] == [15] * 3
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_random_masks_are_drawn_afresh_and_leave_training_alone():
    random = Simulation("fedcac", blobs([20, 20]), collaboration="none", selection="random").run(2)
    other = Simulation("fedcac", blobs([20, 20]), collaboration="none").run(1)
    assert all(equal(random.log[0].after_fit[i], other.log[0].after_fit[i]) for i in (0, 1))
    masks = [tuple(seen.uploads[i].mask.tolist()) for seen in random.log for i in (0, 1)]
    assert len(set(masks)) == 4


def test_overlaps():
    o = overlap_of(A, B, C, D)
    assert close([o[0, 1], o[0, 2], o[0, 3], o[1, 2], o[1, 3], o[2, 3]], [0.75, 0.25, 0.5, 0.25, 0.5, 0.25])
    o = overlap_of(A, B, C, D, kind="all")
    assert close([o[0, 1], o[0, 2], o[0, 3]], [0.875, 0.625, 0.75])
    o = overlap_of(A, B, C, D, kind="literal")
    assert close([o[0, 1], o[0, 2]], [0.125, 0.375])


def test_overlap_of_masks_of_different_size_and_of_none():
    o = overlap_of("11110000", "11000000", "00000000")
    assert close(o[0, 1], [1 - 2 / 8])
    assert close(o[1, 0], [1 - 2 / 4])
    assert close(o[2], [0, 0, 0])
    assert close(o[0, 2], [0.5])


@pytest.mark.parametrize("kind", ["critical", "all"])
@pytest.mark.parametrize(
    ("round", "expected"),
    [
        (1, {"A": "BD", "B": "AD", "C": "", "D": "AB"}),
        (2, {"A": "B", "B": "A", "C": "", "D": ""}),
        (4, {"A": "B", "B": "A", "C": "", "D": ""}),
        (5, {"A": "", "B": "", "C": "", "D": ""}),
    ],
)
def test_collaborators(kind, round, expected):
    assert sets(method(beta=4, overlap=kind), overlap_of(A, B, C, D, kind=kind), round) == expected


def test_the_threshold_rises_from_the_average_to_the_largest_overlap():
    o = overlap_of(A, B, C, D)
    found = [threshold(o, t / 4) for t in (0, 1, 2, 4)]
    assert close(found, [0.416667, 0.5, 0.583333, 0.75])


def test_the_printed_overlap_picks_the_least_similar():
    found = sets(method(beta=4, overlap="literal"), overlap_of(A, B, C, D, kind="literal"), 1)
    assert found == {"A": "C", "B": "C", "C": "ABD", "D": "C"}


def test_top_k_takes_the_most_alike_and_the_lower_client_of_equal_ones():
    o = overlap_of(A, B, C, D)
    for round in (1, 1000):
        assert sets(method(collaboration="top_k"), o, round) == {"A": "B", "B": "A", "C": "A", "D": "A"}
    everyone = {"A": "BCD", "B": "ACD", "C": "ABD", "D": "ABC"}
    assert sets(method(collaboration="top_k", top_k=3), o, 1) == everyone
    assert sets(method(collaboration="top_k", top_k=99), o, 1) == everyone


def test_equal_overlaps_end_with_beta_too():
    o = overlap_of(A, B)
    made = method(beta=3, clients=2)
    assert [sets(made, o, t) for t in (1, 3, 4)] == [{"A": "B", "B": "A"}] * 2 + [{"A": "", "B": ""}]


def test_beta_is_a_fifth_of_the_rounds_and_at_least_one():
    assert method(rounds=500).beta == 100
    assert method(rounds=3).beta == 1
    assert method(rounds=3, beta=1.5).beta == 1.5
    o = overlap_of(A, B)
    assert sets(method(beta=2.5, clients=2), o, 2) == {"A": "B", "B": "A"}
    assert sets(method(beta=2.5, clients=2), o, 3) == {"A": "", "B": ""}


mask_lists = st.integers(2, 6).flatmap(
    lambda n: st.lists(st.permutations([1] * 5 + [0] * 6).map(lambda b: "".join(map(str, b))), min_size=n, max_size=n)
)


@given(mask_lists, st.floats(1, 8))
def test_invariants_of_overlap_and_collaborators(masks, beta):
    o = overlap_of(*masks)
    assert torch.equal(o, o.T)
    assert ((o >= 0) & (o <= 1)).all()
    made = method(11, clients=len(masks), beta=beta)
    before = None
    for t in range(1, 10):
        now = made.collaborators(o, t)
        assert not now.diagonal().any()
        assert torch.equal(now, method(11, beta=beta, overlap="all").collaborators(overlap_of(*masks, kind="all"), t))
        if before is not None:
            assert not (now & ~before).any()
        assert t <= beta or not now.any()
        assert t > beta or now.any()
        before = now


MODELS = {
    "A": [1.0, 2, 3, 4, 5, 6, 7, 8],
    "B": [2.0] * 8,
    "C": [0.0, 1, 0, 1, 0, 1, 0, 1],
    "D": [4.0, 3, 2, 1, 0, -1, -2, -3],
}
MASKS = {"A": A, "B": B, "C": C, "D": D}


def merged(
    made: FedCAC, names="ABCD", round=2, samples=(10, 10, 10, 10)
) -> tuple[dict[str, torch.Tensor], ServerState]:
    server = made.start(initial(8))
    server.round = round
    numbers = ["ABCD".index(n) for n in names]
    server.participants = numbers
    made.aggregate(
        server, [upload(i, MODELS[n], MASKS[n], (), samples[i]) for i, n in zip(numbers, names, strict=True)]
    )
    return {n: made.send(server, "ABCD".index(n)).params for n in "ABCD"}, server


def initial(size, buffers=0):
    return Weights(torch.full((size,), 0.5), torch.full((buffers,), 0.25), torch.zeros(0, dtype=torch.int64))


def test_the_merge():
    new, _ = merged(method(beta=4))
    assert new["A"].tolist() == [1.5, 2, 2.5, 3, 1.75, 2, 1.75, 2]
    assert new["B"].tolist() == [1.5, 2, 2.5, 2, 3.5, 2, 1.75, 2]
    assert new["C"].tolist() == [1.75, 2, 1.75, 1, 0, 1, 0, 2]
    assert new["D"].tolist() == [4, 3, 1.75, 2, 1.75, 2, -2, -3]


def test_noncritical_as_critical_uses_the_own_mean_everywhere():
    new, _ = merged(method(beta=4, noncritical="as_critical"))
    assert new["A"].tolist() == new["B"].tolist() == [1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]
    assert new["C"].tolist() == MODELS["C"]


def test_sample_weights_touch_the_mean_of_all_only():
    new, _ = merged(method(beta=4, weighting="samples"), samples=(10, 10, 10, 30))
    assert new["A"].tolist()[:4] == [1.5, 2, 2.5, 3]
    mean = sum(torch.tensor(MODELS[n]) * k for n, k in zip("ABCD", (10, 10, 10, 30), strict=True)) / 60
    assert close(new["A"][4:], mean[4:].tolist())


def test_only_the_rounds_participants_count():
    for t in (1, 2, 4):
        new, server = merged(method(beta=4), "AB", round=t)
        mean = ((torch.tensor(MODELS["A"]) + torch.tensor(MODELS["B"])) / 2).tolist()
        assert new["A"].tolist() == new["B"].tolist() == mean
        assert new["C"].tolist() == new["D"].tolist() == [0.5] * 8
        assert set(server.rows) == {0, 1}
    new, _ = merged(method(beta=4), "AB", round=5)
    assert new["A"].tolist() == [1, 2, 3, 4, *mean[4:]]


def test_one_participant_keeps_its_model():
    new, _ = merged(method(beta=4), "D", round=1)
    assert new["D"].tolist() == MODELS["D"]


@pytest.mark.parametrize(("bn_stats", "value"), [("critical", 1.5), ("global", 4.0)])
def test_running_statistics(bn_stats, value):
    made = method(clients=3, bn_stats=bn_stats, beta=1)
    server = made.start(initial(8, buffers=1))
    server.round = 1
    masks = [A, A, "00001111"]
    made.aggregate(
        server, [upload(i, [0.0] * 8, m, [b]) for i, (m, b) in enumerate(zip(masks, (0.0, 3.0, 9.0), strict=True))]
    )
    assert made.send(server, 0).buffers.tolist() == [value]


@given(st.integers(1, 5), st.integers(1, 6), st.data())
@settings(max_examples=50)
def test_the_merge_stays_between_the_trained_models(clients, round, data):
    rows = data.draw(
        st.lists(st.lists(st.floats(-9, 9, width=32), min_size=8, max_size=8), min_size=clients, max_size=clients)
    )
    masks = data.draw(st.lists(st.permutations("11110000").map("".join), min_size=clients, max_size=clients))
    made = method(clients=clients, beta=4)
    server = made.start(initial(8))
    server.round = round
    made.aggregate(server, [upload(i, r, m) for i, (r, m) in enumerate(zip(rows, masks, strict=True))])
    trained = torch.tensor(rows)
    for i in range(clients):
        assert (server.rows[i] >= trained.min(0).values - 1e-5).all()
        assert (server.rows[i] <= trained.max(0).values + 1e-5).all()


SIZES = [9, 17, 12, 30]


def run(name="fedcac", rounds=4, norm=False, clients=SIZES, **options) -> Simulation:
    draw = options.pop("draw", None)
    train = options.pop("train", None)
    simulation = Simulation(name, blobs(clients), module=Mlp(norm), draw=draw, train=train, **options)
    return simulation.run(rounds)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("options", [{"tau": 1.0}, {"noncritical": "as_critical"}, {"tau": 1.0, "bn_stats": "local"}])
def test_alone_with_all_critical_it_is_local_training(options, norm):
    alone = run(norm=norm, collaboration="none", **options)
    assert_same(alone, run("local", norm=norm))
    assert all(equal(seen.after_fit[i], seen.after_agg[i]) for seen in alone.log for i in seen.after_fit)


@pytest.mark.parametrize("noncritical", ["all", "as_critical"])
def test_with_all_others_as_collaborators_it_is_fedavg(noncritical):
    mine = run(collaboration="top_k", top_k=3, noncritical=noncritical, rounds=2)
    plain = run("fedavg", weighting="uniform", rounds=2)
    for one, other in zip(mine.log, plain.log, strict=True):
        assert torch.allclose(one.after_agg[2].params, other.after_agg[2].params, rtol=0, atol=1e-6)


def test_the_overlap_over_all_parameters_picks_the_same_clients():
    """By other numbers: agreement counts the parameters, too, that are critical for neither."""
    critical, whole = run(beta=3), run(beta=3, overlap="all")
    assert_same(critical, whole)
    one, other = (seen.log[0].traces[0, "overlap/1"] for seen in (critical, whole))
    assert one < other


def test_two_participants_share_all_until_beta_and_then_the_noncritical():
    two = run(clients=[9, 17], beta=2, rounds=3)
    for seen in two.log[:2]:
        mean = (seen.after_fit[0].params.double() + seen.after_fit[1].params.double()) / 2
        assert all(torch.equal(seen.after_agg[i].params, mean.float()) for i in (0, 1))
    last = two.log[2]
    for i in (0, 1):
        own = last.after_agg[i].params == last.after_fit[i].params
        mask = bits_to_mask(last.uploads[i].mask, len(own))
        assert own[mask].all()
        assert not own[~mask].all()


def test_the_mask_is_that_of_this_round():
    mine = run(norm=True, rounds=3, beta=1)
    for t in (1, 2):
        before, now = mine.log[t - 1].after_agg[0], mine.log[t].after_fit[0]
        made = mine.method.critical(mine.client(0, t + 1), before.params, now.params)
        assert torch.equal(mask_to_bits(made), mine.log[t].uploads[0].mask)


@pytest.mark.parametrize("bn_stats", ["critical", "local", "global"])
def test_counters_stay_at_the_client_and_statistics_follow_the_option(bn_stats):
    mine = run(norm=True, beta=1, rounds=2, bn_stats=bn_stats)
    seen = mine.log[1]
    mean = sum(w.buffers.double() for w in seen.after_fit.values()) / 4
    for i, fitted in seen.after_fit.items():
        assert torch.equal(seen.after_agg[i].counters, fitted.counters)
        if bn_stats == "global":
            assert torch.allclose(seen.after_agg[i].buffers.double(), mean, atol=1e-6)
        else:
            assert torch.equal(seen.after_agg[i].buffers, fitted.buffers)
    assert len({int(w.counters) for w in seen.after_agg.values()}) > 1


def test_absent_clients_wait_in_whole_rounds_too():
    mine = run(draw=lambda t: [0, 1, 2] if t == 1 else [0, 1], norm=True, rounds=3, beta=3)
    assert equal(mine.log[2].after_agg[2], mine.log[0].after_agg[2])
    assert equal(mine.log[2].after_agg[3], mine.initial)


@pytest.mark.parametrize(
    ("options", "twice", "bn_stats"),
    [
        *(({"beta": 2}, [True, True, False], bn_stats) for bn_stats in ("critical", "local", "global")),
        ({"collaboration": "none"}, [False] * 3, "global"),
        ({"collaboration": "top_k", "beta": 1}, [True] * 3, "critical"),
    ],
)
def test_bytes(options, twice, bn_stats):
    mine = run(norm=True, rounds=3, bn_stats=bn_stats, **options)
    size, stats = mine.context.layout.size, 0 if bn_stats == "local" else mine.context.layout.buffer_size
    for seen, double in zip(mine.log, twice, strict=True):
        alone = 4 * (size + stats) if bn_stats == "global" else 4 * size
        assert set(seen.up.values()) == {4 * (size + stats) + -(-size // 8)}
        assert set(seen.down.values()) == {8 * (size + stats) if double else alone}


def test_traces():
    mine = run(rounds=2, beta=1)
    first, second = (seen.traces for seen in mine.log)
    pairs = [first[i, f"overlap/{j}"] for i in range(4) for j in range(4) if i != j]
    assert first[-1, "mask_agreement"] == pytest.approx(sum(pairs) / 12)
    layers = {s.name: int(0.5 * s.size) / s.size for s in mine.context.layout.params}
    assert {n: first[-1, f"critical_share/{n}"] for n in layers} == pytest.approx(layers)
    assert first[-1, "critical_share"] == pytest.approx(sum(int(0.5 * s.size) for s in mine.context.layout.params) / 59)
    assert first[-1, "threshold"] == max(pairs)
    assert sum(first[i, "collaborators"] for i in range(4)) >= 2
    assert [second[i, "collaborators"] for i in range(4)] == [0] * 4
    for name in ("critical_share", "mask_agreement"):
        assert {found for _, found in first if found.startswith(f"{name}/")} == {f"{name}/{layer}" for layer in layers}


def test_many_clients_trace_no_pairs_and_one_participant_no_masks():
    crowd = run(clients=[4] * 21, rounds=1, train={"epochs": 1})
    assert not any("overlap" in name for _, name in crowd.log[0].traces)
    alone = run(draw=lambda t: [2], rounds=1)
    assert alone.log[0].traces == {(2, "collaborators"): 0}


def test_no_client_is_given_the_mean_of_all():
    mine = run(rounds=1)
    assert mine.method.global_model(mine.server, mine.initial) is None
    assert not equal(mine.log[0].after_agg[0], mine.log[0].after_agg[1])


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="ties"):
        method(ties="threshold", selection="reverse")
