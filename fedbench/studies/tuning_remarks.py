"""Remarks on how methods are tuned: keys that are left out, turned rates, methods without a choice of rates."""

from collections.abc import Iterator, Mapping, Sequence

from fedbench.studies.compared_methods import ComparedMethod


def not_tuned(compared: Sequence[ComparedMethod]) -> Iterator[str]:
    """Lines about keys of the methods' spaces that are not tuned, and why."""
    for why in dict.fromkeys(why for method in compared for why in method.untuned.values()):
        keys = {key for method in compared for key, own in method.untuned.items() if own == why}
        yield f"not tuned: {', '.join(sorted(keys))}: without effect: {why}"
    if held := sorted({key for method in compared for key in method.held if key not in method.fixed}):
        yield f"not tuned, because set: {', '.join(held)}"


def turned_rates(compared: Sequence[ComparedMethod]) -> Iterator[str]:
    """Lines about rates of spaces that are turned into those of the optimiser that makes the steps."""
    for turned, labels in _by_text({method.label: method.rates.turned for method in compared}).items():
        yield f"rates for the optimiser of the run: {turned}: {', '.join(labels)}"


def rate_doubts(compared: Sequence[ComparedMethod]) -> Iterator[str]:
    """Sentences about spaces whose rates may be for another optimiser, and methods without a choice of rates."""
    for doubt, labels in _by_text({method.label: method.rates.doubt for method in compared}).items():
        yield f"{', '.join(labels)}: {doubt}"
    if lacking := [method.label for method in compared if not method.tries_rates]:
        whom = "any method" if len(lacking) == len(compared) else ", ".join(lacking)
        yield f"one learning rate each: for {whom} no other one is tried, so that a better one may be missed"


def _by_text(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The keys by their text, without those that have none."""
    keys_by_text = dict[str, list[str]]()
    for key, text in texts.items():
        if text:
            keys_by_text.setdefault(text, []).append(key)
    return keys_by_text
