"""The settings of a study over settings are read once, without those that have no numbers."""

import json
import shutil

import pytest

from fedbench.errors import ConfigError
from fedbench.report.settings_study import SettingsStudy
from tests.report.test_settings_tables import write_matrix

LEVELS = {"local": 0.7, "fedper": 0.8}


def test_methods_and_settings_with_numbers(tmp_path):
    folder = write_matrix(tmp_path, LEVELS, {**LEVELS, "ditto": 0.9})
    found = SettingsStudy.load(folder)
    assert sorted(found.labels) == ["fedper", "local"]
    assert [setting.name for setting in found.settings] == list(found.studies)
    first = found.settings[0]
    plan = folder / first.path / "plan.json"
    tree = json.loads(plan.read_text())
    plan.write_text(json.dumps({**tree, "entries": [], "crc32": {}}))
    assert first.name not in SettingsStudy.load(folder).studies


def test_settings_that_are_all_gone_are_one_line(tmp_path):
    folder = write_matrix(tmp_path, LEVELS)
    shutil.rmtree(folder / "settings")
    with pytest.raises(ConfigError, match=r"no setting has a plan.json; bring them back, or repeat the command"):
        SettingsStudy.load(folder)
