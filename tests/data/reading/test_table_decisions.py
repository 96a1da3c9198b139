"""The decisions on a table name every column."""

from tests.data.reading.test_tables import FRAME, content, decisions


def test_decisions_say_what_every_column_is():
    table = FRAME.assign(job=["cook", "pilot"] * 30, user=["ann", "bob"] * 30, n=1.5, id=0).rename(
        columns={"a": "Unnamed: 0"}
    )
    assert decisions(content(table, drop=["id"])) == [
        "column label is the target",
        "column user is the user",
        "column n holds numbers",
        "column job (2) holds categories",
        "column Unnamed: 0 is left out, as an index without a name",
        "column id is left out",
    ]
    (first, *_) = content(table, label="job", drop=["label"]).decisions(None)
    assert (first.about, first.how, first.key, first.value) == ("targets", "given", "data.label", "job")
