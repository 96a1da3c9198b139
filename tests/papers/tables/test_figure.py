"""The runs of a figure."""

from fedbench_papers.tables.figure import Figure

OVER = Figure("values", {"ours": "fedcac"}, "share", {"local": "local"}, "method.tau", (0.1, 0.5, 0.9), (0.2, 0.4))


def test_runs_are_lines_by_values_and_levels():
    assert list(OVER.runs("full")) == ["ours tau=0.1", "ours tau=0.5", "ours tau=0.9", "local"]
    assert OVER.runs("small")["ours tau=0.4"] == ("fedcac", {"method.tau": 0.4})
    assert Figure("rounds", {"a": "fedcac:tau=0.3"}).runs("small") == {"a": ("fedcac:tau=0.3", {})}


def test_curves_of_a_figure_may_differ_by_an_option():
    curves = Figure("rounds", {"ours": "fedcac"}, over="method.tau", values=(0.1, 0.5))
    assert curves.runs("full") == {f"ours tau={tau}": ("fedcac", {"method.tau": tau}) for tau in (0.1, 0.5)}


def test_a_value_may_stand_for_other_keys():
    figure = Figure.of(
        {"draw": "values", "lines": {"ours": "fedmosaic"}, "over": "public.alpha", "values": [1.0, 0.5]}
        | {"instead": {"1.0": {"public.balance": "classes"}}}
    )
    keys = {label: own for label, (_, own) in figure.runs("full").items()}
    assert keys == {"ours alpha=1": {"public.balance": "classes"}, "ours alpha=0.5": {"public.alpha": 0.5}}


def test_classes_of_public_sets_need_no_run():
    assert Figure("public", over="public.alpha", values=(1.0, 0.5)).runs("full") == {}
