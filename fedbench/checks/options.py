"""Every option of a method at its ends and beside others: it runs or one line refuses it, and it has an effect."""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types as limits

from fedbench.checks.check import CheckFailure
from fedbench.checks.method_runs import MethodRuns, Record
from fedbench.checks.situations import has_records, metrics_of
from fedbench.config import Section
from fedbench.errors import ConfigError, RunError
from fedbench.jobs.resolve import check_run
from fedbench.methods.base import Method

NEAR = 1e-3
"""How near a number comes to a limit that it must not reach."""
MOST_PAIRS = 16
"""Runs by which an option that does nothing alone is tried in a larger run and beside others."""
SOME = 3
"""Tried for an option that is none, beside 1: as many as a run has rounds or clients."""
REFUSED, DIVERGED = "refused", "diverged"
NOT_FINITE = ("not finite", "became nan", "became inf")
"""Words of a failure that says nothing against the code: rates of another size make models diverge."""


def numbers_of(annotation: Any, metadata: list[Any]) -> Iterator[tuple[type, list[Any]]]:
    """The types of number that an option takes, with their limits."""
    if annotation in (int, float):
        yield annotation, metadata
    elif isinstance(annotation, type(Annotated[int, 0])):
        kind, *given = get_args(annotation)
        yield from numbers_of(kind, [limit for info in given for limit in info.metadata])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from numbers_of(part, metadata)


def ends(option: Any) -> dict[str, float]:
    """The smallest and the largest legal number of an option, where it has such."""
    values = dict[str, float]()
    for kind, metadata in numbers_of(option.annotation, option.metadata):
        for limit in metadata:
            if isinstance(limit, limits.Ge):
                values["smallest"] = kind(_number(limit.ge))
            elif isinstance(limit, limits.Gt):
                values["smallest"] = int(_number(limit.gt)) + 1 if kind is int else _number(limit.gt) + NEAR
            elif isinstance(limit, limits.Le):
                values["largest"] = kind(_number(limit.le))
            elif isinstance(limit, limits.Lt):
                values["largest"] = _number(limit.lt) - NEAR
    return values


def _number(limit: Any) -> float:
    return float(limit)


def other_values(option: Any, usual: Any) -> list[Any]:
    """Values of an option that differ from the usual one: its ends, other choices, and another number."""
    values = [*ends(option).values(), *choices_of(option.annotation)]
    for kind, _ in numbers_of(option.annotation, option.metadata):
        if isinstance(usual, int | float) and not isinstance(usual, bool):
            values.append(kind(usual * 2 + 1))
        elif usual is None:
            values += [kind(1), kind(SOME)]
    distinct: list[Any] = []
    for value in values:
        if value not in (usual, *distinct) or type(value) is bool is not type(usual):
            distinct.append(value)
    return distinct


def choices_of(annotation: Any) -> Iterator[Any]:
    """The values of a choice, both truth values, and None where that is one."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif annotation is bool:
        yield from (False, True)
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from choices_of(part)


@dataclass(frozen=True)
class Trial:
    """A tiny run with other options. outcome: its records, REFUSED before round 1, or DIVERGED; read: by its code."""

    outcome: Record | str
    read: frozenset[str] = frozenset()


@dataclass
class Trials:
    """Tiny runs of a method with other options, each made once."""

    method: MethodRuns
    known: dict[str, Trial] = field(default_factory=dict)

    @property
    def read(self) -> set[str]:
        """The options that code has read in any run."""
        return {name for trial in self.known.values() for name in trial.read}

    def outcome(self, kind: str = "tiny", /, **options: Any) -> Record | str:
        """What comes of a run of a kind. Raises CheckFailure if it neither runs nor is refused."""
        return self.trial(kind, **options).outcome

    def trial(self, kind: str = "tiny", /, **options: Any) -> Trial:
        """The outcome, and what was read. Raises CheckFailure as `outcome` does."""
        key = repr((kind, sorted(options.items())))
        if key not in self.known:
            self.known[key] = self._try(kind, options)
        return self.known[key]

    def _try(self, kind: str, options: dict[str, Any]) -> Trial:
        values = ", ".join(f"method.{name} = {value}" for name, value in options.items())
        try:
            run = self.method.resolve(
                self.method.config(kind, method={"name": self.method.name, **self.method.options, **options})
            )
            check_run(run)
        except ConfigError as error:
            return _refused(str(error), values)
        folder, read = self.method.folder_for("options"), set[str]()
        run = replace(run, options=noting(run.options, read))
        try:
            record = self.method.play(run, folder=folder)
        except ConfigError as error:
            if not isinstance(error, RunError) and not has_records(folder):
                return _refused(str(error), values)
            if any(words in str(error) for words in NOT_FINITE):
                return Trial(DIVERGED, frozenset(read))
            raise CheckFailure(
                f"{values}: neither runs nor is refused before round 1: {error}; refuse it in check(), with a "
                "ConfigError"
            ) from error
        if failed := next((line["failed"] for line in metrics_of(record) if line["failed"]), None):
            if any(words in str(failed) for words in NOT_FINITE):
                return Trial(DIVERGED, frozenset(read))
            raise CheckFailure(f"{values}: clients fail: {failed[0]}; limit it by Field(gt=..., le=...)")
        return Trial(record, frozenset(read))


def _refused(line: str, values: str) -> Trial:
    if "\n" in line:
        raise CheckFailure(f"{values} is refused in several lines: a ConfigError has one")
    return Trial(REFUSED)


def noting(options: Method.Options, read: set[str]) -> Method.Options:
    """The options, which add the names of those that are read to a set."""
    kind = type(options)
    names = set(kind.model_fields)

    def note(self: Section, name: str) -> Any:
        if name in names:
            read.add(name)
        return kind.__getattribute__(self, name)

    copy = options.model_copy()
    copy.__class__ = type(kind.__name__, (kind,), {"__getattribute__": note, "__module__": kind.__module__})
    return copy


def every_option_changes_something(method: MethodRuns) -> str:
    """Alone or beside another option; one that is not read by any code fails, if the class itself declares it."""
    method.undisturbed("plain")
    trials = Trials(method)
    usual = trials.outcome()
    options = method.kind.Options(**method.options)
    values = {name: other_values(option, getattr(options, name)) for name, option in type(options).model_fields.items()}
    silent = [name for name, own in values.items() if own and not _has_effect(trials, name, own, usual)]
    silent = [name for name in silent if not _has_effect_beside(trials, name, values)]
    untried = [name for name, own in values.items() if not own]
    declared = {*silent, *untried} - set(Method.Options.model_fields)
    if unread := sorted(declared - trials.read - options_in_code(method.kind)):
        raise CheckFailure(f"no code reads method.{unread[0]}: use self.options.{unread[0]}, or remove the option")
    idle = f"; read, but without effect in so small a run: {', '.join(silent)}" if silent else ""
    idle += f"; read, but no other value is known to be legal: {', '.join(untried)}" if untried else ""
    return f"{len(values) - len(silent) - len(untried)} of {len(values)} options change numbers{idle}"


def _has_effect(trials: Trials, name: str, values: list[Any], usual: Record | str) -> bool:
    """Whether another value of an option, alone, makes another run. Tries all: each must run or be refused."""
    outcomes = [trials.outcome(**{name: value}) for value in values]
    return any(outcome != usual for outcome in outcomes)


def _has_effect_beside(trials: Trials, name: str, values: dict[str, list[Any]]) -> bool:
    """Whether another value of an option makes another run, larger or beside another option, where code reads it."""
    others: list[dict[str, Any]] = [{other: beside} for other in values if other != name for beside in values[other]]
    reading = [beside for beside in ({}, *others) if name in trials.trial(**beside).read]
    settings = [(kind, beside) for kind in ("tiny", "plain") for beside in reading]
    settings.sort(key=lambda setting: setting != ("plain", {}))
    for kind, beside, value in [(*setting, value) for setting in settings for value in values[name]][:MOST_PAIRS]:
        alone = trials.outcome(kind, **beside)
        if alone != REFUSED and trials.outcome(kind, **{**beside, name: value}) not in (alone, REFUSED):
            return True
    return False


def options_in_code(kind: type[Method]) -> set[str]:
    """The names that code reads of options, such as `self.options.mu`: what so small a run does not come to counts too.

    Code of the modules of the method's classes, and of modules in their folders from which these take something.
    """
    read = set[str]()
    for module in modules_of(kind):
        try:
            tree = ast.parse(inspect.getsource(module))
        except (OSError, TypeError):  # of a notebook
            continue
        read |= read_of_options(tree)
    return read


def modules_of(kind: type[Method]) -> list[ModuleType]:
    """The modules of the method's classes below `Method`, and those beside them from which they take something."""
    own = [sys.modules[part.__module__] for part in kind.__mro__[: kind.__mro__.index(Method)]]
    named = {name for module in own for thing in vars(module).values() if (name := _home(thing))}
    folders = {Path(module.__file__).parent for module in own if getattr(module, "__file__", None)}  # type: ignore[arg-type]
    beside = [sys.modules[name] for name in sorted(named) if name in sys.modules]
    near = [module for module in beside if (file := getattr(module, "__file__", None)) and Path(file).parent in folders]
    return list(dict.fromkeys([*own, *near]))


def _home(thing: Any) -> str | None:
    """The name of the module that a value of a module is, or comes from."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
    return name if isinstance(name, str) else None


def read_of_options(tree: ast.AST) -> set[str]:
    """The names that are read of `options`, of `self.options`, and of variables and arguments that are such."""
    names = {"options"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_options(node.value, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.arg) and node.annotation and "Options" in ast.unparse(node.annotation):
            names.add(node.arg)
    read = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_options(node.value, names):
            read.add(node.attr)
        if isinstance(node, ast.Call) and len(node.args) > 1 and _is_options(node.args[0], names):
            word = node.args[1]  # of getattr
            read |= {word.value} if isinstance(word, ast.Constant) and isinstance(word.value, str) else set()
    return read


def _is_options(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Attribute) and node.attr == "options"
