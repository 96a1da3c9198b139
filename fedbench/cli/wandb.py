"""`fedbench wandb STUDY`: uploads studies to W&B from their records and creates a workspace."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse, study_folder
from fedbench.config import WandbConfig
from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.installation import require

if TYPE_CHECKING:
    from fedbench.tracking.wandb_study import WandbStudy

FLAGS = (Flag("dry-run", "show what would be uploaded, and upload nothing"),)
WANDB_KEYS = ("project", "entity", "group", "run_name", "tags", "mode")
USAGE = """usage: fedbench wandb STUDY [--dry-run] [--wandb.project NAME] [--wandb.entity NAME] [--wandb.mode offline]

Uploads the finished runs of a study (the folder of a run, grid, comparison or row of claims, or a folder with several
of them) to W&B: one W&B run per seed, grouped by study, with the method as job type; a run for the final table and the
report; a workspace with curves by method, worst clients, cost, traces and tables. Runs that W&B has are skipped.

Without an account on this machine, shows what it would upload. --wandb.mode offline writes offline files instead and
prints the command that uploads them. --wandb.group and --wandb.tags override the study's own.
"""


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Uploads the studies below a folder, or shows what would be uploaded."""
    folder = study_folder(argv, "wandb")
    require("wandb")
    config, args = parse(argv[1:], FLAGS, prog="fedbench wandb")
    given = config.given()
    for key in given:
        if key != "wandb":
            flags = ", ".join(f"--wandb.{name}" for name in WANDB_KEYS)
            raise ConfigError(f"--{key}: a finished study cannot be changed; wandb takes {flags}")
    from fedbench.results.plan import studies_in
    from fedbench.tracking.wandb_study import WandbStudy, is_overview, send_overview

    how = wandb_mode(config.wandb.mode)
    keys = {**given.get("wandb", {}), "mode": "online" if how == "online" else "offline"}
    studies = [WandbStudy.load(path, keys) for path in studies_in(folder)]
    overviews = [partial(send_overview, folder, WandbConfig(**keys))] if is_overview(folder) else []
    for study in studies:
        print("\n".join(plan_lines(study)))
    for _ in overviews:
        print(f"{folder}: one run for the overall table and report")
    if args.dry_run:
        return OK
    if how == "online":
        for study in studies:
            online(study)
        for send in overviews:
            print(f"overall table and report: {send().url}")
    else:
        print("\n".join(offline(studies, overviews) if how == "offline" else nothing_sent(how, argv)))
    return OK


def wandb_mode(mode: str) -> str:
    """online or offline, as requested or possible; disabled by the environment; none without an account."""
    from fedbench.tracking.wandb_log import has_account, possible_mode

    return (
        "none" if mode != "offline" and possible_mode(mode) != "disabled" and not has_account() else possible_mode(mode)
    )


def plan_lines(study: "WandbStudy") -> Iterator[str]:
    """Lists what W&B gets of a study and how its workspace looks."""
    from fedbench.tracking.wandb_log import run_arguments
    from fedbench.tracking.wandb_workspace import workspace, workspace_lines

    place = study.place
    project = f"{place.entity}/{place.project}" if place.entity else place.project
    runs = f"{plural(len(study.seeds), 'run')} and one for table and report"
    yield f"{study.folder}: {runs}, to project {project}, group {study.group}"
    for seed in study.seeds:
        arguments = run_arguments(seed.config, seed.entry)
        yield f"  {arguments['name']:<44} job type {arguments['job_type']:<28} {plural(len(seed.rounds), 'round')}"
    for name, why in study.left_out().items():
        yield f"  left out: {name}: {why}"
    yield f"  workspace {study.name}, runs grouped by job type:"
    for line in workspace_lines(workspace(study, place.entity or "ENTITY")):
        yield f"    {line}"


def online(study: "WandbStudy") -> None:
    """Uploads the study and creates its workspace, and reports progress. Raises ConfigError without a network."""
    from fedbench.tracking.wandb_log import run_arguments
    from fedbench.tracking.wandb_study import send, send_study
    from fedbench.tracking.wandb_workspace import save_workspace

    for seed in study.seeds:
        print(f"{run_arguments(seed.config, seed.entry)['name']}: {plural(send(seed), 'round')} sent")
    run = send_study(study)
    print(f"table and report: {run.url}")
    try:
        print(f"workspace: {save_workspace(study, run.entity)}")
    except Exception as error:  # the runs are uploaded, and usable without it
        print(f"warning: the workspace could not be created ({type(error).__name__}: {error})")


def offline(studies: "list[WandbStudy]", overviews: Sequence[Callable[[], Any]]) -> Iterator[str]:
    """Writes the missing offline files and yields the command that uploads them. overviews: write the reports."""
    from fedbench.tracking.wandb_study import send, send_study

    paths: list[str] = []
    for study in studies:
        for seed in study.seeds:
            if not seed.sent_offline():
                send(seed)
            paths += [quote(str(path)) for path in seed.offline_parts()]
        paths += [_folder(send_study(study))]
    paths += [_folder(write()) for write in overviews]
    yield "to upload them, on a machine with an account and access to these folders:"
    yield " \\\n  ".join(["  wandb sync", *dict.fromkeys(paths)])


def _folder(run: Any) -> str:
    """The folder of a run's offline files."""
    return quote(str(Path(run.dir).parent))


def nothing_sent(how: str, argv: list[str]) -> list[str]:
    """Explains why nothing was uploaded, and what to do next."""
    if how == "disabled":
        return ["WANDB_MODE=disabled: nothing was uploaded"]
    again = f"  fedbench wandb {' '.join(map(quote, argv))}"
    return [
        "no W&B account on this machine: nothing was uploaded. To upload it:",
        "  wandb login",
        again,
        "or, to upload from another machine with access to these folders, write offline files and get the command:",
        f"{again} --wandb.mode offline",
    ]
