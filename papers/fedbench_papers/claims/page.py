"""The page and the tables of tested claims, from claims.json."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from csv import DictWriter
from io import StringIO
from pathlib import Path
from typing import Any

from fedbench.config.words import plural
from fedbench.report import typeset
from fedbench.report.template import render
from fedbench.results.files import write_atomically
from fedbench.results.quantities import ranges
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.judge import OTHER_POINT_OF_CLAIM
from fedbench_papers.claims.record import CLAIMS_FILE, ClaimsRecord
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
from fedbench_papers.field.findings import OF_PAPERS, paper_line
from fedbench_papers.field.record import RECORDED as FIELD_RECORDED
from fedbench_papers.field.record import FieldRecord
from fedbench_papers.field.standings import Field

CLAIM_COLUMNS = (
    *("id", "reading_of", "part", "case", "judged", "rule", "point", "verdict", "mean", "low", "high", "delta"),
    *("p", "p_adjusted", "p_fails", "p_fails_adjusted", "other", "best", "values", "note", "seeds", "minutes"),
    *("fingerprint", "command", "statement"),
)
PART_HEADS = ("part", "rule", "verdict", "estimate", "margin", "p (adjusted)", "per seed", "besides")
COMBINATION_HEADS = ("what the paper leaves open", "verdict")
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
INTRO = (
    "Claims of the papers, tested at small scale: only the sign, the order and the shape of an effect are compared, "
    "never a level of accuracy. A verdict is about this setting: what does not hold does not hold here."
)
RULES = (
    "A difference is in points of test accuracy, paired by seed and client, at the last round; estimator: mean over a "
    "client's samples, plain mean over clients. Intervals: 95 % Student t with the seed as the unit. Fewer than three "
    "seeds give no verdict.",
    "Of a proxy (P1 to P4) the number of a seed is Spearman's correlation of what a method computes and what that "
    "stands for, over clients, pairs of clients or parameters.",
    "Where a paper can be read in several ways, the row has the reading that counts; every other reading is a row of "
    "its own, such as C1-literal, shown beside it and in no number of the summary.",
    "p is one-sided, of the hypothesis that the claim is wrong, and in brackets adjusted by Holm for all tested parts "
    "of the rows that count, or for those of all other readings; a part holds only if it holds after this correction.",
    "A row that was judged again, mostly on other seeds because the first ones had left it open, counts with its last "
    "runs alone. Each attempt could have given a verdict, so p is multiplied by their number before Holm's correction.",
    "'Does not hold' has a p of its own, of the hypothesis that the difference reaches the margin (A better than B), "
    "lies within it (alike) or is not below 0 (never below); of several flanks or cases that must all hold, and of a "
    "trend and its ends, it is the smallest times their number. It is adjusted in the same way, apart. Where there is "
    "none (a published order, a property, some of several cases, a rise and fall or a trend of earlier records), 'does "
    "not hold' is not corrected.",
    "A part that is not decided leans towards the claim or against it if all seeds and an interval over clients say "
    "so, or if it holds, or does not hold, before the correction only.",
    "A published order holds if Kendall's tau of the means with it is as high as the row says; it does not if tau is "
    "at most 0, or if pairs that are surely the other way round (t tests over seeds, corrected by Holm within the "
    "part) leave tau below that.",
    "A property has no p: it holds if it is true in every seed, or in as many as the row says. What is true by "
    "construction says that the implementation is right, nothing more. The premise of a theorem is not met if runs "
    "violate it; such a verdict is neither for nor against the theorem.",
    "A run is degenerate if its method was not at work at the last round or in most rounds. Such seeds are left out of "
    "a part; if they are half of all, or fewer than three are left, the part is degenerate, and not judged.",
    "Where the other evaluation point gives another verdict, before the correction, it stands in brackets.",
    "Where a setting is far from the paper's protocol, the summary says in what.",
    "Minutes are those of the runs, one core each. Gradient steps are those of a client in a round; the pooled model "
    "(centralized) makes its own, which count whole.",
)
"""How verdicts come about, a paragraph each."""
IN_FIELD = "Their methods in the field, beside all others"
ARMS = "arms: accuracy after aggregation and after the fit, gradient steps per client and round"
Tree = Mapping[str, Any]


def write_claims(folder: Path) -> Path:
    """Writes claims.md, claims.csv and report.html beside claims.json and returns the page's path."""
    record = ClaimsRecord.read(folder / CLAIMS_FILE)
    write_atomically(folder / "claims.csv", as_csv(record.rows))
    write_atomically(folder / "claims.md", as_markdown(record))
    write_atomically(folder / "report.html", as_page(record, folder))
    return folder / "report.html"


def as_csv(rows: Sequence[Tree]) -> str:
    """One line per part and case; a row without verdicts has one line."""
    stream = StringIO()
    table = DictWriter(stream, CLAIM_COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for row in rows:
        for part in row["parts"] or [{"verdict": row["status"]}]:
            verdict = {"verdict": corrected_verdict(part), "p_adjusted": adjusted_p(part)}
            table.writerow({**row, **part, **verdict, "values": " ".join(f"{v:.4g}" for v in part.get("values", ()))})
    return stream.getvalue()


def as_markdown(record: ClaimsRecord) -> str:
    details = (line for row in record.rows if has_section(row) for line in _details(row, record.rows))
    return "\n".join([*_summary(record), *details]) + "\n"


def _summary(record: ClaimsRecord) -> Iterator[str]:
    rows = record.rows
    yield "# Claims of the papers"
    yield f"\n{INTRO}\n\n{tally(rows)} {conditions_words(record)}\n"
    counted, _ = families(rows)
    heads = ("row", "claim", "verdict here", "other readings", "minutes")
    yield markdown_table(heads, [_summary_line(row, rows) for row in counted])
    yield f"\n## {IN_FIELD}\n"
    yield from (f"- {line}" for line in in_field())
    yield "\n## How verdicts come about\n"
    yield from (f"- {rule}" for rule in RULES)


def _summary_line(row: Tree, rows: Sequence[Tree]) -> list[str]:
    minutes = f"{row['minutes']:.1f}" if row.get("minutes") is not None else ""
    others = [f"{reading['reading']}: {'; '.join(row_verdicts(reading))}" for reading in named_readings(row, rows)]
    remarks = [*others, shares_of_readings(row, rows)]
    verdicts = "; ".join([*row_verdicts(row), *far_words(row)])
    return [row["id"], row["statement"], verdicts, ". ".join(filter(None, remarks)), minutes]


def in_field() -> list[str]:
    """How the papers' methods stand in the field, as far as it is recorded."""
    field = Field(FieldRecord.read(FIELD_RECORDED))
    return [line for paper, method in OF_PAPERS.items() if (line := paper_line(field, paper, method))]


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


def has_section(row: Tree) -> bool:
    """Whether a row has a section: it was run, and is no combination of options, which is a line of another row's."""
    return bool(row["parts"]) and not (row.get("reading_of") and row.get("combination"))


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


def _details(row: Tree, rows: Sequence[Tree]) -> Iterator[str]:
    yield f"\n## {row['id']}: {row['statement']}\n"
    yield from (f"- {name}: {text}" for name, text in row_facts(row))
    if row["arms"]:
        yield f"- {ARMS}{shared_words(row)}"
        yield from (f"  - {line}" for line in arms(row))
    yield f"\n{markdown_table(PART_HEADS, map(cells, row['parts']))}"
    if combined := combination_lines(row, rows):
        lines = [[", ".join(values), "; ".join(row_verdicts(reading))] for values, reading in combined]
        yield f"\n{markdown_table(COMBINATION_HEADS, lines)}"


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


def far_words(row: Tree) -> list[str]:
    """In what the setting of a row that was run is far from the paper's protocol, if it is."""
    return [f"far from the paper's protocol: {row['far']}"] if row.get("far") and row["parts"] else []


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


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose texts have no line breaks and no bars."""
    lines = [[typeset.Cell(" ".join(text.replace("|", "/").split())) for text in row] for row in rows]
    return typeset.markdown(heads, lines, left=len(heads))


def conditions_words(record: ClaimsRecord) -> str:
    """Under what conditions all rows were tested."""
    changed = "" if record.conditions == Conditions() else ", unlike the rows' settings"
    return f"Conditions of all rows: {record.conditions.words}{changed}."


def as_page(record: ClaimsRecord, folder: Path) -> str:
    """The whole page as text; every row that was run links to its page."""
    rows = record.rows
    run = [row for row in rows if has_section(row)]
    return render(
        Path(__file__).with_name("claims.html.j2"),
        title="Claims of the papers",
        intro=INTRO,
        rules=RULES,
        in_field=(IN_FIELD, in_field()),
        answer=tally(rows),
        conditions=conditions_words(record),
        rows=[
            (row, verdict_marks(row), far_words(row), named_readings(row, rows), shares_of_readings(row, rows))
            for row in families(rows)[0]
        ],
        verdict_marks=verdict_marks,
        arms={row["id"]: (ARMS + shared_words(row), list(arms(row))) for row in run if row["arms"]},
        details=[
            (
                row,
                row_facts(row),
                [(p, cells(p), bar(p, row["parts"])) for p in row["parts"]],
                [(values, verdict_marks(reading)) for values, reading in combination_lines(row, rows)],
            )
            for row in run
        ],
        pages={row["id"] for row in run if (folder / row["id"] / "report.html").exists()},
        tone=tone,
    )


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


def bar(part: Tree, parts: Sequence[Tree]) -> dict[str, float] | None:
    """Positions of an interval in % of a strip shared by all intervals of a row; None without an interval."""
    if part["low"] is None:
        return None
    known = [end for one in parts if one["low"] is not None for end in (one["low"], one["high"], 0.0)]
    low, high = min(known), max(known)
    width = (high - low) or 1.0
    places = {"start": part["low"], "end": part["high"], "mean": part["mean"], "zero": 0.0}
    return {name: round(100 * (value - low) / width, 2) for name, value in places.items()}
