"""Lists and reproduces published experiments, by cells under the paper's protocol; runs are stored by identity."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from fedbench.cli.flags import flat_config
from fedbench.config import Config
from fedbench.config.keys import nest
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError
from fedbench.jobs import folder_locks, run_names
from fedbench.results.plan import Plan
from fedbench.studies.cost import total_cost
from fedbench.studies.run_studies import StudyWatch, run_studies
from fedbench.studies.space import Values
from fedbench.studies.study_result import StudyResult
from fedbench.studies.tuning_study import TuningStudy
from fedbench.tracking.loggers import log_page
from fedbench_papers import TUNE_SEEDS
from fedbench_papers.image_sources import source_keys
from fedbench_papers.tables.experiment import (
    AFTER_AGG,
    POINTS,
    SCALES,
    Experiment,
    ExperimentCell,
    figures,
    names,
)
from fedbench_papers.tables.figure import Figure
from fedbench_papers.tables.public_set import public_sets
from fedbench_papers.tables.reproduction import CellRecord, ReproductionRecord

REPRODUCTION_KIND = "reproduce"


class Reproduction(StudyResult):
    """A reproduction. `table` has a row per published number."""

    def __str__(self) -> str:
        return f"{self.table.to_string(index=False)}\n\nreport: {self.report}"


def reproduce(
    name: str,
    config: Config | None = None,
    *,
    cells: Sequence[str] = (),
    methods: Sequence[str] = (),
    scale: str = "full",
    sources: Mapping[str, str] | None = None,
    point: str | None = None,
    trials: int | None = None,
    watch: StudyWatch | None = None,
) -> Reproduction:
    """Executes the missing runs of a published experiment and writes our numbers next to the paper's.

    name: `PAPER/EXPERIMENT`. config: changes of the paper's protocol. cells: words; a cell runs if its name has one of
    them, or is one. methods: labels, or names of methods with options; only these are run and shown. scale: `full`, or
    `small` as in the experiment's file. sources: other sources of data by set name. Cells run earlier stay in the page.
    point: of evaluation, for all methods; by default that of the experiment's file. Raises ConfigError before any run.
    """
    config = config or Config()
    experiment, studies = plan_tables(name, config, cells, scale, sources or {}, point, methods)
    folder = reproduction_folder(name, config, scale)
    made = {cell.name: cell for cell in ReproductionRecord.read(folder).cells}
    for cell, study in studies:
        record = cell_record(experiment, cell, study, folder, point, methods)
        made[cell.name] = with_public_sets(record, experiment.figure, study, scale)
    with folder_locks.writable(folder):
        training = [study for study in distinct(studies) if study.compared]
        new = run_studies(training, trials, watch) if training else False
        order = [cell.name for cell in experiment.cells]
        known = sorted(made.values(), key=lambda cell: order.index(cell.name))
        changed = {
            **(experiment.small.values if scale == "small" else {}),
            **user_keys(config),
            **({} if point is None else {"point": point}),
        }
        drawn = None if experiment.figure is None else asdict(experiment.figure)
        ReproductionRecord(
            name, experiment.what, scale, list(experiment.open), changed, experiment.repeats, known, drawn
        ).write(folder)
    from fedbench.report import make_report

    make_report(folder)
    if new:
        log_page(folder, config)
    return Reproduction(folder)


def plan_tables(
    name: str,
    config: Config,
    cells: Sequence[str],
    scale: str,
    sources: Mapping[str, str],
    point: str | None = None,
    methods: Sequence[str] = (),
) -> tuple[Experiment, list[tuple[ExperimentCell, TuningStudy]]]:
    """The experiment, and the runs of its chosen cells that have one of the chosen methods. Raises ConfigError."""
    if scale not in SCALES:
        raise ConfigError(f"--scale {scale}: must be {' or '.join(SCALES)}")
    if point not in (None, *POINTS):
        raise ConfigError(f"--point {point}: must be {' or '.join(POINTS)}")
    experiment = Experiment.load(name)
    if not experiment.cells:
        raise ConfigError(f"{name}: nothing is run for it: {experiment.what}")
    if method_keys := [key for key in user_keys(config) if key.startswith("method.")]:
        raise ConfigError(f"--{method_keys[0]}: {name} runs the methods of the paper with its options; leave it out")
    chosen = experiment.select_cells(cells)
    common = config, scale, sources, point or AFTER_AGG, experiment.select_methods(methods, chosen, scale)
    studies = [(cell, plan_table(experiment, cell, *common)) for cell in chosen]
    return experiment, [(cell, study) for cell, study in studies if study.compared or not methods]


def distinct(cells: Sequence[tuple[ExperimentCell, TuningStudy]]) -> list[TuningStudy]:
    """The runs of cells; cells that differ only by the client share them."""
    return [*{study.folder: study for _, study in cells}.values()]


def reproduction_folder(name: str, config: Config, scale: str) -> Path:
    """The folder of the reproduction."""
    root = Path("results").absolute()
    return config.out or root / REPRODUCTION_KIND / (config.name or f"{name.replace('/', '-')}-{scale}")


def plan_table(
    experiment: Experiment,
    cell: ExperimentCell,
    config: Config,
    scale: str,
    sources: Mapping[str, str],
    point: str,
    labels: Sequence[str],
) -> TuningStudy:
    """The runs of a cell with these labels. Cells that differ only by the client share them. Raises ConfigError."""
    given = user_keys(config)
    values = {**experiment.values(cell, scale), **given}
    values |= source_keys(values["data.name"], sources)
    whole = Config(**nest(values))
    compared = [one for one in experiment.compared_methods(cell, scale, list(given)) if one.label in labels]
    clash = sorted(set(TUNE_SEEDS) & set(whole.seeds))
    if clash and any(method.tuned for method in compared):
        raise ConfigError(f"seeds: {clash[0]} is the tuning seed, so no final run may use it")
    plan = Plan("compare", None, whole.model_dump(mode="json"), [], point=point)
    folder = reproduction_folder(experiment.id, config, scale) / "cells" / slug(cell)
    root = (config.out or Path("results")).absolute()
    return TuningStudy(plan, whole, compared, folder, root, TUNE_SEEDS, setting=cell.name, listed_only=True)


def user_keys(config: Config) -> Values:
    """The keys that the user set, dotted."""
    return flat_config({key: value for key, value in config.given().items() if key not in ("out", "name")})


def slug(cell: ExperimentCell) -> str:
    """The folder of a cell's runs."""
    text = cell.dataset if cell.client is not None else cell.name
    return "".join(letter if letter.isalnum() or letter in ".=-" else "-" for letter in text)


def cell_record(
    experiment: Experiment,
    cell: ExperimentCell,
    study: TuningStudy,
    folder: Path,
    point: str | None,
    methods: Sequence[str],
) -> CellRecord:
    """The entry of a cell for the page. point: for all methods, or None. methods: asked for; none: all."""
    labels = [method.label for method in study.compared]
    return CellRecord(
        cell.name,
        run_names.relative_path(study.folder, folder),
        cell.client,
        experiment.pooled,
        experiment.choice,
        [
            {**vars(number), "point": point or experiment.point_of(number.method, cell)}
            for number in experiment.of(cell)
            if number.method in labels
        ],
        [vars(number) for number in experiment.traced_of(cell) if number.method in labels],
        point or AFTER_AGG,
        labels if methods else [],
    )


def with_public_sets(record: CellRecord, figure: Figure | None, study: TuningStudy, scale: str) -> CellRecord:
    """The entry of a cell with the classes of its public sets, if the figure shows them."""
    if figure is None or figure.draw != "public":
        return record
    # Classes are counted, whatever the normalisation.
    dataset = Dataset.load(study.config.data.model_copy(update={"mean": [], "std": []}))
    return replace(record, public=public_sets(dataset, study.config, figure, scale))


def experiments_listing(scale: str) -> Iterator[str]:
    """Lines per experiment with cost and description; hours are estimated from a step measured here."""
    yield f"{'experiment':<33} {'cells':>5} {'numbers':>7} {'runs':>5} {'steps':>11} {'hours':>8}  data"
    for name in (*names(), *figures()):
        experiment = Experiment.load(name)
        configs = runs_of_cells(experiment, scale)
        sets = ", ".join(dict.fromkeys(cell.dataset for cell in experiment.cells))
        if configs:
            steps, hours = total_cost(configs)
            counts = f"{len(experiment.cells):>5} {len(experiment.numbers):>7} {len(configs):>5}"
            yield f"{name:<33} {counts} {steps:>11,} {hours:>8.1f}  {sets}"
        else:
            yield f"{name:<33} " + ("no runs" if experiment.figure is None else f"no training{'':<30} {sets}")
        yield from textwrap.wrap(experiment.what, 110, initial_indent="    ", subsequent_indent="    ")
    yield f"runs: tuning and final ones at scale {scale}; hours: a run on every core"


def runs_of_cells(experiment: Experiment, scale: str) -> list[Config]:
    """The runs of all cells, shared ones once."""
    runs: dict[tuple[str, int], Config] = {}
    for cell in experiment.cells:
        whole = Config(**nest(experiment.values(cell, scale)))
        for method in experiment.compared_methods(cell, scale):
            runs |= {(config.key(), seed): config for config, seed in method.runs(whole, whole.seeds, TUNE_SEEDS)}
    return list(runs.values())
