"""What the cells of a table's columns become."""

import json

from fedbench.data.raw_columns import RawColumn, feature_names, void_places

COLUMNS = (
    RawColumn("n", "number", ("n", "n missing"), lacks_some=True),
    RawColumn("job", "category", ("job=cook", "job missing"), ("cook",), merged=True, lacks_some=True),
    RawColumn("v", "list", ("v[0]", "v[1]")),
    RawColumn("ok", "truth", ("ok", "ok missing"), lacks_some=True),
)


def test_a_column_comes_back_from_json_which_leaves_out_what_is_usual():
    assert [RawColumn.from_json(json.loads(json.dumps(column.as_json()))) for column in COLUMNS] == [*COLUMNS]
    assert COLUMNS[2].as_json() == {"name": "v", "kind": "list", "features": ["v[0]", "v[1]"]}


def test_features_lie_one_after_another_and_numbers_alone_are_nan():
    assert feature_names(COLUMNS[1:3]) == ("job=cook", "job missing", "v[0]", "v[1]")
    assert void_places(COLUMNS) == (0, 6)
    assert void_places(COLUMNS[2:3]) == ()
