"""cfl: what the specification promises."""

from itertools import combinations

import numpy as np
import pytest
import torch

from fedbench.methods.cfl import cosines_of, split_in_two, update_norms
from tests.methods.simulator import Mlp, Simulation, assert_same, blobs

UPDATES = [torch.tensor(u, dtype=torch.float64) for u in ((3, 4), (4, 3), (-3, -3.9), (-4, -3))]
SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731


def test_norms_and_cosines_on_paper():
    assert update_norms(UPDATES, [1, 1, 1, 1]) == pytest.approx((0.025, 5), abs=1e-9)
    assert update_norms(UPDATES, [1, 1, 2, 1])[0] == pytest.approx(0.968297, abs=5e-7)
    cosines = cosines_of(UPDATES)
    assert [cosines[0, j] for j in (1, 2, 3)] == pytest.approx([0.96, -0.999926, -0.96], abs=5e-7)
    for linkage in ("single", "complete"):
        one, other, across = split_in_two(cosines, linkage)
        assert (one, other) == ([0, 1], [2, 3])
        assert across == pytest.approx(-0.96)
    assert cosines_of([torch.zeros(2), torch.ones(2)])[0, 1] == 0


def test_both_linkages_on_paper():
    values = iter([-0.1, 0.3, 0, 0.5, 0.1, 0.7, 0.4, 0.6, 0.2, -0.4])
    cosines = np.eye(5)
    for i, j in combinations(range(5), 2):
        cosines[i, j] = cosines[j, i] = next(values)
    assert split_in_two(cosines, "single") == ([0, 4], [1, 2, 3], 0.4)
    assert split_in_two(cosines, "complete") == ([0, 2, 4], [1, 3], 0.6)


def test_single_linkage_finds_the_cut_of_the_least_cosine():
    draw = np.random.default_rng(0)
    for _ in range(20):
        cosines = draw.uniform(-1, 1, (6, 6))
        cosines = (cosines + cosines.T) / 2
        halves = [set(h) | {0} for n in range(5) for h in combinations(range(1, 6), n)]
        best = min(max(cosines[i, j] for i in half for j in range(6) if j not in half) for half in halves)
        assert split_in_two(cosines, "single")[2] == pytest.approx(best)


ALWAYS = {"eps1": 1e30, "eps2": 0, "start_round": 0, "min_cluster_size": 1}


@pytest.mark.parametrize("options", [{"start_round": 9}, {"eps1": 0}, {"eps2": 1e30}, {"min_cluster_size": 3}])
@pytest.mark.parametrize("buffers", ["average", "private"])
def test_without_a_cut_it_is_fedavg(options, buffers):
    more = {"draw": SOME, "weighting": "samples", "buffers": buffers}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), **more, **o).run(3)  # noqa: E731
    assert_same(make("cfl", **{**ALWAYS, **options}), make("fedavg"))


def test_clusters_of_one_train_alone():
    make = lambda m, **o: Simulation(m, blobs([9, 17]), module=Mlp(norm=True), **o).run(3)  # noqa: E731
    assert_same(make("cfl", **ALWAYS), make("local"))


def test_a_cut_needs_an_update_of_every_member():
    run = Simulation("cfl", blobs([9, 17, 12]), draw=lambda t: [t % 3], **ALWAYS).run(4, evaluate=False)
    assert [len(seen.traces) > 3 for seen in run.log[:3]] == [False, False, True]
    assert sorted(member for members in run.server.clusters for member in members) == [0, 1, 2]


def test_similar_halves_stay_together():
    make = lambda **o: Simulation("cfl", blobs([9, 17, 12]), **{**ALWAYS, **o}).run(1).server.clusters  # noqa: E731
    assert len(make()) == 2
    assert make(gamma_max=1.0) == [[0, 1, 2]]
    assert len(make(gamma_max=0.0)) == 2


def test_absent_halves_keep_the_old_model_and_clusters_share_one():
    run = Simulation("cfl", blobs([9, 17, 12, 20]), **ALWAYS).run(1)
    first, second = run.server.clusters
    run.draw = lambda t: first
    kept = run.server.models[1].params.clone()
    run.run(1, evaluate=False)
    found = {tuple(members): model for members, model in zip(run.server.clusters, run.server.models, strict=True)}
    assert torch.equal(found[tuple(second)].params, kept)
    for members, model in found.items():
        assert all(torch.equal(run.personal(i).params, model.params) for i in members)


def test_the_second_cut_is_of_the_members_not_of_their_places():
    """Clients 0 and 3 are alike, 1 and 4, 2 and 5: two cuts separate them."""
    data = [blobs([40], seed=seed, shift=seed % 3)[0] for seed in range(6)]
    train = {"batch_size": "full", "epochs": 5, "momentum": 0}
    run = Simulation("cfl", data, train=train, rounds=9, **{**ALWAYS, "min_cluster_size": 2}).run(4, evaluate=False)
    assert run.server.clusters == [[0, 3], [1, 4], [2, 5]]


def test_thresholds_in_the_wrong_order_are_said():
    assert any("eps1" in line for line in Simulation("cfl", blobs([9]), **ALWAYS).warnings)
    assert not any("eps1" in line for line in Simulation("cfl", blobs([9])).warnings)
