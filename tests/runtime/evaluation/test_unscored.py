"""Clients without a score are named and counted, and all samples together have a value beside the mean of clients."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from fedbench.config import Config
from fedbench.report.leaderboard import leaderboard
from fedbench.report.leaderboard_table import leaderboard_frame, score_table
from fedbench.report.scores import final_table_text
from fedbench.report.study import Study
from fedbench.results.plan import Plan
from fedbench.results.predictions import read_predictions
from fedbench.results.reader import Records
from fedbench.results.unscored import scored_text, worst_label
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.run import preview_run, run
from fedbench.studies.study_check import check_study
from fedbench.studies.tuning_study import TuningStudy

HOSPITALS = ("aalen", "bonn", "celle", "dessau", "emden", "fulda", "gera", "hof")
LINE = "seed 0: AUROC is unknown at 1 of 8 clients (fulda: one class)"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on a table of 8 hospitals, of which fulda has one class. Hospitals have different numbers of patients."""
    place, draw = tmp_path_factory.mktemp("unscored"), np.random.default_rng(3)
    hospital = np.repeat(HOSPITALS, np.arange(40, 120, 10))
    died = np.where(hospital == "fulda", 0, np.arange(len(hospital)) % 2)
    age = draw.normal(0, 1, len(hospital)) + died
    pulse = draw.normal(0, 1, len(hospital))
    frame = pd.DataFrame({"died": died, "hospital": hospital, "age": age, "pulse": pulse})
    frame.to_csv(place / "patients.csv", index=False)
    asked = Config(
        method="fedavg",
        model="mlp",
        data={"name": f"csv:{place / 'patients.csv'}", "label": "died", "user": "hospital", "val": 0},
        partition={"name": "natural"},
        rounds=2,
        train={"epochs": 1},
        evaluate={"metric": "auroc"},
        resources={"hosts": 0},
        save_predictions=True,
        out=place / "run",
    )
    return run(asked, report=False)


def expected(finished) -> dict[str, float]:
    """By sklearn, from the outputs of every client on its test samples after the last round."""
    found = read_predictions(finished.folder)[0, "after_agg"]
    scores, labels, clients = found.outputs[:, 1] - found.outputs[:, 0], found.targets, found.clients
    names, sizes = np.unique(clients, return_counts=True)
    own = {c: roc_auc_score(labels[clients == c], scores[clients == c]) for c in names if labels[clients == c].any()}
    weights = [sizes[list(names).index(client)] for client in own]
    return {
        "clients": len(own),
        "mean": np.mean([*own.values()]),
        "weighted": np.average([*own.values()], weights=weights),
        "pooled": roc_auc_score(labels, scores),
    }


def test_a_client_with_one_class_is_named_and_the_mean_is_over_the_others(finished):
    right = expected(finished)
    assert right["clients"] == 7
    assert LINE in finished.summary["warnings"]
    metrics = Records(finished.folder).metrics()
    last = metrics[(metrics["round"] == 2) & (metrics["point"] == "after_agg")].iloc[0]
    assert (last["clients"], last["test_auroc_clients"]) == (8, 7)
    assert last["test_auroc"] == pytest.approx(right["mean"], abs=1e-6)


def test_the_value_over_all_samples_stands_beside_the_mean_of_clients(finished):
    right, told = expected(finished), finished.summary["points"]["after_agg"]["last"]
    assert told["test_pooled"]["mean"] == pytest.approx(right["pooled"], abs=1e-6)
    assert told["test_weighted"]["mean"] == pytest.approx(right["weighted"], abs=1e-6)
    assert told["scored_clients"] == [7]
    assert len({round(right[name], 3) for name in ("mean", "weighted", "pooled")}) == 3, "three different numbers"


def test_tables_show_the_number_of_clients_with_a_score_and_all_three_values(finished):
    study, right = Study.load(finished.folder), expected(finished)
    rows = leaderboard(study)
    scores = score_table(study, rows)
    shown = dict(zip(scores.heads, (cell.text for cell in scores.lines[0]), strict=True))
    assert shown["clients with a score"] == "7 of 8 clients"
    assert shown["pooled"] == f"{100 * right['pooled']:.1f}"
    assert shown["weighted"] == f"{100 * right['weighted']:.1f}"
    assert "worst client" in shown
    table = leaderboard_frame(study, rows).iloc[0]
    assert table["scored_clients"] == "7 of 8 clients"
    assert table["weighted"] == pytest.approx(right["weighted"], abs=1e-6)
    text = final_table_text(study.table, study.metric)
    assert "7 of 8 clients" in text
    assert "weighted: mean over clients" in text


@pytest.mark.parametrize(
    ("counts", "said"), [([8], ""), ([7], "7 of 8 clients"), ([8, 6], "6 to 8 of 8 clients"), ([], "")]
)
def test_counts_in_words(counts, said):
    assert scored_text(counts, 8) == said


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([7, 8], "worst client"),
        ([15, 15], "worst 2 of 15 clients"),
        ([14, 15], "worst 2 clients"),
        ([20], "worst tenth"),
        ([8, 15], "worst tenth"),
    ],
)
def test_the_worst_tenth_of_few_clients_says_what_it_is(counts, said):
    assert worst_label(counts) == said


def test_it_is_known_before_a_run_and_before_a_study(finished):
    config = Config(**Records(finished.folder).config())
    config.out = finished.folder.parent / "other"
    assert preview_run(config).count(LINE) == 1
    both = [ComparedMethod(name, name) for name in ("fedavg", "fedper")]
    study = TuningStudy(Plan("compare", None, {}, []), config, both, config.out, config.out, [90])
    said = list[str]()
    check_study(study, say=said.append)
    assert [line for line in said if LINE in line] == [LINE]
