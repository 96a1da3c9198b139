"""The protocol of a study in words, for the section of a paper that describes the experiments.

Every sentence stands on facts of the plan, the configurations and the records; what no record says is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any

from fedbench.config.counts import count_of, newcomer_count
from fedbench.config.words import plural
from fedbench.report.evidence import covers_samples
from fedbench.report.evidence import over as chance
from fedbench.report.facts import Facts
from fedbench.report.headline import partition_words
from fedbench.report.leaderboard import comparisons
from fedbench.report.leaderboard_table import model_sizes
from fedbench.report.protocol_training import own_training, training
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import escape_latex, join_words, sentence
from fedbench.report.verdicts import margin_text, most_seeds
from fedbench.results.contrasts import Contrast, correction_of
from fedbench.results.estimators import SAMPLES
from fedbench.results.plan import key_name, text_of
from fedbench.results.quantities import ranges, seed_range
from fedbench.results.tables import BASELINE

CORRECTIONS = {
    "rotations": "the step-down method of Westfall and Young under random rotations (Langsrud, 2005)",
    "holm": "Holm's method",
}


def protocol(folder: Path, names: Mapping[str, str]) -> str:
    """The paragraph as plain text. names: how methods are called. Raises ConfigError if the folder holds no study."""
    survey = SettingsStudy.load(folder)
    study = survey.first_study if survey.studies else Study.load(folder / survey.file.settings[0].path)
    missing = len(survey.file.settings) - len(survey.settings)
    return " ".join(sentences(study, names, survey.file.over, missing))


def in_lines(text: str, form: str) -> str:
    """The paragraph in lines, as markdown or latex."""
    shown = escape_latex(text) if form == "latex" else text.replace("\u00a0", " ")
    return fill(shown, 100, break_on_hyphens=False) + "\n"


def sentences(study: Study, names: Mapping[str, str], over: Mapping[str, Sequence[Any]], missing: int = 0) -> list[str]:
    """Sentences on the compared methods, their data, training, tuning, scores and tests.

    over: what varies, by key. missing: the number of settings that were not evaluated.
    """
    facts = Facts(study, names, over, missing)
    lines = [
        _compared_methods(facts),
        _clients(facts),
        _fleet(facts),
        training(facts),
        own_training(facts),
        _settings(facts),
        _tuning(facts),
        _scores(facts),
        _tests(facts),
    ]
    return [line for line in lines if line]


def _compared_methods(facts: Facts) -> str:
    name = str((facts.study.config.get("data") or {}).get("name", "unknown data"))
    kind, colon, source = name.partition(":")
    data = f"the data {kind}:{source.rpartition('/')[2] if source.startswith('/') else source}" if colon else name
    data = "several data sets" if facts.varies("data.name") else data
    text = f"We {'compare' if len(facts.labels) > 1 else 'run'} {facts.called(facts.labels)} on {data}."
    failed = [label for label in facts.labels if label in facts.study.failures]
    lost = f" {facts.called(failed)} failed and {'has' if len(failed) == 1 else 'have'} no score."
    return text + (lost if failed else "")


def _clients(facts: Facts) -> str:
    partition, whole = facts.section("partition"), dict(facts.study.config.get("partition") or {})
    name, clients = str(whole.get("name") or ""), whole.get("clients") or 0
    known = next((environment for environment in facts.environments.values() if environment), {})
    if facts.varies("partition.name"):
        text = "The data are divided among clients in several ways"
    elif name == "natural":
        count = "" if facts.varies("data.name") or "clients" not in partition else f", {clients} of them"
        text = f"The clients are those of the data{count}"
    elif name:
        dealt = partition_words({"partition": partition}, known)
        among, comma, scheme = dealt.partition(", ") if partition.get("clients") else ("clients", ", ", dealt)
        text = f"The data are divided among {among} by the scheme {scheme}" if comma else ""
    else:
        text = "Every client has its own data"
    if not facts.varies("public.size") and (public := int(facts.section("public").get("size") or 0)):
        text += f"; {public} public samples belong to no client"
    if partition.get("seed") is not None:
        text += "; all seeds share one partition"
    return f"{text}{_participants(facts, clients, whole)}."


def _participants(facts: Facts, clients: int, partition: Mapping[str, Any]) -> str:
    """Who takes part in a round."""
    if facts.varies("participation") or len(facts.pooled) == len(facts.labels):
        return ""
    later = newcomer_count(clients, partition.get("new_clients") or 0)
    share, them = facts.study.config.get("participation", 1.0), "the others" if later else "them"
    known = clients - later if not facts.varies("partition.clients") else 0
    if share == 1 or (known and count_of(known, share) == known):
        return f"; in every round all of {them} take part"
    who = f"{share:g}" if share > 1 else f"{100 * share:g} %"
    return f"; in every round {who} of {them} take part, drawn at random"


def _fleet(facts: Facts) -> str:
    """How participants fail or attack, and what changes their uploads."""
    slow, attack, short, private = map(facts.section, ("stragglers", "attack", "compression", "privacy"))
    lost = 0.0 if facts.varies("dropout") else float(facts.study.config.get("dropout") or 0.0)
    parts = [
        f"the uploads of {100 * lost:g} % of the participants are lost" if lost else "",
        f"{100 * slow['share']:g} % of the participants stop early" if slow.get("share") else "",
        f"{100 * attack['share']:g} % of the clients attack ({attack['name']}) and are not scored"
        if attack.get("name", "none") != "none" and "share" in attack
        else "",
        f"uploads are compressed ({short['name']})" if short.get("name", "none") != "none" else "",
        f"noise protects every {'client' if private.get('level') == 'client' else 'sample'}"
        if private.get("noise")
        else "",
    ]
    texts = [part for part in parts if part]
    return f"{sentence('; '.join(texts))}." if texts else ""


def _settings(facts: Facts) -> str:
    names = [
        f"{key_name(key).replace('_', ' ')} ({', '.join(map(text_of, values))})" for key, values in facts.over.items()
    ]
    if not names:
        return ""
    lack = f" {plural(facts.missing, 'setting')} {'is' if facts.missing == 1 else 'are'} not evaluated."
    each = f"combination of {join_words(names)}" if len(names) > 1 else f"value of {names[0]}"
    return f"We repeat this for every {each}.{lack if facts.missing else ''}"


def _tuning(facts: Facts) -> str:
    study, plan = facts.study, facts.study.plan
    if not facts.tuned_methods:
        return "No hyperparameter is tuned." if plan.kind != "run" else ""
    counts = sorted({len(plan.points(label)) for label in facts.tuned_methods})
    many = plural(counts[0], "candidate") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} candidates"
    how = {
        "grid": f"{many} of its space",
        "random": f"{many} drawn at random from its space",
        "optuna": f"{many} proposed by Optuna's TPE",
    }[plan.search]
    left = [label for label in facts.labels if label not in facts.tuned_methods]
    whose = "each method" if not left else facts.called(facts.tuned_methods)
    seeds = sorted({entry.seed for entry in plan.entries if entry.role == "candidate"})
    over = seed_range(seeds).replace("seed", "tuning seed", 1)
    shared = sorted(set(seeds) & {entry.seed for label in facts.labels for entry in plan.final(label)})
    apart = "none of which is a seed" if len(seeds) > 1 else "which is no seed"
    apart = f"of which {ranges(shared)} {'is a seed' if len(shared) == 1 else 'are seeds'}" if shared else apart
    halves = "; after each of them the better half of the candidates stays" if plan.drops_points_early else ""
    early = "; on the first, the worse half stops after half of the rounds" if plan.stopped() else ""
    more = [
        f"{facts.called(left)} {'is' if len(left) == 1 else 'are'} not tuned." if left else "",
        "Beside these, the neighbours of the best candidates were tried." if any(plan.beside_best.values()) else "",
        "Candidates of methods with more gradient steps are fewer, so that budgets are equal in gradient steps."
        if plan.by_steps
        else "",
        _final_training(facts),
    ]
    choice = (
        f"The hyperparameters of {whose} are chosen among {how} by the mean validation {study.metric.label} "
        f"{POINT_NAMES[study.point]}{_validation(facts)}, over {over}, {apart} of the final runs{halves}{early}."
    )
    return " ".join(filter(None, [choice, *more]))


def _validation(facts: Facts) -> str:
    """On which samples candidates are compared."""
    if facts.varies("data.val"):
        return ""
    if any(environment.get("validation_part") for environment in facts.environments.values()):
        return " on the data's own validation part"
    held = (facts.study.plan.config.get("data") or {}).get("val")
    return f" on {100 * held:g} % of every client's training data, which are held out" if held else ""


def _final_training(facts: Facts) -> str:
    """Whether final runs hold out as many samples as tuning."""
    tuned, final = ((tree.get("data") or {}).get("val") for tree in (facts.study.plan.config, facts.study.config))
    if facts.varies("data.val") or tuned is None or final is None or tuned == final:
        return ""
    return "Final runs train on these samples too." if not final else f"Final runs hold out {100 * final:g} %."


def _scores(facts: Facts) -> str:
    study = facts.study
    unit = " in %" if study.metric.share else ""
    behind = [label for label in study.metrics if not study.summaries[label]["complete"]]
    when = f"so far ({facts.called(behind)} {'has' if len(behind) == 1 else 'have'} not ended)" if behind else ""
    last = (
        f"We report the test {study.metric.label}{unit} of the personal models {POINT_NAMES[study.point]}, "
        f"{when or 'after the last round'}, as mean over {_scored_clients(facts)}"
    )
    if study.sequential_test is not None:
        rule = f"a difference below {margin_text(study)} counts as equal; at most {most_seeds(study)}"
        return f"{last} and seeds; seeds are added until the comparison is decided ({rule})."
    kinds = sorted({kind for kind in study.estimators.values() if kind != SAMPLES})
    by = f"; a client's {study.metric.label} is the mean over {join_words(kinds)}" if kinds else ""
    return f"{last} and {_scored_seeds(facts)}{by}{_in_common(facts)}."


def _scored_clients(facts: Facts) -> str:
    evaluated = facts.section("evaluate").get("clients")
    clients = (facts.study.config.get("partition") or {}).get("clients") or 0
    if isinstance(evaluated, int) and evaluated < clients and not facts.varies("partition.clients"):
        return f"{evaluated:,} of the clients, the same in every round,"
    return "clients"


def _scored_seeds(facts: Facts) -> str:
    """The seeds that have a score; before there is one, those asked for."""
    study, plan = facts.study, facts.study.plan
    known = {label: study.last_rows(label)["seed"].tolist() for label in study.metrics}
    planned = [*dict.fromkeys(entry.seed for label in plan.labels() for entry in plan.final(label))]
    every = sorted({*chain(*known.values())}) or list(plan.config.get("seeds") or study.config.get("seeds") or planned)
    fewer = {label: len(seeds) for label, seeds in known.items() if len(seeds) < len(every)}
    lack = join_words([f"{facts.called([label])} {count}" for label, count in fewer.items()])
    return f"{plural(len(every), 'seed')} ({ranges(every)}{f'; {lack} of them' if lack else ''})"


def _in_common(facts: Facts) -> str:
    """The parts of a seed that all methods share, as far as records show it."""
    if len(facts.configs) < 2:
        return ""
    configs = {label: config for label, config in facts.configs.items() if label not in facts.pooled}
    dealt: dict[str, set[str]] = {}
    for environment in facts.environments.values():
        for seed, own_part in (environment.get("partition_fingerprint") or {}).items():
            dealt.setdefault(seed, set()).add(own_part)
    parts = ["the partition"] if dealt and all(len(known) == 1 for known in dealt.values()) else []
    sizes = [model_sizes(facts.environments[label], "parameters") for label in configs]
    same_model = _same(sizes) and _same(config.get("model") for config in facts.configs.values())
    parts += ["the initial model"] if same_model else []
    keys = ("batch_size", "epochs", "steps", "shuffle", "accumulate")
    trained = [[facts.train[label].get(key) for key in keys] for label in configs]
    # The pooled model has batches of its own.
    parts += ["the order of batches"] if len(configs) == len(facts.configs) and _same(trained) else []
    return f"; methods share {join_words(parts)} of a seed" if parts else ""


def _same(values: Iterable[Any]) -> bool:
    known = list(values)
    return all(value == known[0] for value in known)


def _tests(facts: Facts) -> str:
    study = facts.study
    if study.sequential_test is not None:
        return (
            "Statements on who is better hold together with 95 % over all looks (group-sequential tests of paired "
            f"differences {chance(study)}{_clustered(study)})."
            if study.sequential_test.look
            else ""
        )
    seeds = max((len(study.last_rows(label)) for label in study.metrics), default=0)
    if seeds < 2:
        return ""
    text = f"Intervals are 95 % Student t intervals {chance(study)}{_clustered(study)}."
    if study.plan.subject is not None:
        alone = study.is_comparison and BASELINE in study.metrics and len(study.metrics) > 1
        return (
            f"{text} Differences are paired by seed and client; their intervals are not corrected." if alone else text
        )
    families = comparisons(study, study.ordered) if study.ordered else ()
    tested = [[c for c in contrasts.values() if isinstance(c, Contrast) and c.p is not None] for contrasts in families]
    if not any(tested):
        return text
    how = [CORRECTIONS[name] for name in dict.fromkeys(map(correction_of, filter(None, tested))) if name]
    corrected = f", with p values corrected for the number of comparisons by {join_words(how)}" if how else ""
    tests = f"Methods are compared by paired t tests {chance(study)} on the mean difference of a seed's clients"
    return f"{text} {tests}{corrected}."


def _clustered(study: Study) -> str:
    """How the choice of test samples is counted, if it is."""
    return " (two-way clustered variance; Cameron et al., 2011)" if covers_samples(study) else ""
