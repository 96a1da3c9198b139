"""What the texts of a column are."""

from pathlib import Path

import numpy as np
import pytest

from fedbench.data.reading.cells import MOST_CATEGORIES
from fedbench.data.reading.targets import FEW_VALUES
from fedbench.data.reading.texts import (
    CODES,
    FORMS,
    JOINED,
    MISSING,
    NO_NUMBER,
    are_numbers,
    clean,
    counts_of,
    form_of,
    is_mostly_numbers,
    numbers_of,
    variants,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "data.md"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.called)
def test_the_example_of_a_form_has_it_and_the_page_shows_it(form):
    counts = counts_of([form.example, "1"])
    assert form_of(counts) == (form, form.example)
    assert not are_numbers(counts.index)
    example = form.example.replace("|", "\\|")
    assert f"| {form.called} | `{example}` | refused: {form.remedy} | asked |" in PAGE.read_text()


def test_the_page_has_the_other_forms_and_the_limits():
    page = PAGE.read_text()
    assert f"| {CODES.called} | `{CODES.example}` | asked |" in page
    assert f"| {JOINED.called} | `a\\|b` | refused: {JOINED.remedy} | asked |" in page
    assert f"at most {MOST_CATEGORIES} other texts" in page
    assert f"more than {FEW_VALUES} texts that hardly repeat" in page
    assert all(f"`{text}`" in page for text in NO_NUMBER)


@pytest.mark.parametrize(
    ("texts", "called"),
    [
        (["0,3", "-1,2", "2"], "numbers with a decimal comma"),
        (["1.234,56", "0,5"], "numbers with a decimal comma"),
        (["0,123", "-2,901", "1,250"], "numbers with a decimal comma"),
        (["1,234", "12,000", "5"], "numbers with a separator of thousands"),
        (["1 234 567", "2 000"], "numbers with a separator of thousands"),
        (["5%", "-3.2%"], "numbers with a unit"),
        (["12kg", "7kg", "3"], "numbers with a unit"),
        (["10 years", "1 year"], "numbers with a unit"),
        (["€ 5", "€7.50"], "numbers with a unit"),
        (["<0.5", "1", ">=9"], "bounds beside numbers"),
        (["31.1.2026", "1.2.26"], "dates or times"),
        (["2026-01-31T12:00", "2026-02-01"], "dates or times"),
        (["12:30", "8:15:59"], "dates or times"),
        (["8:15 AM", "12:30 pm"], "dates or times"),
        (["3-Jan-2026", "28-Feb-2026"], "dates or times"),
        (["Jan 3, 2026", "Feb 28, 2026"], "dates or times"),
        (["3. Januar 2026", "1. März 2026"], "dates or times"),
        (["Jan 2026", "Dec-25"], "dates or times"),
        (["1 234,50", "1'234,50", "-12,5"], "numbers with a decimal comma"),
        (["1,23,456", "12,34,567"], "numbers with a separator of thousands"),
        (["1.234.567", "-2.345.678"], "numbers with a separator of thousands"),
        (["$1,250.00", "$12.50", "-$5"], "numbers with a unit"),
        (["CHF 10.50", "EUR 1'200.00", "XYZ 3.25"], "numbers with a unit"),
        (["R$ 10,50", "₹1,23,456", "($5.00)"], "numbers with a unit"),
        (["12,5%", "12,50 €", "1,200 kg", "−3 °C"], "numbers with a unit"),
        (["5 mg/dL", "50 km/h", "4 m²", "3 kg-m", "9 m s-1", "5.2 x10^9/L"], "numbers with a unit"),
        (["5mg/dL", "4.5mg/dL"], "numbers with a unit"),
        (["(10.5)", "(1,250.00)", "3"], "negative numbers in another spelling"),
        (["−5.5", "−7", "3"], "negative numbers in another spelling"),
        (["0x1f", "0xA0"], "hexadecimal numbers"),
        (['"5"', '"-0.5"', "3"], "numbers in quotes"),
        (["'5'", "'1e-3'"], "numbers in quotes"),
        (["110/70", "120 / 80"], "several numbers in a text"),
        (["[0, 1]", "[0.5 -2.]", "(1, 2)"], "several numbers in a text"),
        (["70 80 82", "1 2 3"], "several numbers in a text"),
        (["1h 5m", "45m", "2h"], "durations"),
        (["PT10M", "P1DT2H30M"], "durations"),
        (["0 days 03:00:00", "1 day, 3:00:00", "3:00:00"], "durations"),
        (["$5", "-", "?", "-", "-"], "numbers with a unit"),
        (
            ["cough|rash", "cough", "rash|fever", "none", "rash", "fever", "fever|cough"],
            "several values joined in a text",
        ),
    ],
)
def test_a_form_is_seen(texts, called):
    assert form_of(counts_of(texts))[0].called == called


@pytest.mark.parametrize(
    "texts",
    [
        *(["1st", "2nd", "3rd"], ["10th", "11th"], ["<30", ">=30"], ["<50%", ">50K"]),
        *(["yes", "no"], ["v1.2.3"], ["a|b", "c"], ["1", "?"]),
        *(["5-10", "11-20"], ["A1", "B2"], ["type 2", "type 1"], ["CIN 1", "CIN 2"], ["1h", "24h", "7d"]),
        *(["(0, 10]", "(10, 20]"], ["Jan", "Feb"], ["Q1 2026", "Q2 2026"], ["visit 1", "visit 2"], ["P", "PT"]),
        *(["5'", "6'"], ["'90s", "'80s'"], ["'5\"", '"yes"']),
        *(["5 or more", "18 to 24"], ["2-door", "4-door"], ["10-A", "11-B"], ["12 Main St", "5 Oak St"]),
    ],
)
def test_names_have_no_form(texts):
    assert form_of(counts_of(texts)) is None


def test_numbers_are_those_that_stand_there_to_the_bit():
    values = np.random.default_rng(0).normal(size=99) * 10.0 ** np.arange(-50, 49)
    np.testing.assert_array_equal(numbers_of([f"{value!r}" for value in values.tolist()]), values)
    assert numbers_of(["+2", "-3", "0012"]).tolist() == [2, -3, 12]
    assert numbers_of(["1767225600000000001", "-7"]).tolist() == [1767225600000000001, -7]
    assert numbers_of([f"{2**64 - 1}", "7"]).tolist() == [2**64 - 1, 7]
    assert numbers_of(["1e3", ".5", "5."]).tolist() == [1000, 0.5, 5]
    assert numbers_of(["True", "false"]).tolist() == [True, False]
    assert not are_numbers(["1", "inf"])
    assert is_mostly_numbers(counts_of(["1", "2", "?"]))
    assert not is_mostly_numbers(counts_of(["1", "?"]))


@pytest.mark.parametrize("code", MISSING)
def test_texts_for_missing_values_outnumber_no_numbers(code):
    assert is_mostly_numbers(counts_of(["1", "2", *[code] * 9]))
    assert not is_mostly_numbers(counts_of(["1", "2", *["a"] * 9]))


def test_texts_are_clean_and_their_variants_are_found():
    assert clean([" a b ", "cafe\u0301"]).tolist() == ["a b", "café"]
    assert clean(["", "  ", None, "x"]).isna().tolist() == [True, True, True, False]
    assert [*variants(counts_of(["yes", "Yes", "yes", "no", "a b", "ab"])).values()] == [["yes", "Yes"], ["a b", "ab"]]
    assert [*variants(counts_of(["yes", "yes", "yes\u200b"])).values()] == [["yes", "yes\u200b"]]
