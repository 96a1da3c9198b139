"""`fedbench field`: lists the settings of the field with what is recorded of each, or runs them."""

from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag, split_words
from fedbench.cli.parse import parse
from fedbench.cli.stages import check_trials, read_count, side_by_side
from fedbench.config import Config
from fedbench.config.keys import flat
from fedbench.config.words import plural
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench_papers.field.study import FieldRun

FLAGS = (
    Flag("only", "settings to run or continue, or all; without it all settings are listed", "NAME,...", many=True),
    Flag("methods", "add these methods, also your own, and run nothing else", "NAME,...", many=True),
    Flag("shard", "the K-th of N parts of the settings, for several machines", "K/N"),
    Flag("merge", "put the records of these folders or files into that of OUT", "PATH ...", many=True),
    Flag("plan", "the settings, a file like the one of fedbench-papers", "FILE"),
    Flag(
        "sources",
        "where the image sets are: a folder with subfolders of their names, or NAME=WHERE",
        "DIR | NAME=WHERE ...",
        many=True,
    ),
    side_by_side("runs"),
)
USAGE = """usage: fedbench field [--only NAME,...] [--methods NAME,...] [--shard K/N] [--sources DIR | NAME=WHERE ...]
                      [--trials N] [--plan FILE] [--out DIR]
       fedbench field --merge PATH ... [--out DIR]

Without --only: lists the settings, with what is recorded of each: your own, or what is shipped with fedbench. With
--only: compares all methods in these settings, tuned alike, until it is decided, and rewrites OUT/field/report.html
and OUT/field/field.parquet after each. OUT is results by default. What has run is not run again.

--methods mine:Mine adds a column to the record: only this method and the baselines run, and it is compared with the
others by the recorded scores of the same seeds. On several machines: --shard 1/3, 2/3 and 3/3, then --merge.
"""
HARMLESS = {"resources", "loggers", "wandb", "checkpoint"}


@partial(command, continues=True)
def main(argv: list[str]) -> int:
    """list the settings in which all methods are compared, or compare them there and draw the map"""
    if "-h" in argv or "--help" in argv:
        print("\n".join([USAGE, *(f"--{f'{f.name} {f.metavar}':<28}{f.description}" for f in FLAGS)]))
        return OK
    config, args = parse(argv, FLAGS, "fedbench field", preview, check=check)
    run, trials = run_of(config, args), read_count("trials", args.trials)
    from fedbench.studies.stages import Stages
    from fedbench_papers.field.study import merge_field, run_field

    if args.merge:
        result = merge_field(run.folder, [Path(word).expanduser() for word in split_words(args.merge)])
    elif not args.only:
        print("\n".join(listing(run)))
        return OK
    else:
        stages = Stages("field", config)
        try:
            result = run_field(run, trials, stages.update, stages.begin)
        finally:
            stages.stop()
    print("\n".join(result_lines(result.folder)))
    print(f"results: {result.folder}")
    print(f"report:  {result.report}")
    return OK


def check(config: Config, args: Namespace) -> None:
    """Raises ConfigError for flags that do not go together, or libraries that are not installed by which runs work."""
    if args.merge and (args.only or args.methods or args.shard):
        raise ConfigError("--merge: puts records together and runs nothing; leave --only, --methods and --shard out")
    if not args.only and (args.methods or args.shard):
        which = "methods" if args.methods else "shard"
        raise ConfigError(f"--{which}: in which settings? Give --only all, or some of them")
    if args.only:
        check_trials(config, args)


def preview(config: Config, args: Namespace) -> tuple[Config, list[str]]:
    """The output of --print-config for these settings."""
    run = run_of(config, args)
    return config, [f"{name}: {run.plan.settings[name].title}" for name in run.settings]


def run_of(config: Config, args: Namespace) -> "FieldRun":
    """What the flags ask for. Raises ConfigError."""
    from fedbench.studies.compared_methods import method_names
    from fedbench_papers.field.plan import PLAN, FieldPlan
    from fedbench_papers.field.study import FieldRun
    from fedbench_papers.image_sources import read_sources

    plan = FieldPlan.read(Path(args.plan) if args.plan else PLAN)
    sources = read_sources(split_words(args.sources), plan.sets())
    methods = method_names(split_words(args.methods)) if args.methods else []
    only = split_words(args.only) or ["all"]
    return FieldRun(plan, only, args.shard or "", methods, sources, config.out, harmless_keys(config))


def harmless_keys(config: Config) -> dict[str, Any]:
    """The keys that set where and how to run. Raises ConfigError for a key that would change a number."""
    tree = {key: value for key, value in config.given().items() if key != "out"}
    for key in flat({name: value for name, value in tree.items() if name not in HARMLESS}):
        raise ConfigError(
            f"--{key}: not allowed for the field, whose plan sets it; copy the plan, and give --plan FILE"
        )
    return flat({name: value for name, value in tree.items() if name in HARMLESS})


def listing(run: "FieldRun") -> Iterator[str]:
    """A line per setting: what it is, and what is recorded of it."""
    from fedbench_papers.field.standings import Field
    from fedbench_papers.field.study import current_record

    field = Field(current_record(run.folder))
    width = max(map(len, run.plan.settings))
    for name in run.settings:
        setting = run.plan.settings[name]
        told = "not run yet" + ("" if setting.hours is None else f", about {setting.hours:g} hours of a core")
        if name in field.settings:
            best = [one.method for one in field.possible_best(name)]
            told = f"{plural(len(field.judged(name)), 'method')} judged, may be best: {', '.join(best[:3])}"
            told += f" and {len(best) - 3} more" if len(best) > 3 else ""
        yield f"{name:<{width}}  {setting.title}: {told}"


def result_lines(folder: Path) -> Iterator[str]:
    """The answer, and the guide."""
    from fedbench_papers.field.guide import guide
    from fedbench_papers.field.page import answer
    from fedbench_papers.field.record import FIELD_FILE, FieldRecord
    from fedbench_papers.field.standings import Field

    field = Field(FieldRecord.read(folder / FIELD_FILE))
    yield answer(field)
    for one in guide(field):
        yield f"{one.like}: try {one.first} ({one.gain})"
