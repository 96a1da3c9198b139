"""Words of verdicts."""

from fedbench_papers.claims.words import row_verdicts, tally, tone
from tests.papers.claims.made_rows import OTHER, PART, ROW


def test_kinds_of_evidence_count_apart():
    own = [("holds", 0.01), ("holds", None), ("true by construction", None), ("leans against the claim", 0.9)]
    own += [
        ("premise not met", None),
        ("does not hold", 0.9),
        ("undecided", 0.2),
        ("holds, weaker than published", 0.02),
    ]
    parts = [{**PART, "verdict": word, "p": p, "p_adjusted": p} for word, p in own]
    assert tally([{**ROW, "parts": [*parts, {**PART, "judged": False}]}]) == (
        "1 of 1 rows were run, with 8 parts and 5 tests. Holds after Holm's correction: 2, holds as a property, "
        "without a test: 1, true by construction: 1, does not hold: 1, premise not met: 1, leans against the claim: 1, "
        "undecided: 1."
    )


def test_words():
    assert row_verdicts(ROW) == ["holds (after the fit: undecided)"]
    both = {"parts": [{**PART, "other": ""}, {**PART, "part": "b"}], "status": ""}
    assert row_verdicts(both) == ["a: holds", "b: holds (after the fit: undecided)"]
    assert row_verdicts(OTHER) == ["not run yet"]
    assert tally([OTHER]) == "None of 1 rows was run yet."
    words = ("holds, weaker than published", "true by construction", "does not hold", "leans against the claim", "x")
    assert [tone(word) for word in words] == ["holds", "identity", "fails", "leans against", "none"]
    assert tone("undecided") == "open"
    assert tone("premise not met") == "premise"
