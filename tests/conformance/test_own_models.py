"""What every method that takes it promises of clients with models of their own."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedbench.checks.several_hosts import SeveralHosts
from fedbench.config import Config
from fedbench.jobs.resolve import takes_models
from fedbench.methods import load, names
from fedbench.results.reader import Records
from fedbench.runtime.kept.paths import MODELS_FOLDER
from fedbench.studies.load import load_model
from tests.runtime.rounds import play, small, stop

NORMED, DEEP = "tests.runtime.networks:Normed", "tests.runtime.networks:Deep"
ABLE = [name for name in names() if takes_models(load(name))]
every_able_method = pytest.mark.parametrize("method", [pytest.param(m, marks=pytest.mark.xdist_group(m)) for m in ABLE])


def asked(method: str, model: Any, **more: Any) -> Config:
    return small(method, model=model, rounds=3, participation=0.6, train__optimizer="sgd", **more)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """The records of a run with both models, by method, made once."""
    known: dict[str, Any] = {}

    def records(method: str) -> dict[str, bytes]:
        if method not in known:
            known[method] = play(asked(method, [NORMED, DEEP]), tmp_path_factory.mktemp(method))
        return known[method]

    return records


@every_able_method
def test_hosts_do_not_change_a_bit(method, mixed, tmp_path):
    assert play(asked(method, [NORMED, DEEP]), tmp_path, SeveralHosts(2)) == mixed(method)


@every_able_method
def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(method, mixed, tmp_path):
    config = asked(method, [NORMED, DEEP], checkpoint__every=1)
    stop(config, tmp_path, round=3)
    assert play(config, tmp_path, resume=True) == mixed(method)


@every_able_method
def test_equal_models_are_one(method, tmp_path):
    alone, twice = (play(asked(method, model), tmp_path / str(len(model))) for model in ([DEEP], [DEEP, DEEP]))
    assert alone == twice


@every_able_method
def test_steps_of_several_clients_are_the_arithmetic_of_the_loop(method, tmp_path):
    exact = dict(train__batch_size=16, train__precision="64-true", train__width=4)
    for engine in ("loop", "compiled"):
        width = {} if engine == "compiled" else {"train__width": 10}
        play(asked(method, [NORMED, DEEP], **exact | width, train__engine=engine), tmp_path / engine)
    a, b = (Records(tmp_path / engine).clients() for engine in ("loop", "compiled"))
    pd.testing.assert_frame_equal(a, b, check_exact=False, rtol=1e-9, atol=1e-12)


def scores(folder: Path, parity: int) -> pd.DataFrame:
    frame = Records(folder).clients()
    return frame[frame["client"] % 2 == parity].reset_index(drop=True)


def test_a_client_has_the_scores_of_its_model(tmp_path):
    """Of local training, in which clients do not affect each other."""
    for name, model in (("both", [NORMED, DEEP]), ("0", NORMED), ("1", DEEP)):
        play(asked("local", model), tmp_path / name)
    for parity in (0, 1):
        alone = scores(tmp_path / str(parity), parity)
        assert len(alone)
        pd.testing.assert_frame_equal(scores(tmp_path / "both", parity), alone, check_exact=True)
    assert not scores(tmp_path / "0", 1).equals(scores(tmp_path / "1", 1))


def test_kept_models_are_those_of_the_clients(tmp_path):
    from fedbench import run

    more = dict(save_models=True, out=str(tmp_path / "out"))
    run(asked("local", [NORMED, DEEP], **more))
    kinds = [type(load_model(tmp_path / "out", client)).__name__ for client in (0, 1, 2)]
    assert kinds == ["Normed", "Deep", "Normed"]
    scripts = [tmp_path / "out" / MODELS_FOLDER / "seed-0" / f"client-{c}" / "predict.py" for c in (0, 1)]
    assert [("Deep(" in path.read_text(), "Normed(" in path.read_text()) for path in scripts] == [
        (False, True),
        (True, False),
    ]
