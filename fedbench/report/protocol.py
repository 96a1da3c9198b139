"""The protocol of a study in words, for the section of a paper that describes the experiments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from fedbench.report.answer import partition_words
from fedbench.report.matrix import Survey
from fedbench.report.over_keys import key_name
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import escape_latex, join_words
from fedbench.results.matrix import is_matrix
from fedbench.results.plan import Plan, text_of
from fedbench.results.quantities import plural
from fedbench.results.statistics import LEAST_SEEDS
from fedbench.results.tables import BASELINE

OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "module": "the model's own optimiser"}


def protocol(folder: Path, names: Mapping[str, str]) -> str:
    """The paragraph as plain text. names: how methods are called. Raises ConfigError if the folder holds no study."""
    if not is_matrix(folder):
        return " ".join(sentences(Study.load(folder), names, {}))
    survey = Survey.load(folder)
    study = survey.first if survey.studies else Study.load(folder / survey.matrix.settings[0].path)
    return " ".join(sentences(study, names, survey.matrix.over))


def wrapped(text: str, form: str) -> str:
    """The paragraph in lines, as markdown or latex."""
    return fill(escape_latex(text) if form == "latex" else text.replace("\u00a0", " "), 100) + "\n"


def sentences(study: Study, names: Mapping[str, str], over: Mapping[str, Sequence[Any]]) -> list[str]:
    """What is compared, on which data, how it is trained, tuned, scored and tested. over: what varies, by key."""
    config, plan = study.config, study.plan
    found = [
        _compared(study, names, config),
        _clients(study, config, over),
        _training(study, config, over),
        _settings(over),
        _tuning(study, plan, config),
        _scores(study, plan, config),
        _tests(study),
    ]
    return [said for said in found if said]


def _compared(study: Study, names: Mapping[str, str], config: Mapping[str, Any]) -> str:
    labels = [*dict.fromkeys([*study.ordered, *study.plan.labels()])]
    called = sorted(names.get(label, label) for label in labels)
    data = (config.get("data") or {}).get("name", "unknown data")
    shown = " and ".join([", ".join(called[:-1]), called[-1]] if len(called) > 1 else called)
    return f"We {'compare' if len(called) > 1 else 'run'} {shown} on {data}."


def _clients(study: Study, config: Mapping[str, Any], over: Mapping[str, Sequence[Any]]) -> str:
    run = study.own
    dealt = partition_words(dict(config), run.environment() if run else {})
    said = f"The data are divided among {dealt}" if dealt else "Every client has its own data"
    public = int((config.get("public") or {}).get("size") or 0)
    said += f"; {public} public images belong to no client" if public else ""
    share = config.get("participation", 1.0)
    if "participation" in over:
        return f"{said}."
    if isinstance(share, float) and share >= 1:
        return f"{said}; in every round all of them take part."
    who = f"{100 * share:g} % of them take part" if isinstance(share, float) else f"{share} of them take part"
    return f"{said}; in every round {who}, drawn at random."


def _training(study: Study, config: Mapping[str, Any], over: Mapping[str, Sequence[Any]]) -> str:
    train, model = dict(config.get("train") or {}), dict(config.get("model") or {})
    tuned = {key for space in study.plan.spaces.values() for key, values in space.items() if len(values) > 1}
    hidden = model.get("hidden")
    layers = f" with hidden layers of {join_words([*map(str, hidden)])}" if isinstance(hidden, list) and hidden else ""
    free = {*tuned, *over}
    steps = train.get("steps")
    amount = plural(steps, "step") if steps else plural(train.get("epochs", 1), "local epoch")
    if free & {"train.epochs", "train.steps"}:
        amount = "a tuned number of local epochs" if "train.epochs" in tuned else "as many local epochs as stated"
    optimizer = OPTIMISERS.get(str(train.get("optimizer")), str(train.get("optimizer")))
    parts = [
        _value("learning rate", "train.lr", train, free, tuned),
        _value("momentum", "train.momentum", train, free, tuned) if optimizer == "SGD" else "",
        _value("weight decay", "train.weight_decay", train, free, tuned),
        f"learning-rate decay {train['lr_decay']:g} per round" if train.get("lr_decay", 1.0) != 1.0 else "",
        f"gradients clipped at norm {train['clip_norm']:g}" if train.get("clip_norm") else "",
    ]
    by = f"{optimizer} ({', '.join(filter(None, parts))})" if optimizer != OPTIMISERS["module"] else optimizer
    rounds = plural(config.get("rounds", 0), "round")
    batch = f" in batches of {train['batch_size']}" if train.get("batch_size") else ""
    own = " Methods may prescribe other values." if study.compared else ""
    return (
        f"A run has {rounds}, in each of which a participant trains the model {model.get('name')}{layers} for "
        f"{amount}{batch} by {by}.{own}"
    )


def _value(name: str, key: str, train: Mapping[str, Any], free: set[str], tuned: set[str]) -> str:
    value = train.get(key.removeprefix("train."))
    if key in free:
        return f"{name} tuned" if key in tuned else ""
    return f"{name} {value:g}" if isinstance(value, int | float) else ""


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
    many = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    how = {
        "grid": f"{many} points of its space",
        "random": f"{many} points drawn at random from its space",
        "optuna": f"{many} points proposed by Optuna's TPE",
    }[plan.search]
    seeds = sorted({entry.seed for entry in plan.entries if entry.role == "candidate"})
    each = ", after each of which the better half stays," if plan.drops_points_early else ""
    early = "; ASHA stops trials that fall behind" if plan.scheduler == "asha" else ""
    held = (plan.config.get("data") or {}).get("val")
    val = f" on {100 * held:g} % of every client's training data, which are held out" if held else ""
    budgets = " Budgets are equal in gradient steps." if plan.budgets else ""
    return (
        f"The hyperparameters of each method are chosen among {how} by the mean validation {study.metric.label} "
        f"{POINT_NAMES[study.point]}{val}, over tuning {'seeds' if len(seeds) > 1 else 'seed'} "
        f"{', '.join(map(str, seeds))}{each} none of which is a seed of the final runs{early}.{budgets}"
    ).replace(f"{seeds[-1]} none", f"{seeds[-1]}, none")


def _scores(study: Study, plan: Plan, config: Mapping[str, Any]) -> str:
    metric, point = study.metric, POINT_NAMES[study.point]
    last = f"We report the test {metric.label} of the personal models {point}, after the last round"
    if study.race is not None:
        return f"{last}, as mean over clients and seeds; seeds are added until the comparison is decided."
    seeds = [*dict.fromkeys(entry.seed for label in plan.labels() for entry in plan.final(label))]
    seeds = list(plan.config.get("seeds") or config.get("seeds") or seeds)
    same = "; methods share the partition, the initial model and the batches of a seed" if study.compared else ""
    return f"{last}, as mean over clients and {plural(len(seeds), 'seed')} ({', '.join(map(str, seeds))}){same}."


def _tests(study: Study) -> str:
    if study.race is not None:
        return (
            "Statements on who is better hold together with 95 % over all looks (group-sequential tests of paired "
            "differences over seeds)."
        )
    seeds = max((len(study.last(label)) for label in study.metrics), default=0)
    if seeds < 2:
        return ""
    said = "Intervals are 95 % Student t intervals over seeds."
    if seeds < LEAST_SEEDS or not study.compared or BASELINE not in study.metrics:
        return said
    return (
        f"{said} Methods are compared by paired t tests over seeds on the mean difference of a seed's clients, with p "
        "values corrected for the number of comparisons by the step-down method of Westfall and Young under random "
        "rotations (Langsrud, 2005)."
    )
