"""Colours of tables: how a method compares with the two baselines, local training and training on pooled data.

As in the coloured tables of FedMosaic (2025), a collaborative method has to beat both.
"""

from collections.abc import Mapping

from fedbench.results.tables import BASELINE, REFERENCES

(POOLED,) = REFERENCES
TONE_WORDS = {
    "baseline": "a baseline",
    "above": "better than the baselines",
    "below": "worse than local training",
    "lowest": "worse than the baselines",
}
"""The meaning of each tone."""
RACE_TONES = {"baseline": "a baseline", "above": "better than local training", "below": "worse than local training"}
"""The same where colours show the verdicts of a race."""


def baseline_tone(label: str, means: Mapping[str, float], higher: bool = True) -> str:
    """The tone of a mean score in a column; "" if it lies between the baselines or local is missing.

    Without a pooled model local training is the only baseline, and worse scores are `below`.
    """
    if label in (BASELINE, POOLED):
        return "baseline"
    if BASELINE not in means or label not in means:
        return ""
    sign = 1 if higher else -1
    gains = [sign * (means[label] - means[name]) for name in (BASELINE, POOLED) if name in means]
    if all(gain > 0 for gain in gains):
        return "above"
    if len(gains) > 1 and all(gain < 0 for gain in gains):
        return "lowest"
    return "below" if gains[0] < 0 else ""
