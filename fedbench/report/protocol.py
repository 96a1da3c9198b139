"""The protocol of a study in words, for the section of a paper that describes the experiments."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

from fedbench.config.words import plural
from fedbench.report.answer import partition_words
from fedbench.report.evidence import covers_samples, over
from fedbench.report.leaderboard import model_sizes
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.survey import Survey
from fedbench.report.typeset import escape_latex, join_words
from fedbench.results.matrix import is_matrix
from fedbench.results.plan import Plan, key_name, text_of
from fedbench.results.quantities import ranges, seed_range
from fedbench.results.statistics import LEAST_SEEDS
from fedbench.results.tables import BASELINE

OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "module": "the model's own optimiser"}


def protocol(folder: Path, names: Mapping[str, str]) -> str:
    """The paragraph as plain text. names: how methods are called. Raises ConfigError if the folder holds no study."""
    if not is_matrix(folder):
        return " ".join(sentences(Study.load(folder), names, {}))
    survey = Survey.load(folder)
    study = survey.first_study if survey.studies else Study.load(folder / survey.matrix.settings[0].path)
    return " ".join(sentences(study, names, survey.matrix.over))


def in_lines(text: str, form: str) -> str:
    """The paragraph in lines, as markdown or latex."""
    shown = escape_latex(text) if form == "latex" else text.replace("\u00a0", " ")
    return fill(shown, 100, break_on_hyphens=False) + "\n"


def sentences(study: Study, names: Mapping[str, str], over: Mapping[str, Sequence[Any]]) -> list[str]:
    """What is compared, on which data, how it is trained, tuned, scored and tested. over: what varies, by key."""
    config, plan = study.config, study.plan
    found = [
        _compared_methods(study, names, config),
        _clients(study, config, over),
        _training(study, config, over),
        _settings(over),
        _tuning(study, plan, config),
        _scores(study, plan, config),
        _tests(study),
    ]
    return [said for said in found if said]


def _compared_methods(study: Study, names: Mapping[str, str], config: Mapping[str, Any]) -> str:
    labels = [*dict.fromkeys([*study.ordered, *study.plan.labels()])]
    called = sorted(names.get(label, label) for label in labels)
    data = (config.get("data") or {}).get("name", "unknown data")
    shown = " and ".join([", ".join(called[:-1]), called[-1]] if len(called) > 1 else called)
    return f"We {'compare' if len(called) > 1 else 'run'} {shown} on {data}."


def _clients(study: Study, config: Mapping[str, Any], over: Mapping[str, Sequence[Any]]) -> str:
    run = study.records
    dealt = partition_words(dict(config), run.environment() if run else {}).replace(", ", " by the scheme ", 1)
    said = f"The data are divided among {dealt}" if dealt else "Every client has its own data"
    public = int((config.get("public") or {}).get("size") or 0)
    said += f"; {public} public samples belong to no client" if public else ""
    share = config.get("participation", 1.0)
    if "participation" in over:
        return f"{said}."
    if isinstance(share, float) and share >= 1:
        return f"{said}; in every round all of them take part."
    who = f"{100 * share:g} % of them take part" if isinstance(share, float) else f"{share} of them take part"
    return f"{said}; in every round {who}, drawn at random."


def _training(study: Study, config: Mapping[str, Any], over: Mapping[str, Sequence[Any]]) -> str:
    train, model = dict(config.get("train") or {}), dict(config.get("model") or {})
    asked = study.plan.config.get("train") or {}
    # The subject's own may be tuned ones.
    train |= {key: value for key, value in asked.items() if isinstance(value, int | float)}
    hidden = model.get("hidden")
    widths = [str(width) for width in hidden] if isinstance(hidden, list) else []
    layers = f" with {'hidden layers' if len(widths) > 1 else 'a hidden layer'} of {join_words(widths)} units"
    how = partial(_value, study, train, over)
    amount = "steps" if train.get("steps") else "epochs"
    optimizer = OPTIMISERS.get(str(train.get("optimizer")), str(train.get("optimizer")))
    parts = [
        how("learning rate", "lr"),
        how("momentum", "momentum") if optimizer == "SGD" else "",
        how("weight decay", "weight_decay"),
        f"learning-rate decay {train['lr_decay']:g} per round" if train.get("lr_decay", 1.0) != 1.0 else "",
        f"gradients clipped at norm {train['clip_norm']:g}" if train.get("clip_norm") else "",
    ]
    by = f"{optimizer} ({', '.join(filter(None, parts))})" if optimizer != OPTIMISERS["module"] else optimizer
    rounds = plural(config.get("rounds", 0), "round")
    batch = f" in batches of {train['batch_size']}" if train.get("batch_size") else ""
    names = str(model.get("name")).split(",")
    which = f"the model {names[0]}" if len(names) == 1 else f"its model (of {', '.join(names)}, dealt in turn)"
    own = " Methods may prescribe other values." if study.is_comparison else ""
    work = how("steps" if amount == "steps" else "local epochs", amount, first=True)
    return (
        f"A run has {rounds}, in each of which a participant trains {which}{layers if widths else ''}{_size(study)} "
        f"for {work}{batch} by {by}.{own}"
    )


def _size(study: Study) -> str:
    """The number of parameters in brackets, if the models of all methods have the same."""
    sizes = {model_sizes(run.environment())[0] for run in study.runs.values()}
    size = sizes.pop() if len(sizes) == 1 else ""
    return f" ({int(size):,} parameters)" if size.isdigit() else ""


def _value(
    study: Study,
    train: Mapping[str, Any],
    over: Mapping[str, Sequence[Any]],
    name: str,
    key: str,
    first: bool = False,
) -> str:
    """`momentum 0.5`, `momentum tuned`, or `momentum 0.5 unless tuned`, where some methods are tuned over it.

    first: `5 local epochs`.
    """
    spaces = [space for space in study.plan.spaces.values() if any(len(values) > 1 for values in space.values())]
    tuned = [len(space.get(f"train.{key}", [])) > 1 for space in spaces]
    value = train.get(key)
    if f"train.{key}" in over or (tuned and all(tuned)) or not isinstance(value, int | float):
        varied = "a varied number of" if f"train.{key}" in over else "a tuned number of"
        return f"{varied} {name}" if first else f"{name} {'varied' if f'train.{key}' in over else 'tuned'}"
    plain = f"{value:g} {name.removesuffix('s') if value == 1 else name}" if first else f"{name} {value:g}"
    return f"{plain} unless tuned" if any(tuned) else plain


def _settings(over: Mapping[str, Sequence[Any]]) -> str:
    said = [f"{key_name(key).replace('_', ' ')} ({', '.join(map(text_of, values))})" for key, values in over.items()]
    return f"We repeat this for every combination of {join_words(said)}." if len(said) > 1 else (
        f"We repeat this for every value of {said[0]}." if said else ""
    )  # fmt: skip


def _tuning(study: Study, plan: Plan, config: Mapping[str, Any]) -> str:
    tried = {label: len(plan.points(label)) for label in plan.spaces if len(plan.points(label)) > 1}
    if not tried:
        return "No hyperparameter is tuned." if plan.kind != "run" else ""
    counts = sorted(set(tried.values()))
    many = plural(counts[0], "point") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} points"
    how = {
        "grid": f"{many} of its space",
        "random": f"{many} drawn at random from its space",
        "optuna": f"{many} proposed by Optuna's TPE",
    }[plan.search]
    seeds = sorted({entry.seed for entry in plan.entries if entry.role == "candidate"})
    halves = "; after each of them the better half of the points stays" if plan.drops_points_early else ""
    apart = "none of which is a seed" if len(seeds) > 1 else "which is no seed"
    early = "; ASHA stops trials that fall behind" if plan.scheduler == "asha" else ""
    held = (plan.config.get("data") or {}).get("val")
    val = f" on {100 * held:g} % of every client's training data, which are held out" if held else ""
    budgets = " Budgets are equal in gradient steps." if plan.budgets else ""
    return (
        f"The hyperparameters of each method are chosen among {how} by the mean validation {study.metric.label} "
        f"{POINT_NAMES[study.point]}{val}, over tuning {seed_range(seeds)}"
        f", {apart} of the final runs{halves}{early}.{budgets}"
    )


def _scores(study: Study, plan: Plan, config: Mapping[str, Any]) -> str:
    metric, point = study.metric, POINT_NAMES[study.point]
    last = f"We report the test {metric.label} of the personal models {point}, after the last round"
    if study.race is not None:
        return f"{last}, as mean over clients and seeds; seeds are added until the comparison is decided."
    seeds = [*dict.fromkeys(entry.seed for label in plan.labels() for entry in plan.final(label))]
    seeds = list(plan.config.get("seeds") or config.get("seeds") or seeds)
    same = "; methods share the partition, the initial model and the batches of a seed" if study.is_comparison else ""
    return f"{last}, as mean over clients and {plural(len(seeds), 'seed')} ({ranges(seeds)}){same}."


def _tests(study: Study) -> str:
    if study.race is not None:
        return (
            "Statements on who is better hold together with 95 % over all looks (group-sequential tests of paired "
            f"differences {over(study)}{_clustered(study)})."
        )
    seeds = max((len(study.last_rows(label)) for label in study.metrics), default=0)
    if seeds < 2:
        return ""
    said = f"Intervals are 95 % Student t intervals {over(study)}{_clustered(study)}."
    if seeds < LEAST_SEEDS or not study.is_comparison or BASELINE not in study.metrics:
        return said
    return (
        f"{said} Methods are compared by paired t tests {over(study)} on the mean difference of a seed's clients, "
        "with p values corrected for the number of comparisons by the step-down method of Westfall and Young under "
        "random rotations (Langsrud, 2005)."
    )


def _clustered(study: Study) -> str:
    """How the choice of test samples is counted, if it is."""
    return " (two-way clustered variance; Cameron et al., 2011)" if covers_samples(study) else ""
