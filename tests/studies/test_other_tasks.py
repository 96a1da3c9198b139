"""Every task goes from its data to the page: next tokens, masks, one logit, and a task of the user's."""

import json

import numpy as np
import pandas as pd
import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.results.reader import Records
from fedbench.studies.run import run
from tests.runtime.rounds import small

OTHER_TASKS = "tests.studies.other_tasks"
LEARNT: dict[str, dict] = {
    "next-token": {
        "data": {"name": f"{OTHER_TASKS}:tokens"},
        "model": f"{OTHER_TASKS}:TokenNet",
        "partition": "natural",
    },
    "segmentation": {"data": {"name": f"{OTHER_TASKS}:masks"}, "model": f"{OTHER_TASKS}:MaskNet"},
    "binary": {"data": {"name": f"{OTHER_TASKS}:halves"}, "model": f"{OTHER_TASKS}:OneLogit"},
    f"{OTHER_TASKS}:TASK": {"data": {"name": f"{OTHER_TASKS}:noise"}, "model": {"name": "mlp", "hidden": 4}},
    f"{OTHER_TASKS}:Pinball": {"data": {"name": f"{OTHER_TASKS}:noise"}, "model": {"name": "mlp", "hidden": 4}},
}
IID = {"name": "iid", "clients": 3}


def learns(task: str, method: str = "fedavg", **more) -> Config:
    return small(method, **({"partition": IID, "rounds": 2} | LEARNT[task] | more), data__task=task)


@pytest.mark.parametrize(
    ("task", "keys", "n"),
    [
        ("next-token", ["perplexity", "token_accuracy", "loss"], 32 * 4),  # tokens that count
        ("segmentation", ["miou", "pixel_accuracy", "loss"], 32 * 12),
        ("binary", ["accuracy", "loss"], 32),
        (f"{OTHER_TASKS}:TASK", ["pinball"], 32),
    ],
)
def test_any_task_is_learnt_and_reported(task, keys, n, tmp_path):
    result = run(learns(task, out=str(tmp_path), train={"epochs": 3, "lr": 0.1}))
    first, *_, last = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert list(last)[3 : 3 + 2 * len(keys)] == [f"{split}_{key}" for key in keys for split in ("val", "test")]
    loss = f"test_{keys[-1]}"
    assert last[loss] < first[loss]
    assert result.summary["task"] == task
    assert result.metric.name == keys[0]
    counted = pd.read_parquet(tmp_path / "clients.parquet").query("split == 'test' and metric == @keys[0]")["n"]
    assert set(counted) == {n}
    assert result.metric.label in result.report.read_text()


def test_perplexities_are_pooled_over_tokens(tmp_path):
    result = run(learns("next-token", out=str(tmp_path)), report=False)
    clients = result.clients.query("point == 'after_agg' and round == 2")
    losses, counts = clients["test_loss"], clients["test_n"]
    assert np.allclose(np.exp(losses), clients["test_perplexity"])
    (pooled,) = result.summary["points"]["after_agg"]["last"]["test_pooled"]["values"]
    assert pooled == pytest.approx(float(np.exp((losses * counts).sum() / counts.sum())))


@pytest.mark.parametrize("task", ["next-token", "segmentation", "binary"])
@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"method": "fedproto"}, "method fedproto works with classes, and the targets of data"),
        ({"partition": {"name": "dirichlet", "clients": 3}}, "it needs classes, but the targets of data"),
        ({"evaluate": {"by": ["class"]}}, "has no such groups"),
    ],
)
def test_what_goes_by_classes_is_refused(task, asked, line):
    with pytest.raises(ConfigError, match=line):
        run(learns(task, **asked))


@pytest.mark.parametrize(
    ("task", "more", "line"),
    [
        (
            "binary",
            {"data": {"name": f"{OTHER_TASKS}:halves", "task": "binry"}},
            "unknown task 'binry': did you mean bin",
        ),
        (
            "binary",
            {"data": {"name": f"{OTHER_TASKS}:halves", "task": "json:dumps"}},
            "neither an instance nor a subclass",
        ),
        ("binary", {"data": {"name": f"{OTHER_TASKS}:halves"}}, r"returned \(3,\) .*one logit, set --task binary"),
        ("next-token", {"data": {"name": f"{OTHER_TASKS}:unshifted", "task": "next-token"}}, "the token after it"),
        ("binary", {"data": {"name": "digits", "task": "binary"}}, "two classes are needed, the targets have 10"),
        ("segmentation", {"model": "mlp"}, r"must return logits of shape \[batch, 2, 4, 4\], it returned \(3, 2\)"),
        ("next-token", {"data": {"name": "diabetes", "task": "next-token"}}, "targets are whole numbers"),
    ],
)
def test_what_does_not_fit_a_task_is_one_line(task, more, line):
    asked = LEARNT[task] | {"data": {**LEARNT[task]["data"], "task": task}, "partition": IID, "rounds": 1} | more
    with pytest.raises(ConfigError, match=line):
        run(small(**asked))


def test_a_task_of_the_users_reads_class_numbers_too(tmp_path):
    """Where a source decides, a task gets what the source has read."""
    name = f"{OTHER_TASKS}:Pinball"
    dataset = resolve(small(data={"name": "digits", "task": name}, partition=IID)).dataset
    assert (dataset.task, dataset.classes, dataset.targets.dtype, dataset.outputs) == (name, 0, np.int64, 1)


def test_what_a_module_logs_when_it_is_evaluated_is_recorded_for_every_client(tmp_path):
    evaluate = {"module_metrics": True, "batch_size": 20}
    result = run(learns("binary", out=str(tmp_path / "a"), evaluate=evaluate), report=False)
    plain = run(learns("binary", out=str(tmp_path / "b"), evaluate={"batch_size": 20}), report=False)
    lines = [(folder / "metrics.jsonl").read_bytes() for folder in (result.folder, plain.folder)]
    assert lines[0] == lines[1]
    for split in ("val", "test"):
        own = Records(result.folder).scores("validation_step/own_loss", split)
        loss = Records(result.folder).scores("loss", split)
        assert len(own) == len(loss) == 2 * 3 * 3  # rounds, clients, points
        np.testing.assert_allclose(own["value"], loss["value"], rtol=1e-6)
    with pytest.raises(ConfigError, match="model Mlp has neither test_step nor validation_step"):
        run(small(evaluate={"module_metrics": True}))
