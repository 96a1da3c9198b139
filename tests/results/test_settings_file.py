"""Settings by name, and as a file."""

import json

import pytest

from fedbench.errors import ConfigError
from fedbench.results.settings_file import SettingsFile, is_matrix, settings_of

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
    matrix = SettingsFile({"rounds": 3}, OVER, settings_of(OVER))
    assert not is_matrix(tmp_path)
    matrix.write(tmp_path)
    assert is_matrix(tmp_path)
    assert SettingsFile.read(tmp_path) == matrix


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": "."}, "settings: . is no folder inside that of the matrix"),
        ({"path": "../elsewhere"}, "settings: ../elsewhere is no folder inside that of the matrix"),
        ({"path": "/etc"}, "settings: /etc is no folder inside that of the matrix"),
        ({"values": {}}, "settings: alpha=0.1 has not exactly one value for each key of over"),
        ({"name": "alpha=1"}, "settings: two have the same name"),
        ({"path": "settings/alpha=1"}, "settings: two have the same path"),
    ],
)
def test_a_matrix_by_hand_that_makes_no_sense_is_one_line(tmp_path, change, said):
    over = {"partition.alpha": [0.1, 1]}
    SettingsFile({}, over, settings_of(over)).write(tmp_path)
    path = tmp_path / "matrix.json"
    tree = json.loads(path.read_text()) | {"crc32": {}}
    tree["settings"][0] |= change
    path.write_text(json.dumps(tree))
    with pytest.raises(ConfigError) as error:
        SettingsFile.read(tmp_path)
    assert str(error.value).startswith(f"{path}: damaged ({said}); bring the file back, or move it away and repeat")
