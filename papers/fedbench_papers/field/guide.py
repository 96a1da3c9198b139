"""The guide: what one's data are like, what to try first, and what it is likely to gain, each with its evidence."""

from dataclasses import dataclass

from fedbench.config.words import plural
from fedbench.results.tables import BASELINE
from fedbench_papers.field.measures import FINE_TUNED
from fedbench_papers.field.standings import Field, Standing, kind_of

MOST_NAMED = 3
"""Methods that are named as equally good."""


@dataclass(frozen=True)
class Advice:
    """like: the data; first: what to try; gain: what it is likely to gain; why: the evidence; setting: its name."""

    setting: str
    like: str
    first: str
    gain: str
    why: str


def guide(field: Field) -> list[Advice]:
    """One for each setting."""
    return [advice(field, setting) for setting in field.settings]


def advice(field: Field, setting: str) -> Advice:
    """The cheapest of the methods that may be the best and are better than local training; local training without any.

    Cheapest by processor time, with the baselines first: a method must be better than these to be worth its code.
    """
    rivals = field.rivals(setting)
    may = [one for one in rivals if one.may_be_best]
    better = [one for one in may if one.over_local is not None and one.over_local.is_better]
    told = f"{len(may)} of {plural(len(rivals), 'method')} may be the best"
    like = str(field.about(setting)["like"])
    if not better:
        some = [one for one in rivals if one.over_local is not None and one.over_local.is_better]
        why = f"{told}; none of these is told to be better than local training"
        if some:
            why += f", {len(some)} others are"
        return Advice(setting, like, BASELINE, "nothing that is told from 0", f"{why}.")
    first = min(
        better, key=lambda one: (kind_of(one.method) != "baseline", one.method != FINE_TUNED, _cost(field, one))
    )
    assert first.over_local is not None
    others = [one.method for one in better if one is not first]
    why = f"{told}, and {len(better)} of these are better than local training; {first.method} costs the least of them."
    if others:
        named = ", ".join(others[:MOST_NAMED])
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        why += f" Not told apart from it as the best: {named}{more}."
    return Advice(setting, like, first.method, f"{first.over_local.text()} points over local training", why)


def _cost(field: Field, standing: Standing) -> float:
    return field.number(standing.setting, standing.method, "seconds") or float("inf")
