"""Numbers and words as text, and tables as plain text, Markdown and LaTeX.

Tables mark the best, the second and ties with the best.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fedbench.results.statistics import Interval
from fedbench.tasks import Metric
from fedbench.tasks.metric import MINUS


@dataclass(frozen=True)
class Cell:
    """place: 1 for the best of its column, 2 for the second, else 0; tied: cannot be told from the best.

    tone: its colour on pages (`verdicts.TONES`, or quiet). mark: raised after its text; small: an addition; title: the
    tooltip. method: whose row it heads, by its label.
    """

    text: str
    place: int = 0
    tied: bool = False
    tone: str = ""
    mark: str = ""
    small: str = ""
    title: str = ""
    method: str = ""


@dataclass(frozen=True)
class ShownMethods:
    """The methods that are shown, all if there are none, and how they are called. labels: all that the study has."""

    methods: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    labels: Sequence[str] = ()

    def has(self, label: str) -> bool:
        """Whether something with this label is shown; what is no method always is."""
        return not self.methods or label not in self.labels or label in self.methods

    def name(self, label: str) -> str:
        return self.names.get(label, label)

    def rename(self, text: str) -> str:
        """A text of the report with the names that are to be shown."""
        word = "|".join(re.escape(label) for label in sorted(self.names, key=len, reverse=True))
        return re.sub(rf"(?<![\w-])(?:{word})(?![\w-])", lambda match: self.name(match[0]), text) if word else text


Number = Callable[[float], str]
TextLine = Sequence[Cell]
LATEX = {
    **{sign: rf"\{sign}" for sign in "%_#$&{}"},
    "\\": r"\textbackslash{}",
    "^": r"\^{}",
    "~": r"\~{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "λ": r"$\lambda$",
    MINUS: "$-$",
    "\u00a0": "~",
    "*": r"$^{\ast}$",
    "†": r"$^{\dagger}$",
    "‡": r"$^{\ddagger}$",
}
COLUMN = 48
"""Letters of a table's row, gaps counted as two, that fit one column of a paper with two."""
PAGE = 45
"""Rows of a table that fit a page with caption and note."""
SPECIAL = re.compile("|".join(map(re.escape, LATEX)))


def with_half(interval: Interval, number: Number, half: Number | None = None) -> str:
    """`91.2 ± 0.8`, or of a lopsided interval `96.1 (88.0 to 99.0)`, or the mean alone."""
    if interval.half is None or interval.low is None or interval.high is None:
        return number(interval.mean)
    if interval.is_lopsided:
        return f"{number(interval.mean)} ({number(interval.low)} to {number(interval.high)})"
    return f"{number(interval.mean)} ± {(half or number)(interval.half)}"


def share_text(interval: Interval) -> str:
    """`58 % (36 to 78)`, because the interval of a share is lopsided; the mean alone where all seeds agree."""
    low, high = interval.low, interval.high
    ends = "" if low is None or high is None or math.isclose(low, high) else f" ({100 * low:.0f} to {100 * high:.0f})"
    return f"{100 * interval.mean:.0f} %{ends}"


def points(metric: Metric) -> str:
    """The unit of a difference."""
    return " points" if metric.share else ""


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def plain_table(heads: Sequence[str], lines: Sequence[TextLine], left: int = 1) -> str:
    """Aligned columns for a terminal, the first `left` ones left-aligned; `=` marks a tie."""
    rows = [list(heads), *([cell.text.replace(MINUS, "-") + " =" * cell.tied for cell in line] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = [
        "  ".join([*map(str.ljust, row[:left], widths), *map(str.rjust, row[left:], widths[left:])]).rstrip()
        for row in rows
    ]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def markdown(heads: Sequence[str], lines: Sequence[TextLine], left: int = 1) -> str:
    """A GitHub table, the first `left` columns left-aligned: the best in bold, `=` for a tie."""

    def format_cell(cell: Cell) -> str:
        text = f"**{cell.text}**" if cell.place == 1 else cell.text
        return text + cell.mark.replace("*", r"\*") + " =" * cell.tied

    rule = [*["---"] * left, *["---:"] * (len(heads) - left)]
    return "\n".join(
        f"| {' | '.join(row)} |" for row in [list(heads), rule, *(list(map(format_cell, line)) for line in lines)]
    )


def latex(heads: Sequence[str], lines: Sequence[TextLine], left: int = 1, caption: str = "") -> str:
    """A booktabs table, `left` columns left-aligned: the best in bold, the second underlined, `=` for a tie.

    With a caption it is a longtable, which breaks over pages.
    """

    def format_cell(cell: Cell) -> str:
        mark = {1: r"\textbf{%s}", 2: r"\underline{%s}"}.get(cell.place, "%s")
        return mark.replace("%s", escape_latex(cell.text)) + escape_latex(cell.mark) + r"$^{=}$" * cell.tied

    def row(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"

    body = [row([format_cell(cell) for cell in line]) for line in lines]
    kind = "longtable" if caption else "tabular"
    return "\n".join(
        [
            rf"\begin{{{kind}}}{{{'l' * left}{'r' * (len(heads) - left)}}}",
            *[rf"{caption} \\"] * bool(caption),
            r"\toprule",
            row(list(map(escape_latex, heads))),
            r"\midrule",
            *[r"\endhead"] * bool(caption),
            *body,
            r"\bottomrule",
            rf"\end{{{kind}}}",
            "",
        ]
    )


def latex_float(heads: Sequence[str], lines: Sequence[TextLine], left: int, name: str, caption: str, note: str) -> str:
    """A LaTeX table with caption, label and a note below; one that fits no page breaks over pages."""
    above = rf"\caption{{{escape_latex(caption)}}}", rf"\label{{tab:{name}}}"
    below = [r"\par\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize {escape_latex(note)}}}"]
    if len(lines) > PAGE:
        table = latex(heads, lines, left, "".join(above)).rstrip()
        return "\n".join(["% \\usepackage{booktabs,longtable}", r"{\small", table, *below, "}", ""])
    letters = sum(2 + max(len(head), *(len(line[i].text) for line in lines)) for i, head in enumerate(heads))
    kind = "table*" if letters > COLUMN else "table"  # which spans both columns
    begin = ["% \\usepackage{booktabs}", rf"\begin{{{kind}}}", r"\centering\small", *above]
    return "\n".join([*begin, latex(heads, lines, left).rstrip(), *below, rf"\end{{{kind}}}", ""])


def escape_latex(text: str) -> str:
    """Escapes text for LaTeX."""
    return SPECIAL.sub(lambda match: LATEX[match[0]], text)


def ranks_in_column(values: Sequence[float | None], higher: bool) -> list[int]:
    """1 for the best and 2 for the second best of a column; 0 for others and missing values."""
    known = sorted({value for value in values if value is not None}, reverse=higher)[:2]
    return [0 if value is None or value not in known else known.index(value) + 1 for value in values]


def sentence(words: str) -> str:
    """Capitalises the first letter."""
    return words[:1].upper() + words[1:]


def join_words(names: list[str]) -> str:
    """`a, b and c`; shortens long lists."""
    shown = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} others"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
