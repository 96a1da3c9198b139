"""The page and the tables of tested claims, from claims.json."""

from collections.abc import Iterable, Iterator, Sequence
from csv import DictWriter
from io import StringIO
from pathlib import Path

from fedbench.report import typeset
from fedbench.report.template import render
from fedbench.results.files import write_atomically
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.record import CLAIMS_FILE, ClaimsRecord
from fedbench_papers.claims.words import (
    Tree,
    adjusted_p,
    arms,
    cells,
    combination_lines,
    corrected_verdict,
    families,
    far_words,
    named_readings,
    row_facts,
    row_verdicts,
    shared_words,
    shares_of_readings,
    tally,
    tone,
    verdict_marks,
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
SUMMARY_HEADS = ("row", "claim", "verdict here", "other readings", "far from the paper's protocol in", "minutes")
COMBINATION_HEADS = ("what the paper leaves open", "verdict")
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
    "The summary says in what a setting is far from the paper's protocol, by one rule for all rows: another network or "
    "data set, or at most half of the clients, training images, public images or rounds, as far as the paper states "
    "them. Rates, batches and epochs stand in the setting. Rows that are exact (F11, M9) or test a proposition (M10) "
    "are not compared.",
    "Minutes are those of the runs, one core each. Gradient steps are those of a client in a round; the pooled model "
    "(centralized) makes its own, which count whole.",
)
"""How verdicts come about, a paragraph each."""
IN_FIELD = "Their methods in the field, beside all others"
ARMS = "arms: accuracy after aggregation and after the fit, gradient steps per client and round"


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
    yield markdown_table(SUMMARY_HEADS, [_summary_line(row, rows) for row in counted])
    yield f"\n## {IN_FIELD}\n"
    yield from (f"- {line}" for line in in_field())
    yield "\n## How verdicts come about\n"
    yield from (f"- {rule}" for rule in RULES)


def _summary_line(row: Tree, rows: Sequence[Tree]) -> list[str]:
    minutes = f"{row['minutes']:.1f}" if row.get("minutes") is not None else ""
    others = [f"{reading['reading']}: {'; '.join(row_verdicts(reading))}" for reading in named_readings(row, rows)]
    remarks = [*others, shares_of_readings(row, rows)]
    verdicts = "; ".join(row_verdicts(row))
    return [row["id"], row["statement"], verdicts, ". ".join(filter(None, remarks)), far_words(row), minutes]


def in_field() -> list[str]:
    """How the papers' methods stand in the field, as far as it is recorded."""
    field = Field(FieldRecord.read(FIELD_RECORDED))
    return [line for paper, method in OF_PAPERS.items() if (line := paper_line(field, paper, method))]


def has_section(row: Tree) -> bool:
    """Whether a row has a section: it was run, and is no combination of options, which is a line of another row's."""
    return bool(row["parts"]) and not (row.get("reading_of") and row.get("combination"))


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


def bar(part: Tree, parts: Sequence[Tree]) -> dict[str, float] | None:
    """Positions of an interval in % of a strip shared by all intervals of a row; None without an interval."""
    if part["low"] is None:
        return None
    known = [end for one in parts if one["low"] is not None for end in (one["low"], one["high"], 0.0)]
    low, high = min(known), max(known)
    width = (high - low) or 1.0
    places = {"start": part["low"], "end": part["high"], "mean": part["mean"], "zero": 0.0}
    return {name: round(100 * (value - low) / width, 2) for name, value in places.items()}
