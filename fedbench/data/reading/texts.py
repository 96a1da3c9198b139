"""Recognises the form of a column's texts by one table, for all tables and for targets that are texts."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

WHOLE = r"[-+]?[0-9]+"
TEXT = pd.StringDtype("pyarrow")
NUMBER = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
DECIMAL = r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)"
"""Numbers that are no codes, as those with a zero in front or an exponent may be."""
TRUTH = r"[Tt]rue|[Ff]alse|TRUE|FALSE"
NO_NUMBER = ("NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "none")
"""Texts for missing numbers in tables."""
MISSING = (*NO_NUMBER, "NaT", "n.a.", "?", "-", "--", "–", "—", ".", "..", "#DIV/0!", "#VALUE!")
"""The usual texts for missing values of any kind."""
THOUSANDS_POINT = r"[-+]?[1-9][0-9]{0,2}\.[0-9]{3}"
LONGEST = 20
"""Characters of a whole number of 64 bits, with its sign."""
JOINTS = ("|", ";")
ORDINALS = ("st", "nd", "rd", "th")
"""Texts behind numbers that are no unit."""
MONTH = "(0?[1-9]|1[0-2])"
MONTH_NAME = (
    r"(?i:jan|feb|f[ée]vr?|m[aä]r|mrz|mars|apr|avr|ma[iy]|jun|juin|jul|juil|aug|ao[uû]t|sep|o[ck]t|nov|de[cz]|d[ée]c)"
    r"\p{L}*\.?"
)
MINUS = r"[-+−–]?"
THOUSANDS = r"[,'’ \x{a0}\x{202f}]"
GROUPED = (
    rf"([1-9][0-9]{{0,2}}({THOUSANDS}[0-9]{{2,3}})*{THOUSANDS}[0-9]{{3}}(\.[0-9]*)?"
    r"|[1-9][0-9]{0,2}(\.[0-9]{3}){2,})"
)
COMMA = r"([0-9]+|[0-9]{1,3}([.'’ \x{a0}\x{202f}][0-9]{3})+),[0-9]+"
AMOUNT = rf"{MINUS}({NUMBER}|{GROUPED}|{COMMA})"
"""A number with any sign, separators of thousands, and a point or comma."""
CURRENCIES = (
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RON|SEK|SGD|THB|TRY|TWD|"
    "USD|ZAR"
)
"""Three letters that are a currency before any number; others, as in `CIN 2`, need cents or thousands behind them."""
MONEY = (
    rf"{MINUS}(([A-Z]{{0,2}}\p{{Sc}}|{CURRENCIES}|Fr\.|Rs\.?)\s*{AMOUNT}[-–—]?(\s?\p{{L}}+)?"
    rf"|[A-Z]{{3}}\s*[0-9][0-9 ,.'’]*[.,'’][0-9]{{2,3}})"
)
UNIT = r"/?\s?\p{L}+[23²³]?([/·*^⁻-][\p{L}0-9²³¹.^-]+)*( \p{L}+\^?[-⁻]?[0-9¹²³])*|[x×]\s?10[\^0-9⁰¹²³⁴-⁹]+(/\p{L}+)?"
MEASURE = rf"({MONEY}|{AMOUNT}\s*([%‰°\p{{Sc}}].*|\s({UNIT})|{UNIT}))"
LIST = rf"\s*({NUMBER}[,;\s]*)+"
PERIOD = r"[0-9.]+\s?(?:years?|y|months?|weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)\.?,?"
LONG_PERIOD = rf"[-+]?({PERIOD}(\s?{PERIOD})+|[0-9]+ days?,? [-+]?[0-9]+:.*|P([0-9.]+[YMWD])*T?([0-9.]+[YMWDHS])+)"


@dataclass(frozen=True)
class Form:
    """Texts of one form, which are neither numbers nor names. remedy: what makes them features or numbers.

    beside: a form that some text of the column must have, or other texts are names.
    """

    called: str
    example: str
    pattern: str
    remedy: str
    beside: str = ".*"


FORMS = (
    Form("numbers with a separator of thousands", "1,234", MINUS + GROUPED, "write them without it"),
    Form("numbers with a decimal comma", "0,5", MINUS + COMMA, "write a point"),
    Form(
        "dates or times",
        "2026-01-31",
        rf"[0-9]{{4}}[-/]{MONTH}([-/][0-9]{{1,2}}([T ].*)?)?|[0-9]{{1,2}}([./-])[0-9]{{1,2}}[./-][0-9]{{2,4}}( .*)?"
        r"|[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}.*|[0-9]{1,2}:[0-9]{2}(:[0-9]{2}.*)?( ?[AaPp]\.?[Mm]\.?)?"
        rf"|(\p{{L}}{{2,9}},? )?[0-9]{{1,2}}\.?[- /]{MONTH_NAME}([- /,]+[0-9]{{2,4}}([T ,].*)?)?"
        rf"|{MONTH_NAME}( [0-9]{{1,2}}(st|nd|rd|th)?[,;])?[- /][0-9]{{2,4}}([T ,].*)?",
        "turn them into numbers, such as the days since a start",
    ),
    Form("numbers with a unit", "5 kg", rf"{MEASURE}|\({MEASURE}\)", "write the numbers alone"),
    Form("bounds beside numbers", "<0.5", rf"[<>≤≥~]=?\s*{NUMBER}", "write a number, such as half the bound", NUMBER),
    Form(
        "negative numbers in another spelling",
        "(10.5)",
        rf"[−–]{AMOUNT}|\({AMOUNT}\)",
        "write a hyphen in front: -10.5",
    ),
    Form(
        "numbers in quotes",
        '"5"',
        rf"\"{NUMBER}\"|'{NUMBER}'",
        "leave out the quotes, or the blank before them",
    ),
    Form("hexadecimal numbers", "0x1f", r"[-+]?0[xX][0-9a-fA-F]+", "write their decimals"),
    Form(
        "several numbers in a text",
        "110/70",
        rf"{NUMBER}\s?/\s?{NUMBER}|\[{LIST}\]|\({LIST}\)|\{{{LIST}\}}|{NUMBER}( +{NUMBER}){{2,}}",
        "write a column for each",
    ),
    Form(
        "durations",
        "1h 5m",
        rf"{LONG_PERIOD}|{PERIOD}|[0-9]+:[0-9]{{2}}(:[0-9]{{2}}.*)?",
        "write the number of one unit, such as minutes",
        LONG_PERIOD,
    ),
)
CODES = Form("digits with a zero in front", "0012", r"[-+]?0[0-9]+", "")
"""Numbers or names: only the user knows."""
JOINED = Form("several values joined in a text", "a|b", "", "write a column of 0 and 1 for each")


def clean(values: Iterable[Any]) -> pd.Series:
    """Texts in one form of Unicode and without blanks around them; missing where nothing is left."""
    column = values if isinstance(values, pd.Series) else pd.Series([*values], dtype=TEXT)
    texts = pc.utf8_trim_whitespace(pc.utf8_normalize(pa.array(column.astype(TEXT), pa.large_string()), "NFC"))
    left = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)
    return pd.Series(left.to_pandas(types_mapper=lambda kind: TEXT), dtype=TEXT, name=column.name)


def counts_of(texts: Iterable[str]) -> pd.Series:
    """How often each text occurs, by the text."""
    return pd.Series(texts, dtype=TEXT).value_counts()


def matches(texts: Any, pattern: str) -> np.ndarray:
    """Which texts have a form as a whole, bool [n]."""
    matched = pc.match_substring_regex(pa.array(texts, pa.large_string()), rf"^(?:{pattern})$")
    return matched.to_numpy(zero_copy_only=False).astype(bool)


def all_match(texts: Any, pattern: str) -> bool:
    """Whether there are texts, and all have a form; looks at the first one first, because columns are long."""
    return bool(len(texts) and matches(texts[:1], pattern).all() and matches(texts, pattern).all())


def numbers_of(texts: Iterable[str]) -> np.ndarray:
    """The truth values or numbers that all texts are, bool, whole numbers of 64 bits if they fit, or float64 [n]."""
    column = pa.array(texts, pa.large_string())
    if all_match(column, TRUTH):
        return pc.equal(pc.utf8_lower(column), "true").to_numpy(zero_copy_only=False)
    if all_match(column, WHOLE) and pc.max(pc.utf8_length(column)).as_py() <= LONGEST:
        for kind in (pa.int64(), pa.uint64()):
            with suppress(pa.ArrowInvalid):  # too large
                return pc.replace_substring(column, "+", "").cast(kind).to_numpy()
    return column.cast(pa.float64()).to_numpy()


def are_numbers(texts: Any) -> bool:
    """Whether all texts are numbers, or all are truth values."""
    return _are_finite(texts) or all_match(texts, NUMBER) or all_match(texts, TRUTH)


def has_codes(texts: Any) -> bool:
    """Whether some texts are digits with a zero in front."""
    column = pa.array(texts, pa.large_string())
    without_point = column.filter(pc.invert(pc.match_substring(column, ".")))  # few of most numbers
    return bool(matches(without_point, CODES.pattern).any())


def have_points_of_thousands(texts: Any) -> bool:
    """Whether points in some numbers seem to separate thousands: 1.500 beside 700, which decimals do not explain.

    Whoever writes three decimals of every number writes 700.000, and whoever leaves zeros out at its end writes 1.5.
    """
    column = pa.array(texts, pa.large_string())
    pointed = pc.match_substring(column, ".")
    with_point = column.filter(pointed)
    return (
        0 < len(with_point) < len(column)
        and all_match(with_point, THOUSANDS_POINT)
        and bool(pc.any(pc.ends_with(with_point, "0")).as_py())
    )


def _are_finite(texts: Any) -> bool:
    """Whether Arrow reads all texts as finite numbers, which have the form of NUMBER; several times as fast as that."""
    column = pa.array(texts, pa.large_string())
    if not len(column) or column.null_count or not matches(column[:1], NUMBER).all():
        return False
    try:
        return bool(pc.all(pc.is_finite(column.cast(pa.float64()))).as_py())
    except pa.ArrowInvalid:
        return False


def form_of(counts: pd.Series) -> tuple[Form, str] | None:
    """The form of texts most of which are numbers or have this form, and an example; None for other texts."""
    values = without_codes(counts)
    numbers, best = matches(values.index, NUMBER), None
    rows = values.to_numpy()
    for form in FORMS:
        fits = matches(values.index, form.pattern) & ~numbers
        if form.called == "numbers with a unit":
            fits &= _has_one_unit(values)
        if not matches(values.index, form.beside).any():
            continue
        count = rows[fits].sum()
        if count and 2 * (count + rows[numbers].sum()) > rows.sum() and (best is None or count > best[0]):
            best = count, (form, str(values.index[fits.argmax()]))
    return best[1] if best else _joined(counts)


def without_codes(counts: pd.Series) -> pd.Series:
    """How often each text occurs, without the usual texts for missing values."""
    return counts[~counts.index.isin(MISSING)]


def is_mostly_numbers(counts: pd.Series) -> bool:
    """Whether most texts, or most beside those for missing values, are numbers; one number among these is a name."""
    numbers = counts[matches(counts.index, NUMBER)]
    others = counts if len(numbers) < 2 else without_codes(counts)
    return bool(2 * numbers.sum() > others.sum())


def variants(counts: pd.Series) -> dict[str | Decimal, list[str]]:
    """Texts that differ in case or in blanks alone, seen or unseen, or are one number, by what they share.

    The most frequent one comes first, of numbers the shortest.
    """
    common = counts.index.str.casefold().str.replace(r"[\s\u00ad\u200b-\u200f\u2060\ufeff]+", "", regex=True)
    groups: dict[str | Decimal, list[str]] = {}
    for key, is_number, text in zip(common, matches(common, DECIMAL), counts.index, strict=True):
        groups.setdefault(Decimal(key) if is_number else key, []).append(text)
    return {
        key: sorted(texts, key=len) if isinstance(key, Decimal) else texts
        for key, texts in groups.items()
        if len(texts) > 1
    }


def _has_one_unit(counts: pd.Series) -> np.ndarray:
    """Which texts have a sign or a blank before the unit; all if each number has the same one."""
    units = counts.index.str.extract(r"[0-9.]([^\W\d_]+(?:[/²³·*^-]\S*)?)\)?$", expand=False)
    return np.asarray(units.isna()) | (units.nunique() == 1 and not units.isin(ORDINALS).any())


def _joined(counts: pd.Series) -> tuple[Form, str] | None:
    """Whether the texts are made of fewer ones, joined by a bar or a semicolon."""
    for joint in JOINTS:
        joined = [text for text in counts.index if joint in text]
        pieces = {piece.strip() for text in counts.index for piece in text.split(joint)}
        if len(joined) > 1 and len(pieces) < len(counts):
            return JOINED, joined[0]
    return None
