import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.own_models import takes_models
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load
from tests.runtime.rounds import small

NORMED, DEEP = "tests.runtime.networks:Normed", "tests.runtime.networks:Deep"


def asked(method: str, *models: str, **more) -> Config:
    return small(method, model=list(models), train__optimizer="sgd", **more)


@pytest.mark.parametrize("method", ["fedavg", "knn-per", "fedfomo", "fedper"])
def test_a_method_that_exchanges_whole_models_refuses_several(method):
    with pytest.raises(ConfigError, match=rf"^model = mlp,tests.*: with {method} all clients have one model.* local,"):
        resolve(asked(method, "mlp", DEEP))


def test_one_model_given_twice_is_no_reason_to_refuse():
    assert resolve(asked("fedavg", DEEP, DEEP)).config.model.names == [DEEP, DEEP]


@pytest.mark.parametrize(
    ("method", "own", "other"),
    [("lg-fedavg", r"\[10, 12\], \[10\]", r"\[10, 200\], \[10\]"), ("fedproto", r"\[12\]", r"\[200\]")],
)
def test_what_is_exchanged_has_one_shape(method, own, other):
    with pytest.raises(
        ConfigError, match=f"{method} exchange must have the same shapes .* {own} in tests.* {other} in mlp"
    ):
        check_run(resolve(asked(method, DEEP, "mlp")))
    check_run(resolve(asked(method, DEEP, NORMED)))


def test_pre_training_exchanges_whole_models():
    with pytest.raises(ConfigError, match="must have the same shapes"):
        check_run(resolve(asked("lg-fedavg", DEEP, NORMED, method__pretrain_rounds=1)))


def test_local_training_takes_any_models():
    assert takes_models(load("local"))
    check_run(resolve(asked("local", DEEP, "mlp", "resnet8")))


def test_optimisers_of_models_are_not_mixed():
    with pytest.raises(ConfigError, match=r"Deep has an optimiser of its own.*--train.optimizer sgd"):
        resolve(small("local", model=["mlp", DEEP]))


def test_start_weights_are_those_of_one_model(tmp_path):
    model = {"name": ["mlp", DEEP], "weights": str(tmp_path / "w.pt")}
    with pytest.raises(ConfigError, match="clients have models of their own; leave it out"):
        resolve(small("local", model=model, train__optimizer="sgd"))
