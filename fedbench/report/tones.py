"""Colours of differences, the same in tables and charts: clear, clear by itself only, or open."""

from collections.abc import Sequence

from fedbench.report.theme import LIGHT
from fedbench.results.tables import BASELINE, REFERENCES

TONES = {
    "above": "better than local training",
    "above-alone": "better by itself, but not after the correction",
    "below": "worse than local training",
    "below-alone": "worse by itself, but not after the correction",
    "open": "open",
    "baseline": "a baseline",
}
"""The meaning of each tone in tables."""
RACE_TONES = {tone: words for tone, words in TONES.items() if not tone.endswith("-alone")}
"""Those of races, whose intervals hold together, so that no difference has a verdict of its own."""


def tone_of(label: str, sign: int, alone: int = 0, is_doubtful: bool = False) -> str:
    """The tone of a method that was compared with local training.

    sign: 1 if it was decided to be better, -1 if worse, else 0; alone: the same before the correction. What is doubtful
    is open.
    """
    if label in (BASELINE, *REFERENCES):
        return "baseline"
    if is_doubtful or not (sign or alone):
        return "open"
    return ("above" if (sign or alone) > 0 else "below") + ("" if sign else "-alone")


def markers(states: Sequence[tuple[int, int]]) -> dict[str, object]:
    """The markers of differences, each with its sign and its sign before the correction.

    Filled if it is clear, hollow if it is clear by itself only, grey if it is open.
    """
    tones = {1: LIGHT["accent"], -1: LIGHT["alarm"], 0: LIGHT["quiet"]}
    edges = [tones[sign or alone] for sign, alone in states]
    faces = [LIGHT["ground"] if alone and not sign else edge for edge, (sign, alone) in zip(edges, states, strict=True)]
    return {"color": faces, "size": 10, "line": {"color": edges, "width": 2}}
