"""A column is what its name and its cells say, and what only the user knows is asked for."""

import numpy as np

from tests.data.reading.test_tables import FRAME, ROWS, content, refused


def test_y_beside_other_axes_is_asked_about():
    axes = FRAME.rename(columns={"a": "x"}).assign(y=np.arange(ROWS) / 3, z=0.5).drop(columns="label")
    assert refused(axes.assign(activity=["sit", "walk"] * 30)) == (
        "data t: column y stands beside x and z: the target (--data.label y) or a measurement, and activity is the "
        "target (--data.label activity)?"
    )
    assert "(--data.label n)?" in refused(axes.assign(n=1.5))
    assert content(axes.assign(activity=["sit", "walk"] * 30), label="activity").columns == ("x", "y", "z")
    assert content(axes.drop(columns="z")).columns == ("x",), "x alone is no target of y"
    assert content(axes.assign(n=1.5, y=["sit", "walk"] * 30)).columns == ("x", "z", "n"), "a text is no measurement"


def test_columns_are_found_in_any_case():
    table = FRAME.rename(columns={"label": "Class"}).assign(User=["ann", "bob"] * 30)
    assert content(table).columns == ("a",)
    (block,) = content(table, label="Class").blocks
    assert block.domains[:2].tolist() == ["ann", "bob"]
    axes = FRAME.rename(columns={"a": "X"}).assign(Y=np.arange(ROWS) / 3, n=1.5).drop(columns="label")
    assert "column Y stands beside X: the target (--data.label Y) or a measurement, and n" in refused(axes)
