"""The W&B workspace of a study, created with W&B's own package."""

from collections.abc import Iterator, Sequence
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from fedbench.tracking.wandb_log import plain_name
from fedbench.tracking.wandb_study import ROLE, WandbStudy

ADDRESS_FILE = "wandb-workspace.txt"
"""The file in a study's folder with the address of its workspace."""
METHOD = "JobType"
MOST_RUNS = 200


def workspace(study: WandbStudy, entity: str) -> ws.Workspace:
    """Final runs grouped by method: curves with mean and standard deviation, worst clients, cost, traces, tables."""
    test = f"test_{study.seeds[0].records.metric().name}" if study.seeds else "test_accuracy"
    point = study.plan.point
    keys = [f"{point}/{test}", *(f"{other}/{test}" for other in ("after_agg", "after_fit") if other != point)]
    sections = [
        _section("Curves by method", [curve_panel(key) for key in keys]),
        _section("Worst clients", [curve_panel(f"{point}/test_worst_tenth"), curve_panel(f"{point}/test_spread")]),
        _section(
            "Cost",
            [*(curve_panel(keys[0], x) for x in ("bytes", "steps")), *(bar_panel(key) for key in ("bytes", "steps"))],
        ),
        _section("Clients, one line per client", [client_panel(name) for name in client_curve_names(study)]),
        _section("Traces, one line per client", [client_panel(name) for name in trace_names(study)]),
        _section("Tables", [wr.WeavePanelSummaryTable(table_name=name) for name in table_names(study)]),
    ]
    return ws.Workspace(
        entity=entity,
        project=study.place.project,
        name=plain_name(study.name),
        sections=[section for section in sections if section.panels],
        settings=ws.WorkspaceSettings(x_axis="round", max_runs=MOST_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(expr.Metric("Group") == study.group, expr.Tags().isin(["final", ROLE])),
            groupby=[expr.Metric(METHOD)],
            pinned_columns=[f"summary:{key}.last" for key in keys],
        ),
    )


def curve_panel(key: str, x: str = "round") -> wr.LinePlot:
    """Mean over seeds of every method, with a band of one standard deviation."""
    by_method = {"groupby": wr.Metric(METHOD), "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    return wr.LinePlot(title=f"{key} against {x}", x=x, y=[key], max_runs_to_show=MOST_RUNS, **by_method)


def bar_panel(key: str) -> wr.BarPlot:
    """The total of every method."""
    return wr.BarPlot(title=f"total {key}", metrics=[key], groupby=wr.Metric(METHOD), groupby_aggfunc="mean")


def client_panel(name: str) -> wr.LinePlot:
    """One line per client: its mean over the seeds of a method."""
    return wr.LinePlot(title=name, x="round", metric_regex=f"^{name}/client_[0-9]+$", max_runs_to_show=MOST_RUNS)


def client_curve_names(study: WandbStudy) -> list[str]:
    """The names of clients' scores if runs log them: those at the study's point."""
    logged = [seed for seed in study.seeds if seed.config.log_clients]
    return [f"{study.plan.point}_test_{logged[0].records.metric().name}"] if logged else []


def trace_names(study: WandbStudy) -> list[str]:
    """Client traces of final runs; lambda first."""
    firsts = {seed.entry.label: seed.records for seed in study.seeds if seed.entry.role == "final"}
    rows = [run.traces() for run in firsts.values()]
    names = {str(name) for frame in rows for name in frame.loc[frame["client"] >= 0, "name"].unique()}
    return sorted((name for name in names if "/" not in name), key=lambda name: (name != "lambda", name))


def table_names(study: WandbStudy) -> list[str]:
    """The tables in the summaries of runs; one of newcomers where clients join after training."""
    joined = any(seed.config.partition.new_clients for seed in study.seeds)
    return ["final_table", "clients", *["newcomers"] * joined]


def workspace_lines(made: ws.Workspace) -> Iterator[str]:
    """The sections and panels of a workspace, one line each."""
    for section in made.sections:
        yield f"{section.name}: {', '.join(map(_title, section.panels))}"


def save_workspace(study: WandbStudy, entity: str) -> str:
    """Creates a study's workspace in W&B, once, and returns its address."""
    note = study.folder / ADDRESS_FILE
    if not note.exists():
        note.write_text(workspace(study, entity).save().url + "\n")
    return note.read_text().strip()


def _section(name: str, panels: Sequence[Any]) -> ws.Section:
    return ws.Section(name=name, panels=list(panels), is_open=True)


def _title(panel: Any) -> str:
    title = getattr(panel, "title", None)
    return str(title or getattr(panel, "table_name", ""))
