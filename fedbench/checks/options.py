"""Every option of a method at its ends and beside others: it runs or one line refuses it, and it has an effect."""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types as limits

from fedbench.checks.check import CheckFailure
from fedbench.checks.method_runs import MethodRuns, Record
from fedbench.checks.situations import has_records, metrics_of, refusal_of
from fedbench.config import Section
from fedbench.errors import ConfigError, RunError
from fedbench.methods.base import Method
from fedbench.runtime.resolved import ResolvedRun

NEAR = 1e-3
"""How near a number comes to a limit that it must not reach."""
MOST_PAIRS = 24
"""Runs by which an option that does nothing alone is tried beside others."""
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
    found = dict[str, float]()
    for kind, metadata in numbers_of(option.annotation, option.metadata):
        for limit in metadata:
            if isinstance(limit, limits.Ge):
                found["smallest"] = kind(_number(limit.ge))
            elif isinstance(limit, limits.Gt):
                found["smallest"] = int(_number(limit.gt)) + 1 if kind is int else _number(limit.gt) + NEAR
            elif isinstance(limit, limits.Le):
                found["largest"] = kind(_number(limit.le))
            elif isinstance(limit, limits.Lt):
                found["largest"] = _number(limit.lt) - NEAR
    return found


def _number(limit: Any) -> float:
    return float(limit)


def other_values(option: Any, usual: Any) -> list[Any]:
    """Values of an option that differ from the usual one: its ends, other choices, and another number."""
    found = [*ends(option).values(), *choices_of(option.annotation)]
    for kind, _ in numbers_of(option.annotation, option.metadata):
        if isinstance(usual, int | float) and not isinstance(usual, bool):
            found.append(kind(usual * 2 + 1))
        elif usual is None:
            found.append(kind(1))
    distinct: list[Any] = []
    for value in found:
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


@dataclass
class Trials:
    """Tiny runs of a method with other options. read: the options that code of the method has read so far."""

    method: MethodRuns
    read: set[str] = field(default_factory=set)
    known: dict[str, Record | str] = field(default_factory=dict)

    def outcome(self, **options: Any) -> Record | str:
        """The records, REFUSED by a line before round 1, or DIVERGED. Raises CheckFailure if it fails otherwise."""
        key = repr(sorted(options.items()))
        if key not in self.known:
            self.known[key] = self._try(options)
        return self.known[key]

    def _try(self, options: dict[str, Any]) -> Record | str:
        said = ", ".join(f"method.{name} = {value}" for name, value in options.items())
        try:
            method = {"name": self.method.name, **self.method.options, **options}
            config = self.method.config("tiny", method=method)
        except ConfigError as error:
            return _one_line(str(error), said)
        if line := refusal_of(config):
            return _one_line(line, said)
        folder = self.method.folder_for("options")
        try:
            record = self.method.play(config, folder=folder, change=self._reading)
        except ConfigError as error:
            if not isinstance(error, RunError) and not has_records(folder):
                return _one_line(str(error), said)
            if any(words in str(error) for words in NOT_FINITE):
                return DIVERGED
            raise CheckFailure(
                f"{said}: neither runs nor is refused before round 1: {error}; refuse it in check(), with a ConfigError"
            ) from error
        if failed := next((line["failed"] for line in metrics_of(record) if line["failed"]), None):
            if any(words in str(failed) for words in NOT_FINITE):
                return DIVERGED
            raise CheckFailure(f"{said}: clients fail: {failed[0]}; limit it by Field(gt=..., le=...)")
        return record

    def _reading(self, run: ResolvedRun) -> ResolvedRun:
        """The run with options that note which of them are read."""
        return replace(run, options=noting(run.options, self.read))


def _one_line(line: str, said: str) -> str:
    if "\n" in line:
        raise CheckFailure(f"{said} is refused in several lines: a ConfigError has one")
    return REFUSED


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
    silent = [name for name, own in values.items() if not _has_effect(trials, name, own, usual)]
    declared = set(values) - set(Method.Options.model_fields)
    if unread := sorted(declared - trials.read - names_in_code(method.kind)):
        raise CheckFailure(f"no code reads method.{unread[0]}: use self.options.{unread[0]}, or remove the option")
    silent = [name for name in silent if not _has_effect_beside(trials, name, values)]
    idle = f"; read, but without effect in so small a run: {', '.join(silent)}" if silent else ""
    return f"{len(values) - len(silent)} of {len(values)} options change numbers{idle}"


def names_in_code(kind: type[Method]) -> set[str]:
    """The attributes that the modules of a method's classes read: what so small a run does not come to counts too."""
    found = set[str]()
    for own in kind.__mro__[: kind.__mro__.index(Method)]:
        try:
            tree = ast.parse(inspect.getsource(sys.modules[own.__module__]))
        except (KeyError, OSError, TypeError):  # of a notebook
            continue
        found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return found


def _has_effect(trials: Trials, name: str, values: list[Any], usual: Record | str) -> bool:
    """Whether another value of an option, alone, makes another run. Tries all: each must run or be refused."""
    outcomes = [trials.outcome(**{name: value}) for value in values]
    return any(outcome != usual for outcome in outcomes)


def _has_effect_beside(trials: Trials, name: str, values: dict[str, list[Any]]) -> bool:
    """Whether another value of an option makes another run beside another value of another option."""
    others = [(other, beside) for other in values if other != name for beside in values[other]]
    pairs = [(value, *other) for other in others for value in values[name]]
    for value, other, beside in pairs[:MOST_PAIRS]:
        alone = trials.outcome(**{other: beside})
        if alone != REFUSED and trials.outcome(**{name: value, other: beside}) not in (alone, REFUSED):
            return True
    return False
