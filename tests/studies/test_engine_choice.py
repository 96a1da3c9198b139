"""Which engine the runs of a study have where the configuration leaves it open."""

from pathlib import Path
from typing import Any

import pytest

from fedbench import processor
from fedbench.config import Config
from fedbench.config.tuning import Tuning
from fedbench.studies import engine_choice
from fedbench.studies.engine_choice import can_compile, choose_engine
from fedbench.studies.grid import plan_grid
from fedbench.studies.tuning_study import TuningStudy
from tests.runtime.rounds import small

TINY = {"name": "mlp", "hidden": [64]}


def study(folder: Path, **more: Any) -> TuningStudy:
    config = small("fedper", out=str(folder), rounds=1, seeds=[0], model=TINY, **more)
    return plan_grid(config, Tuning(), baselines=["local"])


@pytest.fixture
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "LEAST_STEPS", 1)
    monkeypatch.setattr(processor, "compiler", lambda: "g++")


def chosen(study: TuningStudy) -> str:
    choose_engine(study)
    assert study.plan.config["train"]["engine"] == study.config.train.engine
    return study.config.train.engine


@pytest.mark.parametrize(
    ("more", "engine"),
    [
        ({}, "compiled"),
        ({"train__engine": "loop"}, "loop"),
        ({"train__batch_size": "full"}, "auto"),
        ({"train__accumulate": 2}, "auto"),
        ({"train__optimizer": "module"}, "auto"),
        ({"model__hidden": [4000]}, "auto"),
    ],
)
def test_tiny_models_of_many_steps_are_compiled(more, engine, few_are_enough, tmp_path):
    config = small("fedper", out=str(tmp_path), rounds=1, seeds=[0], **{"model": TINY, **more})
    assert chosen(plan_grid(config, Tuning(), baselines=["local"])) == engine


def test_convolutions_dropout_and_machines_without_a_compiler_have_the_loop(few_are_enough, monkeypatch):
    assert can_compile(Config(method="fedavg", data="digits", model=TINY))
    assert not can_compile(Config(method="fedavg", data="digits", model="tests.runtime.networks:Awkward"))
    monkeypatch.setattr(processor, "compiler", lambda: None)
    assert not can_compile(Config(method="fedavg", data="digits", model=TINY))


def test_few_steps_are_not_worth_a_compilation(tmp_path):
    assert chosen(study(tmp_path)) == "auto"


def test_a_study_that_is_continued_keeps_its_engine(few_are_enough, monkeypatch, tmp_path):
    first = study(tmp_path)
    assert chosen(first) == "compiled"
    first.write()
    monkeypatch.setattr(engine_choice, "LEAST_STEPS", 10**9)
    assert chosen(study(tmp_path)) == "compiled"
    assert chosen(study(tmp_path, train__lr=0.5)) == "auto"
    (tmp_path / "other").mkdir()
    other = study(tmp_path / "other")
    assert chosen(other) == "auto"
    other.write()
    monkeypatch.setattr(engine_choice, "LEAST_STEPS", 1)
    assert chosen(study(tmp_path / "other")) == "auto"
