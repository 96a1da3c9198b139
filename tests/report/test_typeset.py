"""Tables as text."""

from fedbench.report.typeset import Cell, ShownMethods, latex, markdown, plain_table, ranks_in_column

HEADS = ("method", "score %")
LINES = [[Cell("fed_a"), Cell("91.2 ± 0.8", 1)], [Cell("b"), Cell("90.0", 2, tied=True)], [Cell("c"), Cell("7")]]


def test_plain_text_is_aligned():
    assert plain_table(HEADS, LINES).splitlines() == [
        "method     score %",
        "------------------",
        "fed_a   91.2 ± 0.8",
        "b           90.0 =",
        "c                7",
    ]
    assert plain_table(HEADS, LINES, left=2).splitlines()[2:] == ["fed_a   91.2 ± 0.8", "b       90.0 =", "c       7"]


def test_markdown_has_the_best_in_bold():
    assert markdown(HEADS, LINES).splitlines()[1:4] == [
        "| --- | ---: |",
        "| fed_a | **91.2 ± 0.8** |",
        "| b | 90.0 = |",
    ]


def test_latex_marks_the_first_two_and_ties_and_escapes():
    text = latex(HEADS, LINES).splitlines()
    assert text[:4] == [r"\begin{tabular}{lr}", r"\toprule", r"method & score \% \\", r"\midrule"]
    assert text[4] == r"fed\_a & \textbf{91.2 $\pm$ 0.8} \\"
    assert text[5] == r"b & \underline{90.0}$^{=}$ \\"
    assert text[-2:] == [r"\bottomrule", r"\end{tabular}"]


def test_places_go_to_the_best_two_values():
    assert ranks_in_column([0.5, None, 0.9, 0.7, 0.9], higher=True) == [0, 0, 1, 2, 1]
    assert ranks_in_column([0.5, 0.9, 0.7], higher=False) == [1, 0, 2]


def test_names_that_are_other_methods_labels_are_not_renamed_again():
    shown = ShownMethods(names={"a": "b", "b": "a", "b-2": "c"})
    assert shown.rename("a beats b and b-2, not a-2") == "b beats a and c, not a-2"
    assert ShownMethods().rename("a") == "a"
