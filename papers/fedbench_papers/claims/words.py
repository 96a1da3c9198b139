"""Words and numbers of tested claims: verdicts, estimates, readings, as tables and pages show them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedbench.config.words import plural
from fedbench.results.quantities import ranges
from fedbench_papers.claims.judge import OTHER_POINT_OF_CLAIM
from fedbench_papers.claims.verdicts import (
    AGAINST,
    DEGENERATE,
    FAILS,
    HOLDS,
    IDENTITY,
    PREMISE,
    TOWARDS,
    UNDECIDED,
    WEAKER,
    corrected_word,
)

Tree = Mapping[str, Any]

PROPERTY = "holds as a property"
TALLY = {
    HOLDS: "holds after Holm's correction",
    PROPERTY: "holds as a property, without a test",
    IDENTITY: IDENTITY,
    FAILS: FAILS,
    PREMISE: PREMISE,
    DEGENERATE: DEGENERATE,
    TOWARDS: TOWARDS,
    AGAINST: AGAINST,
    UNDECIDED: UNDECIDED,
}
"""The kinds of verdicts in the order of the summary."""
POINT_WORDS = {"agg": "after aggregation", "fit": "after the fit", "none": ""}
RULE_WORDS = {
    "B": "A better than B",
    "T": "A and B alike",
    "N": "A never below B",
    "S": "rises, then falls",
    "M": "monotone order",
    "K": "published order",
    "P": "property in every seed",
    "shown": "shown, not judged",
}


def families(rows: Sequence[Tree]) -> tuple[list[Tree], list[Tree]]:
    """The rows that count, and the other readings of them."""
    counted, others = ([row for row in rows if bool(row.get("reading_of")) is other] for other in (False, True))
    return counted, others


def other_readings(row: Tree, rows: Sequence[Tree]) -> list[Tree]:
    """The rows that are other readings of a row."""
    return [other for other in rows if other.get("reading_of") == row["id"]]


def named_readings(row: Tree, rows: Sequence[Tree]) -> list[Tree]:
    """The other readings that have a name and a section of their own, which combinations of options do not."""
    return [reading for reading in other_readings(row, rows) if not reading.get("combination")]


def combination_lines(row: Tree, rows: Sequence[Tree]) -> list[tuple[list[str], Tree]]:
    """The judged combinations of what the paper leaves open, first the one that counts: their values, and their row."""
    others = [reading for reading in other_readings(row, rows) if reading.get("combination") and reading["parts"]]
    return [([f"{key} {value}" for key, value in own["combination"].items()], own) for own in (row, *others) if others]


def shares_of_readings(row: Tree, rows: Sequence[Tree]) -> str:
    """In how many readings each part holds, if several were judged, and which ones differ from the one that counts."""
    judged = [reading for reading in (row, *other_readings(row, rows)) if reading["parts"]]
    if len(judged) < 2 or not row["parts"]:
        return ""
    texts = []
    for name in [part["part"] for part in row["parts"] if part["judged"]]:
        held = [name in parts_that_hold(reading) for reading in judged]
        share = f"{name} holds in {sum(held)} of {len(held)} readings"
        turned = list(turning_choices(judged, held))
        texts.append(share + (f", turned by {' and '.join(turned)}" if turned else ""))
    return "; ".join(texts)


def turning_choices(judged: Sequence[Tree], held: Sequence[bool]) -> Iterator[str]:
    """The readings with a name in which a part does not do what it does in the first, and the options that matter.

    held: whether the part holds in each of the judged readings.
    """
    for reading, holds in zip(judged, held, strict=True):
        if not reading.get("combination") and holds != held[0]:
            yield reading["reading"]
    for key in judged[0].get("combination", {}):
        shares: dict[str, list[bool]] = {}
        for reading, holds in zip(judged, held, strict=True):
            if key in reading.get("combination", {}):
                shares.setdefault(str(reading["combination"][key]), []).append(holds)
        if len({sum(flags) / len(flags) for flags in shares.values()}) > 1:
            yield f"{key} ({', '.join(f'{value}: {sum(flags)} of {len(flags)}' for value, flags in shares.items())})"


def parts_that_hold(row: Tree) -> set[str]:
    """The names of the judged parts that hold after the correction."""
    judged = [part for part in row["parts"] if part["judged"]]
    return {part["part"] for part in judged if corrected_verdict(part) in (HOLDS, WEAKER, IDENTITY)}


def cells(part: Tree) -> list[str]:
    """The table cells of a part."""
    name = f"{part['part']}: {part['case']}" if part["case"] else part["part"]
    rule = ", ".join(filter(None, (RULE_WORDS[part["rule"]], POINT_WORDS[part["point"]])))
    rule += " (shown, not judged)" if not part["judged"] and part["rule"] != "shown" and not part["case"] else ""
    values = ", ".join(two_digits(value) for value in part["values"])
    verdict = corrected_verdict(part)
    return [name, rule, verdict, estimate(part), two_digits(part["delta"]), p_words(part), values, part_remarks(part)]


def estimate(part: Tree) -> str:
    """`+1.2 (0.3 to 2.1)`."""
    if part["mean"] is None:
        return ""
    ends = "" if part["low"] is None else f" ({two_digits(part['low'])} to {two_digits(part['high'])})"
    return f"{part['mean']:+.2f}{ends}"


def part_remarks(part: Tree) -> str:
    remarks = [part["note"]]
    if corrected_verdict(part) != part["verdict"]:
        remarks.append(f"{FAILS if part['verdict'] == FAILS else HOLDS} before the correction, not after it")
    if part["verdict"] == FAILS and part.get("p_fails_adjusted") is not None:
        remarks.append(f"p of not holding {part['p_fails']:.2g} ({part['p_fails_adjusted']:.2g})")
    if part["other"]:
        remarks.append(f"at the other point: {part['other']}")
    if part["best"] is not None:
        remarks.append(f"best rounds on test {part['best']:+.2f}")
    return "; ".join(text for text in remarks if text)


def p_words(part: Tree) -> str:
    if part["p"] is None:
        return ""
    adjusted = adjusted_p(part)
    return f"{part['p']:.2g}" + ("" if adjusted is None else f" ({adjusted:.2g})")


def adjusted_p(part: Tree) -> float | None:
    """p after the correction."""
    p: float | None = part.get("p_adjusted")
    return p


def corrected_verdict(part: Tree) -> str:
    """The verdict after the correction for the number of claims."""
    return corrected_word(part["verdict"], adjusted_p(part), part.get("p_fails_adjusted"))


def two_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def row_facts(row: Tree) -> list[tuple[str, str]]:
    """The lines above a row's parts."""
    chosen = "; ".join(
        f"{name} {label} {', '.join(f'{key} {value:g}' for key, value in values.items())}"
        for name, choices in row.get("choices", {}).items()
        for label, values in choices.items()
        if values
    )
    seeds = ranges(row["seeds"])
    runs = f"{row.get('runs', 0)} own runs, {row.get('minutes') or 0:.1f} minutes of work, seeds {seeds}"
    runs += f", judged on {row['made']}" if row.get("made") else ""
    runs += f" at attempt {row['attempts']}" if row.get("attempts", 1) > 1 and row["parts"] else ""
    reading = f"{row['reading']}; {row['reading_of']} counts, not this row" if row.get("reading_of") else ""
    listed = [
        ("reading", reading),
        ("published", f"{row['effect']} ({row['where']})"),
        ("setting", f"{row['setting']}: {row['setting_text']}"),
        ("runs", runs + (f"; uses the runs of {', '.join(row['uses'])}" if row["uses"] else "")),
        ("chosen on validation", chosen),
        ("far from the paper's protocol", row.get("far", "")),
        ("what the claim leaves open", "; ".join(row["open"])),
        ("partitions", row.get("fingerprint", "")),
        ("command", f"`{row['command']}`"),
    ]
    return [(name, text) for name, text in listed if text]


def shared_keys(row: Tree) -> dict[str, Any]:
    """The keys shared by all arms."""
    first, *others = row["arms"].values()
    return {key: value for key, value in first.items() if all(arm.get(key) == value for arm in others)}


def shared_words(row: Tree) -> str:
    return f"; all: {key_words(shared_keys(row))}" if shared_keys(row) else ""


def key_words(keys: Tree) -> str:
    return ", ".join(f"{key} {value}" for key, value in keys.items() if key != "partition.counts")


def arms(row: Tree) -> Iterator[str]:
    """The keys that each arm adds to the setting, and its results."""
    for label, arm in row["arms"].items():
        keys = key_words({key: value for key, value in arm.items() if key not in shared_keys(row)})
        level = row.get("levels", {}).get(label)
        ends = f": {level['agg']:.1f}, {level['fit']:.1f}, {level['steps']:g}" if level else ""
        yield label + (f" ({keys})" if keys else "") + ends


def row_verdicts(row: Tree) -> list[str]:
    """The verdicts of a row, or why there are none."""
    return [text for text, _ in verdict_marks(row)]


def verdict_marks(row: Tree) -> list[tuple[str, str]]:
    """The verdicts of a row, or why there are none, each with its CSS class."""
    judged = [part for part in row["parts"] if part["judged"]]
    names = [f"{part['part']}: " if len(judged) > 1 else "" for part in judged]
    words = [name + verdict_words(part) for name, part in zip(names, judged, strict=True)]
    return [*zip(words, map(tone, map(corrected_verdict, judged)), strict=True)] or [
        (row["status"], tone(row["status"]))
    ]


def verdict_words(part: Tree) -> str:
    """The verdict of a part, with that at the other evaluation point if it is another one."""
    verdict, point = corrected_verdict(part), OTHER_POINT_OF_CLAIM.get(part["point"], "")
    return f"{verdict} ({POINT_WORDS[point]}: {part['other']})" if part["other"] else verdict


def far_words(row: Tree) -> str:
    """In what the setting of a row that was run is far from the paper's protocol; empty if it is not."""
    return str(row.get("far", "")) if row["parts"] else ""


def tally(rows: Sequence[Tree]) -> str:
    """The number of judged rows that count, and their parts by verdict and kind of evidence."""
    rows, _ = families(rows)
    parts = [part for row in rows for part in row["parts"] if part["judged"]]
    done = sum(bool(row["parts"]) for row in rows)
    if not done:
        return f"None of {len(rows)} rows was run yet."
    kinds = [counted_verdict(part) for part in parts]
    tests = sum(part["p"] is not None for part in parts)
    counts = ", ".join(f"{text}: {kinds.count(kind)}" for kind, text in TALLY.items() if kind in kinds)
    of = f"{done} of {len(rows)} rows were run, with {plural(len(parts), 'part')} and {plural(tests, 'test')}."
    return f"{of} {counts[:1].upper()}{counts[1:]}."


def counted_verdict(part: Tree) -> str:
    """The verdict of a part as counted: what holds by a corrected test counts apart from a property without a test."""
    verdict = corrected_verdict(part)
    return verdict if verdict not in (HOLDS, WEAKER) else HOLDS if part["p"] is not None else PROPERTY


def tone(verdict: str) -> str:
    """The CSS class of a verdict."""
    known = {
        "holds": "holds",
        IDENTITY: "identity",
        FAILS: "fails",
        PREMISE: "premise",
        AGAINST: "leans against",
        TOWARDS: "leans",
        UNDECIDED: "open",
        DEGENERATE: "none",
    }
    return next((name for start, name in known.items() if verdict.startswith(start)), "none")
