"""The workspace of a study, as W&B's own package would send it."""

from itertools import chain

import pytest

from fedbench.tracking.wandb_study import WandbStudy
from fedbench.tracking.wandb_workspace import ADDRESS_FILE, save_workspace, workspace, workspace_lines
from tests.report.conftest import add_lambda, write_comparison


@pytest.fixture
def study(tmp_path):
    folder = write_comparison(tmp_path / "cmp", {"fedmosaic": 0.8, "local": 0.7}, seeds=[0])
    add_lambda(folder / "final" / "fedmosaic", seeds=[0])
    return WandbStudy.load(folder, {"project": "mine"})


def spec(study):
    return workspace(study, "me")._to_model().model_dump(by_alias=True, exclude_none=True)


def panels(study):
    sections = spec(study)["spec"]["section"]["panelBankConfig"]["sections"]
    return {section["name"]: [panel["config"] for panel in section["panels"]] for section in sections}


def test_it_shows_the_final_runs_of_this_study_grouped_by_method(study):
    view = spec(study)
    assert (view["entity"], view["project"], view["displayName"]) == ("me", "mine", "cmp")
    (runs,) = view["spec"]["section"]["runSets"]
    assert [(f["key"]["name"], f["op"], f["value"]) for f in runs["filters"]["filters"]] == [
        ("group", "=", "cmp"),
        ("tags", "IN", ["final", "study"]),
    ]
    assert runs["grouping"] == [{"section": "run", "name": "jobType"}]


def test_curves_have_mean_and_band_by_method_against_rounds_bytes_and_steps(study):
    drawn = list(chain(*panels(study).values()))
    curves = [own for own in drawn if own.get("groupArea")]
    assert {(own["xAxis"], *own["metrics"]) for own in curves} == {
        ("round", "after_agg/test_accuracy"),
        ("round", "after_fit/test_accuracy"),
        ("round", "after_agg/test_worst_tenth"),
        ("round", "after_agg/test_spread"),
        ("bytes", "after_agg/test_accuracy"),
        ("steps", "after_agg/test_accuracy"),
    }
    assert {(own["groupBy"], own["groupAgg"], own["groupArea"], own["aggregate"]) for own in curves} == {
        ("jobType", "mean", "stddev", True)
    }


def test_traces_have_a_line_per_client_and_tables_are_there(study):
    found = panels(study)
    traced = found["Traces, one line per client"]
    assert traced[0]["metricRegex"] == "^lambda/client_[0-9]+$"
    assert len(traced) == 4
    keys = [own["panel2Config"]["exp"]["fromOp"]["inputs"]["key"]["val"] for own in found["Tables"]]
    assert keys == ["final_table", "clients"]


def test_clients_have_a_line_each_where_runs_log_them(study):
    assert "Clients, one line per client" not in panels(study)
    for seed in study.seeds:
        seed.config.log_clients = True
    (panel,) = panels(study)["Clients, one line per client"]
    assert panel["metricRegex"] == "^after_agg_test_accuracy/client_[0-9]+$"


def test_newcomers_have_a_table_where_there_are_any(study):
    for seed in study.seeds:
        seed.config.partition.new_clients = 2
    assert list(workspace_lines(workspace(study, "me")))[-1] == "Tables: final_table, clients, newcomers"


def test_every_section_is_told_in_a_line(study):
    lines = list(workspace_lines(workspace(study, "me")))
    assert lines[0] == "Curves by method: after_agg/test_accuracy against round, after_fit/test_accuracy against round"
    assert lines[-1] == "Tables: final_table, clients"


def test_without_traces_there_is_no_section_of_them(tmp_path):
    plain = WandbStudy.load(write_comparison(tmp_path / "cmp", {"fedper": 0.8}, seeds=[0]))
    assert list(panels(plain)) == ["Curves by method", "Worst clients", "Cost", "Tables"]


def test_a_study_in_a_setting_has_a_workspace_that_finds_its_runs(tmp_path):
    own = WandbStudy.load(write_comparison(tmp_path / "it's" / "settings" / "alpha=0.1", {"fedper": 0.8}, seeds=[0]))
    view = spec(own)
    assert view["displayName"] == "it s/alpha 0.1"
    assert view["spec"]["section"]["runSets"][0]["filters"]["filters"][0]["value"] == own.group == "it s/alpha 0.1"


def test_a_workspace_is_laid_out_once(study):
    (study.folder / ADDRESS_FILE).write_text("where it is\n")
    assert save_workspace(study, "me") == "where it is"
