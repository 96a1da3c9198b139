"""Settings by name, and as a file."""

import pytest

from fedbench.results.matrix import Matrix, is_matrix, settings_of

OVER = {"data": ["parquet:/sets/cifar10", "digits"], "partition.alpha": [0.1, 0.5]}


def test_every_combination_is_a_setting_with_a_folder():
    found = settings_of(OVER)
    assert [setting.name for setting in found] == [
        "data=cifar10,alpha=0.1",
        "data=cifar10,alpha=0.5",
        "data=digits,alpha=0.1",
        "data=digits,alpha=0.5",
    ]
    assert found[0].values == {"data": "parquet:/sets/cifar10", "partition.alpha": 0.1}
    assert found[3].path == "settings/data=digits,alpha=0.5"


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["A/p.json", "B/p.json"], ["path=A-p.json", "path=B-p.json"]),
        (["folder:a/x", "folder:b/x", "digits"], ["path=folder:a-x", "path=folder:b-x", "path=digits"]),
        (["/sets/a/", "/sets/b/"], ["path=a-", "path=b-"]),
        ([0.1, None, "x/0.2"], ["path=0.1", "path=none", "path=0.2"]),
        ([{"name": "iid"}, {"name": "file", "path": "a/b"}], ["path=iid", "path=(name=file,path=a-b)"]),
    ],
)
def test_different_values_have_different_names(values, names):
    found = settings_of({"partition.path": values})
    assert [setting.name for setting in found] == names
    assert [setting.path for setting in found] == [f"settings/{name}" for name in names]


def test_it_is_read_as_it_was_written(tmp_path):
    matrix = Matrix({"rounds": 3}, OVER, settings_of(OVER))
    assert not is_matrix(tmp_path)
    matrix.write(tmp_path)
    assert is_matrix(tmp_path)
    assert Matrix.read(tmp_path) == matrix
