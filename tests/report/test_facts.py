"""Every sentence of the protocol stands on a fact: it is there with the fact, and gone without it.

A row of the table gives words, a study in which they are true, and one in which they are not.
"""

import ast
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedbench.config.keys import nest
from fedbench.report import protocol, protocol_training
from fedbench.report.protocol import sentences
from fedbench.report.study import Study
from fedbench.results.plan import Entry, Plan
from tests.report.conftest import tuned, write_comparison

pytestmark = pytest.mark.xdist_group("facts")
LEVELS = {"local": 0.7, "fedper": 0.8, "fedcac": 0.85}


@dataclass(frozen=True)
class Case:
    """A study. run: keys of all runs' configurations; of: of single ones; known: of all environment.json, likewise own.

    plan: what its plan has; asked: keys of its configuration; over: what varies. levels, seeds, fail: as written.
    outcomes: whether runs kept those of their test samples.
    """

    run: Mapping[str, Any] = field(default_factory=dict)
    of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plan: Callable[[Plan], Plan] = lambda plan: plan
    asked: Mapping[str, Any] = field(default_factory=dict)
    over: Mapping[str, list[Any]] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=lambda: LEVELS)
    seeds: tuple[int, ...] = (0, 1, 2)
    fail: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    stopping_rule: Mapping[str, float] | None = None
    missing: int = 0
    outcomes: bool = False

    def text(self, folder: Path) -> str:
        more: dict[str, Any] = {"stopping_rule": dict(self.stopping_rule)} if self.stopping_rule else {}
        more |= {"asked": {"": {"outcomes": True}}} if self.outcomes else {}
        write_comparison(folder, dict(self.levels), seeds=self.seeds, fail=dict(self.fail), **more)
        for place in (folder / "final").iterdir():
            label = next(name for name in self.levels if place.name.startswith(name))
            merge_yaml(place / "config.yaml", {"train.optimizer": "sgd", **self.run, **self.of.get(label, {})})
            known = json.loads((place / "environment.json").read_text())
            (place / "environment.json").write_text(json.dumps(known | self.known | self.own.get(label, {})))
        plan = Plan.read(folder)
        tree = merged(plan.config, nest(dict(self.asked)))
        self.plan(replace(plan, config=tree, entries=[of_tuning(e) for e in plan.entries])).write(folder)
        return " ".join(sentences(Study.load(folder), {}, dict(self.over), self.missing))


def of_tuning(entry: Entry, seed: int = 90) -> Entry:
    return replace(entry, seed=seed) if entry.role == "candidate" else entry


def merge_yaml(file: Path, keys: Mapping[str, Any]) -> None:
    tree = merged(yaml.load(file.read_text(), yaml.CSafeLoader), nest(dict(keys)))
    file.write_text(yaml.dump(tree, Dumper=yaml.CSafeDumper))


def merged(tree: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    both = {k: merged(tree.get(k) or {}, v) if isinstance(v, Mapping) else v for k, v in more.items()}
    return tree | both


def untuned(*labels: str) -> Callable[[Plan], Plan]:
    """Without the candidates of these methods."""

    def change(plan: Plan) -> Plan:
        kept = [e for e in plan.entries if e.role == "final" or e.label not in labels]
        return replace(plan, entries=kept, spaces={k: v for k, v in plan.spaces.items() if k not in labels})

    return change


def with_candidates(*entries: Entry) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, entries=[*plan.entries, *entries])


def having(**more: Any) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, **more)


def tuned_over(key: str, *labels: str) -> Callable[[Plan], Plan]:
    return lambda plan: replace(
        plan, spaces={label: own | ({key: [1, 2]} if label in labels else {}) for label, own in plan.spaces.items()}
    )


def on_seeds(*seeds: int) -> Callable[[Plan], Plan]:
    """Every candidate on these seeds."""

    def change(plan: Plan) -> Plan:
        finals = [e for e in plan.entries if e.role == "final"]
        tried = [replace(e, seed=seed) for e in plan.entries if e.role == "candidate" for seed in seeds]
        return replace(plan, entries=[*tried, *finals])

    return change


def going_on(plan: Plan) -> Plan:
    """Runs that failed are not ended yet instead."""
    return replace(
        plan, entries=[replace(e, status="missing" if e.status == "failed" else e.status) for e in plan.entries]
    )


def grid_of(label: str) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, kind="grid", subject=label)


ALL = Case()
ONE = Case(levels={"fedcac": 0.8}, plan=lambda plan: replace(untuned(*LEVELS)(plan), kind="run", subject="fedcac"))
EXTRA = tuned("fedper", {"train.lr": 3.0})
SEQUENTIAL = {"margin": 1.0, "most": 40}
MODEL = {"models": {"mlp": {"parameters": 100, "shared": 50}}}
OTHER = {"fedper": {"models": {"mlp": {"parameters": 200, "shared": 50}}}}
AGAIN = replace(of_tuning(EXTRA, 91), values={"train.lr": 0.01})
HALTED = replace(AGAIN, seed=90, status="stopped", scores={})
POOLED = {"local": {"pooled": True}}

TABLE: list[tuple[str, Case, Case]] = [
    ("We compare fedcac, fedper and local on digits", ALL, ONE),
    ("We run fedcac on", ONE, ALL),
    ("fedper failed and has no score", Case(fail={"fedper": (0, 1, 2)}), ALL),
    ("and fedper failed and have no score", Case(fail={"fedper": (0, 1, 2), "fedcac": (0, 1, 2)}), ALL),
    ("on the data csv:own.csv", Case(run={"data.name": "csv:/work/own.csv"}), ALL),
    ("on several data sets", Case(over={"data": ["digits", "mnist"]}), ALL),
    ("on several data sets", Case(over={"data.name": ["digits", "mnist"]}), Case(over={"data.val": [0.1, 0.2]})),
    ("divided among 10 clients by the scheme dirichlet (alpha 0.5)", ALL, Case(over={"partition.alpha": [0.1, 0.5]})),
    ("(alpha 0.5)", ALL, Case(over={"partition": [{"alpha": 0.1}, {"alpha": 0.5}]})),
    ("among 10 clients", ALL, Case(over={"partition.clients": [10, 20]})),
    ("among clients by the scheme", Case(over={"partition.clients": [10, 20]}), ALL),
    ("divided among clients in several ways", Case(over={"partition": ["iid", "dirichlet"]}), ALL),
    ("The clients are those of the data, 10 of them", Case(run={"partition.name": "natural"}), ALL),
    (
        "10 of them",
        Case(run={"partition.name": "natural"}),
        Case(run={"partition.name": "natural"}, over={"data": ["a", "b"]}),
    ),
    ("Every client has its own data", Case(run={"partition.name": ""}), ALL),
    ("40 public samples belong to no client", Case(run={"public.size": 40}), ALL),
    (
        "public samples belong to no client",
        Case(run={"public.size": 40}),
        Case(run={"public.size": 40}, over={"public.size": [40, 80]}),
    ),
    ("all seeds share one partition", Case(run={"partition.seed": 7}), ALL),
    ("in every round all of them take part", ALL, Case(run={"participation": 0.5})),
    ("in every round all of them take part", Case(run={"participation": 10.0}), Case(run={"participation": 9.0})),
    ("all of the others take part", Case(run={"partition.new_clients": 2}), ALL),
    ("in every round", ALL, Case(over={"participation": [0.5, 1.0]})),
    ("50 % of them take part, drawn at random", Case(run={"participation": 0.5}), ALL),
    ("4 of them take part", Case(run={"participation": 4.0}), ALL),
    ("he uploads of 10 % of the participants are lost", Case(run={"dropout": 0.1}), ALL),
    (
        "of the participants are lost",
        Case(run={"dropout": 0.1}),
        Case(run={"dropout": 0.1}, over={"dropout": [0.1, 0.2]}),
    ),
    ("30 % of the participants stop early", Case(run={"stragglers.share": 0.3}), ALL),
    ("20 % of the clients attack (alie) and are not scored", Case(run={"attack.name": "alie"}), ALL),
    ("ploads are compressed (topk)", Case(run={"compression.name": "topk"}), ALL),
    ("oise protects every client", Case(run={"privacy.noise": 1.0}), ALL),
    ("oise protects every sample", Case(run={"privacy.noise": 1.0, "privacy.level": "sample"}), ALL),
    ("A run has 6 rounds", ALL, Case(over={"rounds": [6, 9]})),
    ("A run has a varied number of rounds", Case(over={"rounds": [6, 9]}), ALL),
    ("a participant trains", ALL, Case(known={"pooled": True})),
    ("one learner with the data of all clients trains", Case(known={"pooled": True}), ALL),
    (
        "the model mlp",
        Case(run={"model.name": "mlp"}),
        Case(run={"model.name": "mlp"}, over={"model": ["mlp", "avgcnn"]}),
    ),
    ("trains its model for", Case(over={"model": ["mlp", "avgcnn"]}), ALL),
    ("its model (of mlp, avgcnn, dealt in turn)", Case(run={"model.name": "mlp,avgcnn"}), ALL),
    ("with hidden layers of 64 and 32 units", Case(run={"model.hidden": [64, 32]}), ALL),
    ("with a hidden layer of 64 units", Case(run={"model.hidden": [64]}), ALL),
    ("(100 parameters)", Case(known=MODEL), Case(known=MODEL, own=OTHER)),
    ("for 5 local epochs in", ALL, Case(run={"train.epochs": 2})),
    ("for 1 local epoch in", Case(run={"train.epochs": 1}), ALL),
    ("for 7 steps in", Case(run={"train.steps": 7}), ALL),
    ("for a varied number of local epochs", Case(over={"train.epochs": [1, 5]}), ALL),
    ("for a tuned number of local epochs", Case(plan=tuned_over("train.epochs", *LEVELS)), ALL),
    ("5 local epochs unless tuned", Case(plan=tuned_over("train.epochs", "fedper")), ALL),
    ("in batches of 50", ALL, Case(run={"train.batch_size": 20})),
    ("on all its samples at once", Case(run={"train.batch_size": "full"}), ALL),
    ("in batches of varied size", Case(over={"train.batch_size": [20, 50]}), ALL),
    ("in batches of tuned size", Case(plan=tuned_over("train.batch_size", *LEVELS)), ALL),
    ("in batches of 50 unless tuned", Case(plan=tuned_over("train.batch_size", "local")), ALL),
    ("2 for each step of the optimiser", Case(run={"train.accumulate": 2}), ALL),
    ("by SGD (", ALL, Case(run={"train.optimizer": "adam"})),
    ("by AdamW (", Case(run={"train.optimizer": "adamw"}), ALL),
    ("by a varied optimiser", Case(over={"train.optimizer": ["sgd", "adam"]}), ALL),
    ("by the model's own optimiser.", Case(run={"train.optimizer": "module"}), ALL),
    (
        "own optimiser (gradients clipped at norm 2)",
        Case(run={"train.optimizer": "module", "train.clip_norm": 2.0}),
        ALL,
    ),
    ("gradients clipped at norm", Case(run={"train.clip_norm": 2.0}), ALL),
    ("learning-rate decay per round 0.99", Case(run={"train.lr_decay": 0.99}), ALL),
    ("learning rate tuned", ALL, Case(plan=untuned(*LEVELS))),
    ("learning rate varied", Case(over={"train.lr": [0.1, 1.0]}), ALL),
    ("learning rate 0.01 unless tuned", Case(plan=untuned("local")), ALL),
    ("momentum 0.5", ALL, Case(run={"train.optimizer": "adam"})),
    ("weight decay 0.0005", ALL, Case(run={"train.weight_decay": 0.1})),
    ("fedper has epochs 1 and batch size 10", Case(of={"fedper": {"train.epochs": 1, "train.batch_size": 10}}), ALL),
    ("fedper has optimizer Adam", Case(of={"fedper": {"train.optimizer": "adam"}}), ALL),
    (
        "fedper makes plain gradient steps of its own",
        Case(own={"fedper": {"steps_by": "plain"}}),
        Case(known={"steps_by": "run"}),
    ),
    ("fedper has an optimiser of its own", Case(own={"fedper": {"steps_by": "own"}}), ALL),
    ("local trains one model on the data of all clients", Case(own=POOLED), ALL),
    ("We repeat this for every value of alpha (0.1, 0.5)", Case(over={"partition.alpha": [0.1, 0.5]}), ALL),
    (
        "every combination of",
        Case(over={"partition.alpha": [0.1, 0.5], "rounds": [1, 2]}),
        Case(over={"rounds": [1, 2]}),
    ),
    ("1 setting is not evaluated", Case(over={"rounds": [1, 2]}, missing=1), Case(over={"rounds": [1, 2]})),
    ("2 settings are not evaluated", Case(over={"rounds": [1, 2, 3]}, missing=2), Case(over={"rounds": [1, 2]})),
    ("No hyperparameter is tuned", Case(plan=untuned(*LEVELS)), ALL),
    ("No hyperparameter is tuned", Case(plan=untuned(*LEVELS)), ONE),
    ("The hyperparameters of each method are", ALL, Case(plan=untuned("local"))),
    ("The hyperparameters of fedcac and fedper are", Case(plan=untuned("local")), ALL),
    ("local is not tuned", Case(plan=untuned("local")), ALL),
    ("fedper and local are not tuned", Case(plan=untuned("local", "fedper")), ALL),
    ("among 3 candidates of its space", ALL, Case(plan=having(search="random"))),
    ("among 3 to 4 candidates of", Case(plan=with_candidates(EXTRA)), ALL),
    ("candidates drawn at random from its space", Case(plan=having(search="random")), ALL),
    ("candidates proposed by Optuna's TPE", Case(plan=having(search="optuna")), ALL),
    ("mean validation accuracy after aggregation", ALL, Case(plan=having(point="after_fit"))),
    ("on 10 % of every client's training data, which are held out", ALL, Case(asked={"data.val": 0.0})),
    ("on 10 % of every client's training data", ALL, Case(known={"validation_part": True})),
    (
        "on the data's own validation part",
        Case(known={"validation_part": True}),
        Case(known={"validation_part": False}),
    ),
    ("which are held out", ALL, Case(over={"data.val": [0.1, 0.2]})),
    ("over tuning seed 90, which is no seed of the final runs", ALL, Case(plan=on_seeds(0))),
    ("over tuning seeds 90, 91, none of which is a seed of the final runs", Case(plan=on_seeds(90, 91)), ALL),
    ("of which 0 is a seed of the final runs", Case(plan=on_seeds(90, 0)), ALL),
    ("of which 0, 1 are seeds of the final runs", Case(plan=on_seeds(0, 1), fail={"fedper": (2,)}), ALL),
    (
        "after each of them the better half of the candidates stays",
        Case(plan=with_candidates(AGAIN)),
        Case(plan=on_seeds(90, 91)),
    ),
    ("the worse half stops after half of the rounds", Case(plan=with_candidates(HALTED)), ALL),
    (
        "budgets are equal in gradient steps",
        Case(plan=having(budgets=dict.fromkeys(LEVELS, 3), by_steps=True)),
        Case(plan=having(budgets=dict.fromkeys(LEVELS, 3))),
    ),
    (
        "the neighbours of the best candidates were tried",
        Case(plan=having(beside_best={"local": 1})),
        Case(plan=having(beside_best={"local": 0})),
    ),
    ("Final runs train on these samples too", Case(run={"data.val": 0.0}), ALL),
    ("Final runs hold out 5 %", Case(run={"data.val": 0.05}), ALL),
    ("We report the test accuracy in % of", ALL, Case(run={"evaluate.metric": "loss"})),
    (
        "after aggregation, after the last round, as mean over clients and 3 seeds (0 to 2)",
        ALL,
        Case(plan=having(point="after_fit")),
    ),
    ("so far (fedper has not ended)", Case(fail={"fedper": (2,)}, plan=going_on), ALL),
    ("so far (fedcac and fedper have not ended)", Case(fail={"fedper": (2,), "fedcac": (1,)}, plan=going_on), ALL),
    ("as mean over 3 of the clients, the same in every round,", Case(run={"evaluate.clients": 3}), ALL),
    (
        "a client's accuracy is the mean over batches of 9",
        Case(run={"evaluate.accuracy": "batches", "evaluate.batch_size": 9}),
        ALL,
    ),
    ("3 seeds (0 to 2; fedper 2 of them)", Case(fail={"fedper": (2,)}), ALL),
    ("methods share the partition, the initial model and the order of batches of a seed", ALL, ONE),
    ("share the partition", ALL, Case(own={"fedper": {"partition_fingerprint": {"0": "x"}}})),
    ("the initial model", ALL, Case(known=MODEL, own=OTHER)),
    ("the initial model", ALL, Case(of={"fedper": {"model.name": "avgcnn"}})),
    ("the order of batches", ALL, Case(of={"fedper": {"train.batch_size": 10}})),
    ("the order of batches", ALL, Case(own=POOLED)),
    ("seeds are added until the comparison is decided", Case(stopping_rule=SEQUENTIAL, seeds=tuple(range(5))), ALL),
    (
        "hold together with 95 % over all looks",
        Case(stopping_rule=SEQUENTIAL, seeds=tuple(range(5))),
        Case(stopping_rule=SEQUENTIAL),
    ),
    ("Intervals are 95 % Student t intervals over seeds.", ALL, Case(seeds=(0,))),
    ("Intervals are 95 % Student t intervals over seeds.", ALL, Case(outcomes=True)),
    ("two-way clustered variance; Cameron et al., 2011", Case(outcomes=True), ALL),
    ("Intervals are 95 %", ALL, Case(stopping_rule=SEQUENTIAL, seeds=tuple(range(5)))),
    ("Methods are compared by paired t tests over seeds", ALL, Case(seeds=(0, 1))),
    ("Methods are compared by paired t tests over seeds", ALL, ONE),
    ("Methods are compared by paired t tests over seeds", ALL, Case(plan=grid_of("fedcac"))),
    ("their intervals are not corrected", Case(plan=grid_of("fedcac")), ALL),
    (
        "corrected for the number of comparisons by the step-down method of Westfall and Young",
        ALL,
        Case(levels={"local": 0.7, "fedper": 0.8}),
    ),
    ("Holm's method", Case(seeds=tuple(range(5)), fail={"fedper": (4,)}), ALL),
]


@pytest.fixture(scope="module")
def text_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], str]:
    """The protocol of a case, written once."""
    folder, texts = tmp_path_factory.mktemp("facts"), dict[int, str]()

    def made(case: Case) -> str:
        if id(case) not in texts:
            texts[id(case)] = case.text(folder / str(len(texts)))
        return texts[id(case)]

    return made


@pytest.mark.parametrize(("words", "given", "taken"), TABLE, ids=[f"{i}-{row[0][:40]}" for i, row in enumerate(TABLE)])
def test_words_stand_on_their_fact(text_of, words, given, taken):
    assert words in text_of(given)
    assert words not in text_of(taken)


FRAMES = ("A run has ", ", in each of which ", "We report the test ", " of the personal models ", ", as mean over ")
"""Words that are in every protocol."""


def literals() -> set[str]:
    """The words in the sentences of the protocol's code, as far as they are three or more in a row."""
    found = set[str]()
    trees = [ast.parse(inspect.getsource(module)) for module in (protocol, protocol_training)]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in [one for one in functions if one.name not in ("protocol", "in_lines", "sentences")]:
        texts = [node for part in function.body[ast.get_docstring(function) is not None :] for node in ast.walk(part)]
        found |= {n.value for n in texts if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    found |= {*protocol.CORRECTIONS.values(), *protocol_training.STEPS_BY.values()}
    return {text for text in found if len(text.split()) > 2}


def test_all_words_of_the_protocol_are_in_some_study_and_not_in_another(text_of):
    texts = [text_of(case) for row in TABLE for case in row[1:]]
    for words in literals():
        shown = [words.strip("; .") in text or words.strip("; .").capitalize() in text for text in texts]
        assert any(shown), f"no study of the table says: {words}"
        assert words in FRAMES or not all(shown), f"every study says: {words}"
