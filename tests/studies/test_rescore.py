"""Metrics of kept predictions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from fedbench.errors import ConfigError
from fedbench.results.plan import Entry, Plan
from fedbench.results.predictions import read_predictions
from fedbench.studies.rescore import POOLED, rescore, summary
from fedbench.studies.run import run
from tests.runtime.rounds import small
from tests.studies.other_tasks import half_score

OWN = "tests.studies.other_tasks:half_score"


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "run"
    evaluate = {"metrics": ["auroc", OWN]}
    return run(
        small(seeds=[0, 1], rounds=1, save_predictions=True, evaluate=evaluate, out=str(out)), report=False
    ).folder


def test_values_are_those_of_the_run(kept):
    import fedbench

    names = ["auroc", "accuracy", OWN]
    table, recorded = rescore(kept, names), fedbench.load(kept).clients
    assert len(table) == 3 * 2 * 2 * (10 + 1)
    for name in names:
        own = table[(table["metric"] == name) & (table["client"] != POOLED)]
        both = own.merge(recorded, on=["seed", "point", "client"])
        assert len(both) == 2 * 2 * 10
        np.testing.assert_allclose(both["value"], both[f"test_{name}"], rtol=1e-6)


@pytest.mark.parametrize(("method", "accuracy"), [("fedproto", "samples"), ("fedper", "batches")])
def test_losses_of_outputs_that_are_no_scores_and_means_over_batches_are_those_of_the_run(method, accuracy, tmp_path):
    import fedbench

    asked = small(method, rounds=1, save_predictions=True, evaluate={"accuracy": accuracy, "batch_size": 7})
    folder = run(asked.model_copy(update={"out": tmp_path / "run"}), report=False).folder
    table, recorded = rescore(folder, ["loss", "accuracy"]), fedbench.load(folder).clients
    for name in ("loss", "accuracy"):
        both = table[table["metric"] == name].merge(recorded, on=["seed", "point", "client"])
        np.testing.assert_allclose(both["value"], both[f"test_{name}"], rtol=1e-5)
    losses = table[table["metric"] == "loss"].query("point == 'after_fit'").set_index("client")
    own = losses.drop(POOLED)
    assert losses.loc[POOLED, "value"] == pytest.approx(np.average(own["value"], weights=own["n"]), rel=1e-5)


def test_a_single_metric_needs_no_list_and_may_be_a_function(kept):
    whole = rescore(kept, ["top5", OWN])
    for metrics in (f"top5,{OWN}", ("top5", half_score)):
        pd.testing.assert_frame_equal(rescore(kept, metrics), whole)
    for metric in (OWN, half_score):
        assert list(rescore(kept, metric)["metric"].unique()) == [OWN]
    with pytest.raises(ConfigError, match=r"evaluate.metrics = 3: must be a list of text"):
        rescore(kept, 3)


def test_all_samples_together_are_scored_at_once(kept):
    table, found = rescore(kept, ["auroc", "accuracy"]), read_predictions(kept)[1, "after_agg"]
    pooled = table.query("seed == 1 and point == 'after_agg' and client == -1").set_index("metric")["value"]
    assert pooled["accuracy"] == pytest.approx((found.outputs.argmax(1) == found.targets).mean())
    shares = np.exp(found.outputs.astype(float))
    shares /= shares.sum(1, keepdims=True)
    assert pooled["auroc"] == pytest.approx(roc_auc_score(found.targets, shares, multi_class="ovr"), abs=1e-6)


def test_the_summary_is_of_clients_and_of_all_samples(kept):
    table = rescore(kept, ["loss"])
    rows = summary(kept, table).set_index("point").loc["after_fit"]
    own = table.query("point == 'after_fit' and client != -1").groupby("seed")["value"]
    assert rows["seeds"] == 2
    assert rows["mean"] == pytest.approx(own.mean().mean())
    assert rows["worst_tenth"] == pytest.approx(own.max().mean())  # one of ten; a higher loss is worse


def test_nobody_is_worst_by_a_function_that_does_not_say_which_values_are_better(kept):
    rows = summary(kept, rescore(kept, [OWN, "auroc"])).set_index("metric")
    assert rows.loc[OWN, "worst_tenth"].isna().all()
    assert rows.loc[OWN, "mean"].notna().all()
    assert rows.loc["auroc", "worst_tenth"].notna().all()


def test_the_final_runs_of_a_comparison_are_scored(tmp_path):
    entries = [Entry("final", name, {}, 0, name, "done") for name in ("fedavg", "local")]
    entries.append(Entry("candidate", "local", {"train.lr": 1}, 0, "nowhere", "done"))
    for entry in entries[:2]:
        run(small(entry.label, rounds=1, save_predictions=True, out=str(tmp_path / entry.path)), report=False)
    Plan("compare", None, {}, entries).write(tmp_path)
    assert list(dict.fromkeys(rescore(tmp_path, ["top5"])["method"])) == ["fedavg", "local"]


def test_what_cannot_be_scored_is_one_line(kept, tmp_path):
    run(small(rounds=1, out=str(tmp_path / "a")), report=False)
    (tmp_path / "begun").mkdir()
    for name in ("config.yaml", "metrics.jsonl"):
        (tmp_path / "begun" / name).write_bytes((tmp_path / "a" / name).read_bytes())
    with pytest.raises(ConfigError, match="no run is finished; repeat its command"):
        rescore(tmp_path / "begun", ["top5"])
    with pytest.raises(ConfigError, match="no predictions were kept; run it again with --save-predictions"):
        rescore(tmp_path / "a", ["auroc"])
    with pytest.raises(ConfigError, match="unknown metric 'auroq'; did you mean auroc"):
        rescore(kept, ["auroq"])
    with pytest.raises(ConfigError, match="no such folder"):
        rescore(tmp_path / "b", ["auroc"])


def test_a_seed_in_which_a_model_diverged_has_no_mean_of_losses(kept):
    table = rescore(kept, ["loss"])
    table.loc[(table["seed"] == 0) & (table["client"] == 3), "value"] = np.nan
    rows = summary(kept, table).set_index("point").loc["after_fit"]
    own = table.query("point == 'after_fit' and client != -1 and seed == 1")["value"]
    assert (rows["seeds"], rows["mean"]) == (1, pytest.approx(own.mean()))
