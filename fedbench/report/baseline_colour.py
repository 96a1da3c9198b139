"""Where a method stands beside the two baselines, training alone and on the pooled data: the colours of tables.

After the coloured tables of FedMosaic (2025), in which a method that collaborates has to earn it against both.
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
"""By tone, what it says."""


def baseline_tone(label: str, means: Mapping[str, float], higher: bool = True) -> str:
    """The tone of a method's mean score among those of a table's column; "" between the baselines, or without local.

    Where there is no model of the pooled data, local training is the only baseline, and worse than it is `below`.
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
