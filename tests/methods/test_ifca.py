"""ifca: what the specification promises."""

import pytest
import torch

from fedbench.methods.messages import Upload
from tests.methods.simulator import (
    Mlp,
    Product,
    Simulation,
    accuracy_of,
    assert_near,
    assert_same,
    blobs,
    close,
    targets,
)

SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
NONE = torch.zeros(0)
START = [(1.0, 2.0), (0.0, 0.0)]


def aggregated(trained, sizes=(1, 1, 1), **options):
    """The models after clients with choices 1, 1, 2 uploaded these."""
    run = Simulation("ifca", blobs([9] * 3), clusters=2, train={"precision": "64-true"}, **options)
    run.server.models = [run.initial.replace(params=torch.tensor(m), buffers=NONE) for m in START]
    uploads = [
        Upload(i, n, params=torch.tensor(p), buffers=NONE, counters=NONE.long(), cluster=torch.tensor(c))
        for i, (p, n, c) in enumerate(zip(trained, sizes, (0, 0, 1), strict=True))
    ]
    run.method.aggregate(run.server, uploads)
    return torch.cat([model.params for model in run.server.models])


def test_the_numbers_of_both_options():
    moved = [(0.9, 2.0), (1.0, 1.8), (-0.4, -0.4)]  # a step of 0.1 along (1, 0), (0, 2), (4, 4)
    assert close(aggregated(moved, average="gradients"), [0.966667, 1.933333, -0.133333, -0.133333])
    assert close(aggregated(moved, average="gradients", divisor="cluster"), [0.95, 1.9, -0.4, -0.4])
    trained = [(1.0, 2.0), (5.0, -2.0), (7.0, 7.0)]
    assert close(aggregated(trained), [3, 0, 7, 7])
    assert close(aggregated(trained, (1, 3, 2), weighting="samples"), [4, -1, 7, 7])


def test_a_model_that_nobody_chose_stays_to_the_bit():
    run = Simulation("ifca", blobs([9, 17]), clusters=3)
    before = [model.params.clone() for model in run.server.models]
    run.run(1)
    chosen = {int(u.cluster) for u in run.log[0].uploads.values()}
    for number, model in enumerate(run.server.models):
        assert torch.equal(model.params, before[number]) == (number not in chosen)


@pytest.mark.parametrize("shared", ["none", "body"])
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_one_cluster_is_fedavg(shared, weighting):
    more = {"draw": SOME, "weighting": weighting}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), **more, **o).run(3)  # noqa: E731
    run, plain = make("ifca", clusters=1, shared=shared), make("fedavg")
    assert_same(run, plain)
    assert torch.equal(run.method.global_model(run.server, run.initial).params, plain.server.params)


def test_one_gradient_of_one_cluster_is_one_step_of_fedavg():
    train = {"precision": "64-true", "weight_decay": 0.01, "momentum": 0.9}
    run = Simulation("ifca", blobs([9, 17]), train=train, clusters=1, average="gradients").run(3)
    one = train | {"steps": 1, "momentum": 0}
    assert_near(run, Simulation("fedavg", blobs([9, 17]), train=one, weighting="uniform").run(3))


@pytest.mark.parametrize("shared", ["none", "body"])
def test_gradients_divided_by_cluster_are_models_after_one_step(shared):
    train = {"precision": "64-true", "momentum": 0}
    make = lambda more, **o: Simulation("ifca", blobs([9, 17, 12]), train=train | more, shared=shared, **o).run(3)  # noqa: E731
    run = make({}, average="gradients", divisor="cluster", init="jitter", init_scale=0.3)
    assert_near(run, make({"steps": 1}, init="jitter", init_scale=0.3))


def test_equal_models_go_to_the_first_cluster():
    make = lambda m, **o: Simulation(m, blobs([9, 17]), weighting="uniform", **o).run(1)  # noqa: E731
    run = make("ifca", init="jitter", init_scale=0.0)
    assert_same(run, make("fedavg"), ["after_fit"])
    assert [int(u.cluster) for u in run.log[0].uploads.values()] == [0, 0]


@pytest.mark.parametrize("shared", ["none", "body"])
def test_clients_choose_the_lowest_loss(shared):
    run = Simulation("ifca", blobs([9, 17, 12, 20]), module=Mlp(norm=True), shared=shared, clusters=3).run(2)
    for i in range(4):
        losses = [run.learner.loss(model, run.data[i]) for model in run.server.models]
        found = run.log[1].after_agg[i]
        assert found.cluster == losses.index(min(losses))
        assert torch.equal(found.params, run.server.models[found.cluster].params)
    head = run.context.layout.mask("head")
    bodies = [model.params[~head] for model in run.server.models]
    assert torch.equal(bodies[0], bodies[1]) == (shared == "body")
    assert not torch.equal(*(model.params[head] for model in run.server.models[:2]))


def test_bytes_are_those_of_all_models():
    for shared, down in (("none", 3 * 79), ("body", 79 + 2 * 24)):
        run = Simulation("ifca", blobs([9, 17]), module=Mlp(norm=True), shared=shared).run(1)
        assert set(run.log[0].down.values()) == {4 * down}
        assert set(run.log[0].up.values()) == {4 * 79 + 1}
    assert set(Simulation("ifca", blobs([9]), clusters=1).run(1).log[0].up.values()) == {4 * 59}


def test_groups_with_other_labels_get_models_of_their_own():
    shifts = (0, 2, 2, 0)
    data = [blobs([60], seed=seed, shift=shift)[0] for seed, shift in enumerate(shifts)]
    tests = [blobs([200], seed=9, shift=shift)[0] for shift in (0, 2)]
    run = Simulation("ifca", data, clusters=2, shared="body", train={"epochs": 3}, seed=1).run(6)
    clusters = [run.log[-1].after_agg[i].cluster for i in range(4)]
    assert clusters[0] == clusters[3] != clusters[1] == clusters[2]
    plain = Simulation("fedavg", data, train={"epochs": 3}).run(6).log[-1].after_agg[0]
    assert (
        accuracy_of(run.learner, run.log[-1].after_agg[0], tests[0]) > accuracy_of(run.learner, plain, tests[0]) + 0.2
    )


def test_a_newcomer_trains_the_model_of_its_cluster_also_where_gradients_are_averaged():
    train = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1}
    run = Simulation("ifca", targets(1.0), module=Product(), train=train, clusters=1, average="gradients")
    assert close(run.joined(targets(1.0)[0], 2).params, [1.1869, 1.1869])


def test_the_choice_of_a_client_and_the_sizes_of_clusters_are_traced():
    run = Simulation("ifca", blobs([9, 17, 12]), clusters=2, seed=1).run(2)
    seen = run.log[-1]
    chosen = {client: int(upload.cluster) for client, upload in seen.uploads.items()}
    assert {client: seen.traces[client, "cluster"] - 1 for client in chosen} == chosen
    sizes = [seen.traces[-1, f"cluster_size/{number}"] for number in (1, 2)]
    assert sizes == [[*chosen.values()].count(number) for number in (0, 1)]


@pytest.mark.parametrize("shared", ["none", "body"])
def test_the_reference_of_an_upload_is_the_model_that_was_trained(shared):
    run = Simulation("ifca", blobs([9, 17, 12]), clusters=3, shared=shared, init="jitter").run(1)
    for number in range(3):
        upload = Upload(1, 17, cluster=torch.tensor(number))
        start = run.method.reference(run.message(1), upload)
        assert torch.equal(start, run.server.models[number].params)
