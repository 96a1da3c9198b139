"""`fedbench wandb STUDY`: studies sent to W&B out of their records, with a workspace laid out."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from fedbench.cli import OK, command
from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse, study_folder
from fedbench.config import WandbConfig
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.results.wandb_study import WandbStudy

FLAGS = (Flag("dry-run", "say what would be sent and laid out, and send nothing"),)
KEYS = ("project", "entity", "group", "run_name", "tags", "mode")
USAGE = """usage: fedbench wandb STUDY [--dry-run] [--wandb.project NAME] [--wandb.entity NAME] [--wandb.mode offline]

Sends the finished runs of a study (the folder of a run, a grid, a comparison, a row of claims, or a folder with several
of them) to W&B: a W&B run per seed, grouped by study, with the method as job type; a run for the final table and the
page; a workspace of curves by method, worst tenth, cost, traces and tables. What W&B has already is not sent again.

Without an account on this machine it says what it would do. --wandb.mode offline writes offline files instead, and the
command that sends them. --wandb.group and --wandb.tags replace the study's own.
"""


@command
def main(argv: list[str]) -> int:
    """Sends the studies below a folder, or says what would be sent."""
    if "-h" in argv or "--help" in argv:
        print(USAGE)
        return OK
    folder = study_folder(argv, "wandb")
    config, asked = parse(argv[1:], FLAGS, prog="fedbench wandb")
    given = config.model_dump(exclude_unset=True)
    for key in given:
        if key != "wandb":
            raise ConfigError(
                f"--{key}: a study was run as it was run; wandb takes {', '.join(f'--wandb.{k}' for k in KEYS)}"
            )
    from fedbench.results.plan import studies_in
    from fedbench.results.wandb_study import WandbStudy, is_overview, send_overview

    how = way(config.wandb.mode)
    place = {**given.get("wandb", {}), "mode": "online" if how == "online" else "offline"}
    studies = [WandbStudy.load(path, place) for path in studies_in(folder)]
    overviews = [partial(send_overview, folder, WandbConfig(**place))] if is_overview(folder) else []
    for study in studies:
        print("\n".join(plan_lines(study)))
    for _ in overviews:
        print(f"{folder}: one run for table and page over these")
    if asked.dry_run:
        return OK
    if how == "online":
        for study in studies:
            online(study)
        for send in overviews:
            print(f"table and page over all: {send().url}")
    else:
        print("\n".join(offline(studies, overviews) if how == "offline" else nothing_sent(how, argv)))
    return OK


def way(asked: str) -> str:
    """online or offline where that is asked for or possible; disabled by the environment; none without an account."""
    from fedbench.results.wandb_log import has_account, mode

    return "none" if asked != "offline" and mode(asked) != "disabled" and not has_account() else mode(asked)


def plan_lines(study: "WandbStudy") -> Iterator[str]:
    """What of a study goes to W&B, and how the workspace looks."""
    from fedbench.results.wandb_log import described
    from fedbench.results.wandb_workspace import told, workspace

    place = study.place
    project = f"{place.entity}/{place.project}" if place.entity else place.project
    runs = f"{len(study.seeds)} runs and one for table and page"
    yield f"{study.folder}: {runs}, to project {project}, group {study.group}"
    for seed in study.seeds:
        own = described(seed.config, seed.entry)
        yield f"  {own['name']:<44} job type {own['job_type']:<28} {len(seed.rounds)} rounds"
    for name, why in study.left_out().items():
        yield f"  left out: {name}: {why}"
    yield f"  workspace {study.name}, runs grouped by job type:"
    for line in told(workspace(study, place.entity or "ENTITY")):
        yield f"    {line}"


def online(study: "WandbStudy") -> None:
    """Send a study and lay out its workspace; says what was sent as it goes. Raises ConfigError without a network."""
    from fedbench.results.wandb_log import described
    from fedbench.results.wandb_study import send, send_study
    from fedbench.results.wandb_workspace import save

    for seed in study.seeds:
        print(f"{described(seed.config, seed.entry)['name']}: {send(seed)} rounds sent")
    run = send_study(study)
    print(f"table and page: {run.url}")
    try:
        print(f"workspace: {save(study, run.entity)}")
    except Exception as error:  # the runs are there, and can be looked at without it
        print(f"warning: the workspace could not be laid out ({type(error).__name__}: {error})")


def offline(studies: "list[WandbStudy]", overviews: Sequence[Callable[[], Any]]) -> Iterator[str]:
    """Write what is missing of offline files; the command that sends them all. overviews: write the pages over them."""
    from fedbench.results.wandb_study import send, send_study

    paths: list[str] = []
    for study in studies:
        for seed in study.seeds:
            if not seed.sent_offline():
                send(seed)
            paths += [quote(str(path)) for path in seed.offline_parts()]
        paths += [_folder(send_study(study))]
    paths += [_folder(write()) for write in overviews]
    yield "to send them, on a machine with an account that sees these folders:"
    yield " \\\n  ".join(["  wandb sync", *dict.fromkeys(paths)])


def _folder(run: Any) -> str:
    """Of the offline files of a run."""
    return quote(str(Path(run.dir).parent))


def nothing_sent(how: str, argv: list[str]) -> list[str]:
    """Why, and what to do next."""
    if how == "disabled":
        return ["WANDB_MODE=disabled: nothing was sent"]
    again = f"  fedbench wandb {' '.join(map(quote, argv))}"
    return [
        "there is no W&B account on this machine: nothing was sent. To send it:",
        "  wandb login",
        again,
        "or, for another machine that sees these folders, write offline files and get the command that sends them:",
        f"{again} --wandb.mode offline",
    ]
