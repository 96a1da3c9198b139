"""What is checked, noted and said of a study before its first run."""

import json

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.plan import Plan
from fedbench.studies.compared_methods import BASELINES, ComparedMethod
from fedbench.studies.space import Space
from fedbench.studies.study_check import check_study
from fedbench.studies.tuning_study import TuningStudy


def test_what_is_to_be_known_of_the_partition_is_said_once_before_anything_is_run(tmp_path, caplog):
    rows = [{"train": [0, 1, 2, 3], "test": [1500]}, {"train": [1500, 5, 6, 7], "test": [1600]}]
    (tmp_path / "clients.json").write_text(json.dumps({"clients": rows}))
    partition = {"name": "file", "path": str(tmp_path / "clients.json"), "clients": 2}
    asked = Config(seeds=[0], model="mlp", partition=partition)
    both = [ComparedMethod(name, name) for name in ("local", "fedavg")]
    check_study(TuningStudy(Plan("compare", None, {}, []), asked, both, tmp_path, tmp_path, [90]))
    (line,) = [line for line in caplog.messages if not line.startswith("one learning rate each")]
    assert line.startswith(
        "partition.path: 1 of 2 test samples (the first: row 1500) are training or validation samples"
    )


def private(tmp_path, *named: str) -> TuningStudy:
    """A comparison with sample-level privacy, which refuses the pooled data, and the baselines that it adds."""
    asked = Config(seeds=[0], model="mlp", privacy={"level": "sample", "clip": 1.0, "noise": 1.0})
    compared = [*map(ComparedMethod.parse, named), *map(ComparedMethod.baseline, sorted({*BASELINES} - {*named}))]
    return TuningStudy(Plan("compare", None, {}, []), asked, compared, tmp_path, tmp_path, [90])


def test_a_baseline_that_cannot_run_is_left_out_and_the_user_told_once(tmp_path, caplog):
    shown = set[str]()
    for _ in range(2):
        made = private(tmp_path, "fedavg")
        check_study(made, shown)
        assert made.metric.name == "accuracy"
        assert [method.label for method in made.compared] == ["fedavg", "fedavg-ft", "local"]
    (line,) = [line for line in caplog.messages if "left out" in line]
    assert line.startswith("the baseline centralized is left out: privacy.clip = 1: centralized trains on")


def test_a_baseline_that_was_asked_for_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="centralized trains on the pooled data"):
        check_study(private(tmp_path, "fedavg", "centralized"))


def test_a_point_that_cannot_be_built_does_not_hold_back_the_others(tmp_path):
    points = ({"method.ties": "threshold", "method.selection": "random"}, {"method.ties": "exact"})
    compared = [ComparedMethod("fedcac", "fedcac", {}, points)]
    made = TuningStudy(
        Plan("compare", None, {}, []), Config(seeds=[0], model="mlp"), compared, tmp_path, tmp_path, [90]
    )
    check_study(made)
    assert made.metric.name == "accuracy"
    made.points["fedcac"] = [points[0]]
    with pytest.raises(ConfigError, match=r"method\.ties = 'threshold' is defined for"):
        check_study(made)


def test_what_is_not_tuned_is_said_before_the_first_trial(tmp_path, caplog):
    space = Space({"train.momentum": [0.1, 0.3], "train.epochs": [1, 2]})
    config = Config(model={"name": "tests.runtime.networks:Awkward", "head": "classifier"}, seeds=[0])
    method = ComparedMethod.parse("fedavg").tuned_over(space, config, None)
    plan = Plan("compare", None, config.model_dump(mode="json"), [])
    check_study(TuningStudy(plan, config, [method], tmp_path, tmp_path, (90,)))
    assert any(line.startswith("not tuned: train.momentum: without effect: the model's") for line in caplog.messages)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"train": {"optimizer": "adam"}}, "scaffold: train.optimizer = adam"),
        ({"model": {"name": "avgcnn"}}, "model avgcnn needs images of 16x16 or more"),  # everybody's
    ],
)
def test_a_refusal_of_one_method_among_several_begins_with_its_name(tmp_path, asked, line):
    compared = [ComparedMethod(name, name) for name in ("scaffold", "fedavg", "local")]
    config = Config(seeds=[0], **({"model": "mlp"} | asked))
    with pytest.raises(ConfigError) as refused:
        check_study(TuningStudy(Plan("compare", None, {}, []), config, compared, tmp_path, tmp_path, [90]))
    assert str(refused.value).startswith(line)
