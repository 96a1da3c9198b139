"""Degenerate cases: with some options a method is another one, to the bit."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fedbench.checks.check import CheckFailure, DoesNotApply
from fedbench.checks.method_runs import Keys, MethodRuns, Record
from fedbench.config.files import parse_value
from fedbench.config.keys import nest
from fedbench.errors import ConfigError
from fedbench.methods.base import Method

POINTS = ("after_fit", "after_agg")
POINT = "point"
"""The key of a case that holds at one point alone: one of POINTS, or the global model, which is then the other's."""


def degenerate_cases_hold(method: MethodRuns) -> str:
    method.undisturbed("plain")
    cases = list(cases_of(method.kind))
    if not cases and "REDUCES_TO" in vars(method.kind):
        raise DoesNotApply("its class says that there are none")
    if not cases:
        raise DoesNotApply('declare some: REDUCES_TO = {"fedavg": {"method.mu": 0}}')
    held = [(other, keys) for other, keys in cases if _holds(method, other, keys)]
    if not held:
        raise DoesNotApply("none of its cases runs on this model and these data")
    return ", ".join(f"{words(keys)} is {other}" for other, keys in held)


def _holds(method: MethodRuns, other: str, keys: Keys) -> bool:
    """Whether a case was run and holds; False if a model or data that are given cannot run it.

    Raises CheckFailure if it does not hold.
    """
    try:
        refuse_difference(method, other, keys)
    except ConfigError:
        if not method.given:
            raise
        return False  # it names layers of another model, or takes one that does not fit the data
    return True


def cases_of(kind: type[Method]) -> Iterator[tuple[str, Keys]]:
    """The cases that a class itself declares: the other method, and the keys with which both are the same.

    Raises ConfigError for a declaration of another form.
    """
    declared = vars(kind).get("REDUCES_TO", {})
    if not isinstance(declared, Mapping):
        raise ConfigError(f'{kind.__name__}.REDUCES_TO must be a dict such as {{"fedavg": {{"method.mu": 0}}}}')
    for other, keys in declared.items():
        for case in keys if isinstance(keys, Sequence) else [keys]:
            yield other, case


def refuse_difference(method: MethodRuns, other: str, keys: Keys) -> None:
    """Raises CheckFailure if a degenerate case has other scores than the method that it is.

    Keys of the method hold for the method alone, all others for both, but POINT. Raises ConfigError for another point.
    """
    point = keys.get(POINT)
    if point not in (None, "global", *POINTS):
        raise ConfigError(
            f"{method.kind.__name__}.REDUCES_TO: {POINT} = {point!r} must be one of global, {', '.join(POINTS)}"
        )
    own = {key: value for key, value in keys.items() if key.startswith("method.")}
    train = {f"train.{key}": value for key, value in method.kind.train_defaults.items()}
    both = nest({**train, **{key: value for key, value in keys.items() if key not in own and key != POINT}})
    options = {key.removeprefix("method."): value for key, value in own.items()}
    name, _, variant = other.partition(":")
    pairs = [word.partition("=") for word in variant.split(",") if word]
    theirs = {key: parse_value(value) for key, _, value in pairs}
    mine = {**method.options, **options}
    with MethodRuns(method.name, mine, method.given) as one, MethodRuns(name, theirs, method.given) as two:
        shared = one.config("tiny").model_dump(include={"public"}) if "public" in one.kind.needs else {}
        ours, others = (runs.play(runs.config("tiny", **both, **shared)) for runs in (one, two))
    if place := first_other_score(ours, others, point):
        raise CheckFailure(
            f"with {words(keys)} it is not {other}: the first other number is {place}; correct the method, or what "
            "REDUCES_TO says"
        )


def first_other_score(one: Record, other: Record, point: str | None = None) -> str:
    """The first score in which two runs differ, in words, or an empty string. point: see POINT."""
    frames = [_scores(one, [point] if point else POINTS), _scores(other, POINTS)]
    frames[0] = frames[0].replace({"point": {"global": "after_agg"}})
    both = frames[0].merge(frames[1], on=["round", "client", "point", "split", "metric"], suffixes=("", "_other"))
    if both.empty:
        return "of a score that only one has"
    differs = both[both["value"] != both["value_other"]]
    if differs.empty:
        return ""
    row = differs.iloc[0]
    return (
        f"the {row['metric']} of client {row['client']} in round {row['round']} ({row['point']}): {row['value']:.6g}, "
        f"not {row['value_other']:.6g}"
    )


def _scores(record: Record, points: Sequence[str]) -> pd.DataFrame:
    frame = pd.read_parquet(io.BytesIO(record["clients.parquet"]))
    return frame[frame["point"].isin(points)].sort_values(["round", "client"], kind="stable")


def words(keys: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in keys.items()) or "its defaults"
