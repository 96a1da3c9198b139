"""Sentences of the protocol on local training: of most methods, and of those that train otherwise."""

from fedbench.config.words import plural
from fedbench.report.facts import Facts
from fedbench.report.leaderboard_table import model_sizes
from fedbench.report.typeset import join_words
from fedbench.results.plan import text_of

OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "module": "the model's own optimiser"}
OF_TRAINING = ("epochs", "steps", "batch_size", "optimizer", "lr", "momentum", "weight_decay", "lr_decay", "clip_norm")
"""Keys of `train` that the protocol states."""
STEPS_BY = {"plain": "makes plain gradient steps of its own", "own": "has an optimiser of its own"}


def training(facts: Facts) -> str:
    """How a participant trains in a round, as most methods do."""
    config = facts.study.config
    rounds = "a varied number of rounds" if facts.varies("rounds") else plural(config.get("rounds", 0), "round")
    trainer = (
        "one learner with the data of all clients"
        if facts.labels and len(facts.pooled) == len(facts.labels)
        else "a participant"
    )
    return (
        f"A run has {rounds}, in each of which {trainer} trains {_model(facts)} for {_amount(facts)}{_batches(facts)} "
        f"by {_optimiser(facts)}."
    )


def _model(facts: Facts) -> str:
    """Its name, hidden layers and size, as far as all methods and settings have the same."""
    model = facts.section("model")
    if "name" not in model:
        return "its model"
    names = str(model["name"]).split(",")
    if len(names) > 1:
        return f"its model (of {', '.join(names)}, dealt in turn)"
    hidden = model.get("hidden")
    widths = [str(width) for width in hidden] if isinstance(hidden, list) else []
    layers = f" with {'hidden layers' if len(widths) > 1 else 'a hidden layer'} of {join_words(widths)} units"
    sizes = {model_sizes(environment, "parameters") for environment in facts.environments.values()}
    size = sizes.pop() if len(sizes) == 1 and not any(facts.varies(key) for key in ("model", "data.name")) else ""
    return f"the model {names[0]}{layers if widths else ''}{f' ({int(size):,} parameters)' if size.isdigit() else ''}"


def _amount(facts: Facts) -> str:
    """`5 local epochs`, `7 steps`, `a tuned number of local epochs`."""
    key = "steps" if facts.usual("steps") or facts.tuned("steps") or facts.varies("train.steps") else "epochs"
    name, tuned, value = "steps" if key == "steps" else "local epochs", facts.tuned(key), facts.usual(key)
    if facts.varies(f"train.{key}"):
        return f"a varied number of {name}"
    if (tuned and len(tuned) >= len(facts.train)) or not isinstance(value, int | float):
        return f"a tuned number of {name}" if tuned else name
    plain = f"{value:g} {name.removesuffix('s') if value == 1 else name}"
    return f"{plain} unless tuned" if tuned else plain


def _batches(facts: Facts) -> str:
    if facts.varies("train.batch_size"):
        return " in batches of varied size"
    tuned, value = facts.tuned("batch_size"), facts.usual("batch_size")
    if tuned and len(tuned) >= len(facts.train):
        return " in batches of tuned size"
    if not value:
        return ""
    size = " on all its samples at once" if value == "full" else f" in batches of {value}"
    several = facts.usual("accumulate") or 1
    step = f", {several} for each step of the optimiser" if several > 1 and not facts.varies("train.accumulate") else ""
    return f"{size}{' unless tuned' if tuned else ''}{step}"


def _optimiser(facts: Facts) -> str:
    if facts.varies("train.optimizer"):
        return "a varied optimiser"
    name = str(facts.usual("optimizer"))
    module = name == "module"
    decay, clip = facts.usual("lr_decay"), facts.usual("clip_norm")
    parts = [
        "" if module else facts.stated("lr", "learning rate"),
        facts.stated("momentum", "momentum") if name == "sgd" else "",
        "" if module else facts.stated("weight_decay", "weight decay"),
        facts.stated("lr_decay", "learning-rate decay per round")
        if decay != 1.0 or facts.varies("train.lr_decay") or facts.tuned("lr_decay")
        else "",
        f"gradients clipped at norm {clip:g}" if clip and not facts.varies("train.clip_norm") else "",
    ]
    options = ", ".join(filter(None, parts))
    return f"{OPTIMISERS.get(name, name)} ({options})" if options else OPTIMISERS.get(name, name)


def own_training(facts: Facts) -> str:
    """Which methods train otherwise than `training` says."""
    departures: dict[str, list[str]] = {}
    for key in OF_TRAINING:
        if key == "momentum" and facts.usual("optimizer") != "sgd":
            continue
        for label, value in facts.others(key).items():
            shown = OPTIMISERS.get(str(value), text_of(value)) if key == "optimizer" else text_of(value)
            departures.setdefault(label, []).append(f"{key.replace('_', ' ').replace('lr', 'learning rate')} {shown}")
    texts = [f"{facts.called([label])} has {join_words(words)}" for label, words in departures.items()]
    own_steps = {label: env.get("steps_by") for label, env in facts.environments.items()}
    texts += [f"{facts.called([label])} {STEPS_BY[by]}" for label, by in own_steps.items() if by in STEPS_BY]
    if facts.pooled and len(facts.pooled) < len(facts.labels):
        texts.append(f"{facts.called(facts.pooled)} trains one model on the data of all clients")
    return f"{'; '.join(texts)}." if texts else ""
