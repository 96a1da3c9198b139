"""Tables as plain text, Markdown and LaTeX; they mark the best, the second and ties with the best."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """place: 1 for the best of its column, 2 for the second, else 0; tied: cannot be told from the best.

    tone: its colour in reports, by comparison with the baselines (`standing`). mark: raised after its text.
    """

    text: str
    place: int = 0
    tied: bool = False
    tone: str = ""
    mark: str = ""


TextLine = Sequence[Cell]
MINUS = "\u2212"
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
}
SPECIAL = re.compile("|".join(map(re.escape, LATEX)))


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


def without_empty_columns(
    heads: Sequence[str], lines: Sequence[TextLine], least: int
) -> tuple[list[str], list[list[Cell]]]:
    """A table without the columns in which no line has a text, but with the first `least` ones."""
    kept = [i for i in range(len(heads)) if i < least or any(line[i].text for line in lines)]
    return [heads[i] for i in kept], [[line[i] for i in kept] for line in lines]


def escape_latex(text: str) -> str:
    """Escapes text for LaTeX."""
    return SPECIAL.sub(lambda found: LATEX[found[0]], text)


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
