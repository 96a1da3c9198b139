"""Colours of tables: what was decided about a method against local training, and nothing else."""

from fedbench.results.tables import BASELINE, REFERENCES

TONES = {"baseline": "a baseline", "above": "better than local training", "below": "worse than local training"}
"""The meaning of each tone."""


def tone_of(label: str, sign: int, is_doubtful: bool = False) -> str:
    """The tone of a method that was decided to be better (1) or worse (-1) than local training; "" if undecided."""
    if label in (BASELINE, *REFERENCES):
        return "baseline"
    return "" if is_doubtful else {1: "above", -1: "below"}.get(sign, "")
