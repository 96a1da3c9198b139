"""The guide: what one's data are like, what to try first, and what that gained here, each with its evidence."""

from dataclasses import dataclass

from fedbench.config.words import plural
from fedbench.results.tables import BASELINE
from fedbench_papers.field.findings import better_than_local
from fedbench_papers.field.measures import FINE_TUNED
from fedbench_papers.field.standings import Field, Standing

MOST_NAMED = 3
"""Methods that are named as equally good."""
SIMPLEST = ("fedavg", FINE_TUNED)
"""Methods that come first where they are as good as others: one model for all, and that model fine-tuned."""


@dataclass(frozen=True)
class Advice:
    """like: the data; first: what to try; gain: what it gained in the setting; why: the evidence; setting: its name."""

    setting: str
    like: str
    first: str
    gain: str
    why: str


def guide(field: Field) -> list[Advice]:
    """One for each setting."""
    return [advice(field, setting) for setting in field.settings]


def advice(field: Field, setting: str) -> Advice:
    """Of the methods that were shown to be better than local training, one of the possible best if there is any.

    The simplest come first, then what takes the least processor time. Local training without any.
    """
    judged, possible = field.judged(setting), field.possible_best(setting)
    better = better_than_local(field, setting)
    told = f"{len(possible)} of {plural(len(judged), 'method')} may be the best"
    like = str(field.about(setting)["like"])
    if not better:
        why = f"{told}, and none was shown to be better than local training."
        return Advice(setting, like, BASELINE, "no gain was shown", why)
    both = [one for one in better if one.may_be_best]
    first = min(both or better, key=lambda one: (*(one.method != simple for simple in SIMPLEST), _cost(field, one)))
    assert first.over_local is not None
    shown = f"{len(better)} {'was' if len(better) == 1 else 'were'} shown to be better than local training"
    why = f"{told}, and {shown}, {len(both)} of both kinds."
    if first.method in SIMPLEST:
        why += f" {first.method} is the simplest of them."
    elif len(both or better) > 1:
        why += f" {first.method} takes the least processor time of them."
    if not both:
        why += " Others may be better still, but were not shown to be better than local training."
    others = [one.method for one in both if one is not first]
    if others:
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        why += f" Not told apart from it: {', '.join(others[:MOST_NAMED])}{more}."
    return Advice(setting, like, first.method, f"{first.over_local.text()} points over local training", why)


def _cost(field: Field, standing: Standing) -> float:
    return field.number(standing.setting, standing.method, "seconds") or float("inf")
