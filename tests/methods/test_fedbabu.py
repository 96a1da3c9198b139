"""fedbabu: what the specification promises."""

import pytest
import torch
from torch import nn

from fedbench.errors import ConfigError
from fedbench.methods.messages import Upload
from tests.methods.simulator import Mlp, Product, Simulation, assert_same, blobs, close, equal, targets

PLAIN = {"lr": 0.1, "momentum": 0, "weight_decay": 0, "batch_size": 1, "epochs": 2}
SOME = lambda t: [0, 2] if t % 2 else [0, 1]  # noqa: E731
HARD = {"momentum": 0.9, "weight_decay": 0.01, "keep_optimizer": True}


@pytest.mark.parametrize(
    ("scope", "tuned"), [("all", [1.337495, 1.173475]), ("head", [1.19, 1.179130]), ("body", [1.3439, 1.0])]
)
def test_two_steps_of_the_body_and_two_of_fine_tuning(scope, tuned):
    run = Simulation("fedbabu", targets(1.0), module=Product(), train=PLAIN, ft_epochs=2, ft_scope=scope).run(1)
    assert close(run.log[0].after_fit[0].params, [1.19, 1.0])
    assert close(run.log[0].after_agg[0].params, tuned)


@pytest.mark.parametrize(("weighting", "mean"), [("samples", [3.25, 5]), ("uniform", [2.5, 4])])
def test_bodies_are_averaged(weighting, mean):
    run = Simulation("fedbabu", blobs([1, 3]), weighting=weighting)
    none = torch.zeros(0)
    bodies = [torch.tensor([1.0, 2.0]), torch.tensor([4.0, 6.0])]
    uploads = [Upload(i, n, params=b, buffers=none, counters=none) for i, (n, b) in enumerate(zip((1, 3), bodies))]  # noqa: B905
    run.method.aggregate(run.server, uploads)
    assert close(run.server.params, mean)


def test_without_fine_tuning_it_is_fedrep_without_a_head_phase():
    train = {"batch_size": "full", "shuffle": False, "momentum": 0.9, "weight_decay": 0.01}
    make = lambda m, **o: Simulation(m, blobs([9, 17, 12]), module=Mlp(norm=True), train=train, draw=SOME, **o).run(3)  # noqa: E731
    rep = make("fedrep", head_epochs=0, body_epochs=2, weighting="samples")
    assert_same(make("fedbabu", ft_epochs=0), rep)


def test_fine_tuning_the_body_is_the_next_round_of_training():
    train = {"batch_size": "full", "shuffle": False, "epochs": 2}
    run = Simulation("fedbabu", blobs([9]), module=Mlp(norm=True), train=train, ft_scope="body", ft_epochs=2).run(3)
    for t in (0, 1):
        assert equal(run.log[t].after_agg[0], run.log[t + 1].after_fit[0])


@pytest.mark.parametrize("options", [{"ft_scope": "head"}, {"ft_scope": "body", "ft_lr": 0.5}, {"ft_epochs": 1}])
def test_the_head_never_moves_and_fine_tuning_changes_no_later_round(options):
    more = {"draw": SOME, "train": HARD}
    make = lambda **o: Simulation("fedbabu", blobs([9, 17, 12]), module=Mlp(norm=True), **more, **o).run(3)  # noqa: E731
    run, plain = make(**options), make(ft_epochs=0)
    assert_same(run, plain, ["after_fit"])
    head = run.context.layout.mask("head")
    for seen in run.log:
        for model in seen.after_fit.values():
            assert torch.equal(model.params[head], run.initial.params[head])
        assert all(len(upload.params) == int((~head).sum()) for upload in seen.uploads.values())
    common = run.method.global_model(run.server, run.initial)
    assert torch.equal(common.params[head], run.initial.params[head])
    assert not torch.equal(common.params[~head], run.initial.params[~head])
    still = {"head": ~head, "body": head}.get(options.get("ft_scope", ""))
    if still is not None:
        assert torch.equal(run.log[-1].after_agg[0].params[still], common.params[still])
    assert torch.equal(run.log[-1].after_agg[0].params, run.personal(0).params)


def test_nothing_of_the_head_is_kept_or_sent():
    run = Simulation("fedbabu", blobs([9, 17]), module=Mlp(norm=True)).run(2)
    assert all(state.is_empty for state in run.states.values())
    assert all(set(seen.up.values()) == set(seen.down.values()) == {4 * (69 - 24 + 10)} for seen in run.log)


def test_a_head_of_zeros_is_refused():
    module = Mlp()
    nn.init.zeros_(module.head.weight)
    nn.init.zeros_(module.head.bias)
    with pytest.raises(ConfigError, match="starts with zeros"):
        Simulation("fedbabu", blobs([9]), module=module)


def test_rare_fine_tuning_has_no_personal_model_before_the_end():
    run = Simulation("fedbabu", blobs([9]), rounds=2, ft_when="final").run(2)
    assert run.log[0].after_agg[0] is None
    assert run.log[1].after_agg[0] is not None
