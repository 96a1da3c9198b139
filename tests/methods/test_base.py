"""Counters of normalisation layers stay with the running statistics beside them; who takes an aggregator, and when."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn

from fedbench.aggregation.rules.krum import Krum
from fedbench.aggregation.rules.mean import Mean
from fedbench.config import MethodConfig
from fedbench.errors import ConfigError
from fedbench.methods import checked_options, load, names
from fedbench.methods.base import Method, decisions_in, takes_aggregators, uses_aggregator
from fedbench.module.weights import Weights
from tests.methods.simulator import Mlp, Simulation, blobs

BATCHES = {0: 1, 1: 2, 2: 4}
"""Batches of eight in an epoch of each client."""


class TwoNorms(LightningModule):
    """One BatchNorm in the body and one in the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())
        self.head = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 4))

    def training_step(self, batch):
        return F.cross_entropy(self.head(self.body(batch[0])), batch[1])


@pytest.mark.parametrize(
    ("method", "options", "private"),
    [
        ("fedavg", {}, []),
        ("fedavg", {"buffers": "private"}, [0, 1]),
        ("fedper", {}, [1]),
        ("fedper", {"extra_private": ["body.1"]}, [0, 1]),
        ("fedrep", {"head_epochs": 1}, [1]),
        ("lg-fedavg", {}, [0]),
        ("lg-fedavg", {"extra_shared": ["body.1"]}, []),
        ("fedbn", {}, [0, 1]),
        ("fedbn", {"private": "none"}, []),
        ("fedcac", {}, [0, 1]),
        ("fedcac", {"bn_stats": "global"}, [0, 1]),
        ("fedamp", {}, [0, 1]),
    ],
    ids=str,
)
def test_a_counter_is_private_where_its_statistics_are(method, options, private):
    clients = blobs([8, 16, 32])
    draw = lambda t: range(4 - t)  # noqa: E731
    made = Simulation(method, clients, module=TwoNorms(), train={"epochs": 1}, draw=draw, **options).run(3)
    epochs = {0: 3, 1: 2, 2: 1}
    for client, held in made.log[-1].after_agg.items():
        own, shared = BATCHES[client] * epochs[client], 7  # 4, 6, 7: each round's largest
        for number, count in enumerate(held.counters.tolist()):
            assert count == (own if number in private else shared), (client, number)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("apfl", {"mixing": "logits"}),
        ("co-pfl", {"moments": "shared"}),
        ("ditto", {"personal_epochs": 3}),
        ("ditto", {"mode": "finetune"}),
        ("fedct", {"combine": "sum"}),
        ("feddpa", {"training": "joint"}),
        ("fedmosaic", {"lambda_update": "epoch"}),
        ("fedpac", {"head_epochs": 2, "body_epochs": 3}),
        ("fedrep", {"head_epochs": 0}),
        ("fedrod", {"personal_training": "after"}),
        ("floco", {"endpoints": 2, "personal_epochs": 3}),
        ("flute", {"rep_epochs": 1}),
        ("per-fedavg", {"variant": "hf"}),
        ("per-fedavg", {"variant": "exact"}),
        ("pfedgate", {"alternation": "joint", "gate_norm": "none"}),
        ("pfedgate", {"gate": False}),
        ("pfedme", {"inner_steps": 2}),
    ],
    ids=str,
)
@pytest.mark.parametrize("steps", [None, 3])
def test_a_method_says_how_many_steps_a_client_makes(method, options, steps):
    kind = load(method)
    if steps and "epochs" in kind.needs:
        return
    public = blobs([12])[0] if "public" in kind.needs else None
    made = Simulation(method, blobs([9, 17, 40]), public=public, train={"steps": steps}, **options).run(2, False)
    for client, count in made.log[1].steps.items():
        assert count == kind.steps(made.method.options, made.train, len(made.data[client]), len(public or ()))


def test_who_never_took_part_has_counted_nothing():
    made = Simulation("fedper", blobs([8, 16]), module=TwoNorms(), train={"epochs": 1}, draw=lambda t: [1])
    made.run(2)
    assert made.log[-1].after_agg[0].counters.tolist() == [4, 0]


class Inherits(Method):
    """Says nothing of the server half."""


class Replaces(Method):
    """Has a server half without a mark."""

    def aggregate(self, server, uploads):
        server.params = uploads[0].params


class Extends(Method):
    """Calls the one of the base class, and is marked."""

    @uses_aggregator
    def aggregate(self, server, uploads):
        super().aggregate(server, uploads)
        server.trace("uploads", len(uploads))


class Below(Replaces):
    """Takes the server half of another class as it is."""


def test_a_server_half_of_its_own_uses_no_aggregator_unless_it_is_marked():
    kinds = (Method, Inherits, Replaces, Extends, Below)
    assert [takes_aggregators(kind) for kind in kinds] == [True, True, False, True, False]


def test_with_too_few_uploads_the_shared_model_stays_and_the_run_says_so():
    krum = Krum(Krum.Options(byzantine=1), "krum")
    drawn = {1: range(5), 2: range(4), 3: range(5)}
    made = Simulation("fedavg", blobs([8] * 5), draw=lambda t: drawn[min(t, 3)], aggregator=krum)
    before = [made.server.params]
    for _ in range(3):
        made.round(evaluate=False)
        before.append(made.server.params)
    assert [torch.equal(a, b) for a, b in pairwise(before)] == [False, True, False]
    line = "aggregator krum: a round had fewer than 5 uploads, so the shared model was left unchanged"
    assert made.recorder.warnings == [line]


COMMON = {"weighting": ("samples", "uniform"), "buffers": ("average", "private")}
MORE = {
    "lg-fedavg": {"extra_shared": ["body.1"]},
    "floco": {"endpoints": 2, "tau": 1},
    "pfedgate": {"gate_norm": "none"},
}
"""What shares statistics, or what three clients with six features need."""


@pytest.mark.parametrize("option", COMMON)
@pytest.mark.parametrize("name", names())
def test_a_common_option_has_an_effect_or_is_none(name, option):
    if option not in load(name).Options.model_fields:
        with pytest.raises(ConfigError, match=rf"unknown key method\.{option}: method {name} takes "):
            checked_options(MethodConfig(name=name, **{option: COMMON[option][1]}))
        return
    public = blobs([20], seed=7)[0] if "public" in load(name).needs else None
    one, other = (
        Simulation(
            name, blobs([9, 17, 12]), module=Mlp(norm=True), public=public, **MORE.get(name, {}), **{option: value}
        )
        for value in COMMON[option]
    )
    for made in (one, other):
        made.run(2)
    last, data = [made.log[-1] for made in (one, other)], one.data
    models = [[of(seen.after_agg[i], data[i]) for i in range(3)] for seen in last]
    assert last[0].up != last[1].up or not all(map(torch.equal, *models))


def of(personal, data):
    """The numbers of a personal model, or its scores where it is no single vector."""
    if isinstance(personal, Weights):
        return torch.cat([personal.params, personal.buffers])
    return personal.scores(data)


def test_decisions_are_the_list_of_the_methods_file():
    assert decisions_in("A method.\n\nWhere we decide:\n- One\n  and more.\n- Two.\n\nOther words.\n") == [
        "One and more.",
        "Two.",
    ]
    assert decisions_in("A method.\n") == []
    found = {name: load(name).decisions(load(name).Options()) for name in names()}
    assert sum(map(bool, found.values())) >= 24
    assert not found["fedavg"]
    assert not found["local"]
    assert "Overlap: the paper prints |M_i - M_j| / 2n, which is 0 for equal masks." in found["fedcac"][0]
    derived = type("Own", (load("fedcac"),), {})
    assert derived.decisions(derived.Options()) == found["fedcac"]
    assert type("Own", (Method,), {}).decisions(Method.Options()) == []


def test_a_simulation_ends_with_its_last_round():
    run = Simulation("fedavg", blobs([9, 17]), rounds=2).run(2)
    with pytest.raises(ValueError, match=r"the simulation has 2 rounds: Simulation\(..., rounds=...\) makes it longer"):
        run.run(1)


class FrozenHead(Method):
    def frozen(self, layout):
        return layout.masks("head")


def test_frozen_entries_are_neither_trained_nor_sent_nor_kept():
    train = {"momentum": 0.9, "weight_decay": 0.1, "keep_optimizer": True}
    run = Simulation(FrozenHead, blobs([9, 17]), module=Mlp(norm=True), train=train).run(2)
    head = run.context.layout.mask("head")
    assert all(torch.equal(seen.after_fit[0].params[head], run.initial.params[head]) for seen in run.log)
    assert all(len(upload.params) == int((~head).sum()) for upload in run.log[-1].uploads.values())
    assert all(state.params is None for state in run.states.values())
    common = run.method.global_model(run.server, run.initial)
    assert torch.equal(common.params[head], run.initial.params[head])
    assert not torch.equal(common.params[~head], run.initial.params[~head])


class OwnHead(Method):
    def private(self, layout):
        return layout.masks("head")


class OwnModels(OwnHead):
    def global_model(self, server, initial):
        """None."""


def test_what_clients_share_is_the_servers_part_unless_the_method_has_a_word_of_its_own():
    run = Simulation(OwnHead, blobs([9, 17])).run(1)
    head = run.context.layout.mask("head")
    part = run.method.shared_part(run.server, run.initial)
    assert torch.equal(part.params[~head], run.server.params)
    assert torch.equal(part.params[head], run.initial.params[head])
    for kind in (OwnModels, "local"):
        other = Simulation(kind, blobs([9, 17])).run(1)
        assert other.method.shared_part(other.server, other.initial) is None


class Clipped:
    """Clips the norm of what leaves a client, whatever the method is."""

    def outgoing(self, client, received, upload):
        move = upload.params - self.shared_params.take(received.params)
        return upload.add(params=upload.params - move + move * min(1.0, 0.01 / float(move.norm())))


@pytest.mark.parametrize("name", ["fedavg", "fedper", "fedrep"])
def test_what_leaves_a_client_can_be_changed_for_any_method(name):
    kind = load(name)
    run = Simulation(type("Both", (Clipped, kind), {}), blobs([9, 17])).run(1)
    start, plain = run.method.shared_params.take(run.initial.params), Simulation(name, blobs([9, 17])).run(1)
    for client, upload in run.log[0].uploads.items():
        assert float((upload.params - start).norm()) == pytest.approx(0.01, rel=1e-4)
        assert torch.equal(run.log[0].after_fit[client].params, plain.log[0].after_fit[client].params)


class Seeing(Method):
    def personal(self, client, model, point):
        assert ("params" in client.message) == (point == "after_agg")
        return model


def test_a_fit_is_evaluated_without_a_message():
    assert Simulation(Seeing, blobs([9])).run(2).log[1].after_agg


class Noisy(Mean):
    """The mean with noise."""

    def combine(self, models, weights, current, memory):
        mean = super().combine(models, weights, current, memory)
        return mean.replace(params=mean.params + torch.randn(len(mean.params), generator=self.generator("noise")))


def test_an_aggregator_draws_by_seed_and_round():
    run, again, other = (Simulation("fedavg", blobs([9]), aggregator=Noisy(), seed=s).run(2) for s in (0, 0, 1))
    assert torch.equal(run.server.params, again.server.params)
    noise = [run.log[t].after_agg[0].params - run.log[t].after_fit[0].params for t in (0, 1)]
    assert not torch.allclose(noise[0], noise[1], atol=0.1)
    assert not torch.allclose(run.server.params, other.server.params, atol=0.1)
