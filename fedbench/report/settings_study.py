"""The data of a report over settings: the study and the leaderboard of every setting, read once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from fedbench.errors import ConfigError
from fedbench.report.leaderboard import LeaderboardRow, leaderboard
from fedbench.report.study import Study
from fedbench.results.plan import PLAN_FILE, is_study
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.settings_file import Setting, SettingsFile
from fedbench.results.settings_summary import Ranking, SettingsSummary, over_settings, ranking
from fedbench.results.tables import REFERENCES


@dataclass(frozen=True)
class SettingsStudy:
    """The results of a study over settings: its study and leaderboard by setting."""

    folder: Path
    matrix: SettingsFile
    studies: dict[str, Study]
    boards: dict[str, dict[str, LeaderboardRow]]

    @classmethod
    def load(cls, folder: Path, first: Sequence[str] = ()) -> "SettingsStudy":
        """Reads a folder; settings without evaluations are left out. first: methods that get a colour first."""
        matrix = SettingsFile.read(folder)
        begun = [setting for setting in matrix.settings if is_study(folder / setting.path)]
        found = {setting.name: Study.load(folder / setting.path, first) for setting in begun}
        boards = {name: {row.label: row for row in leaderboard(study)} for name, study in found.items()}
        known = {name: board for name, board in boards.items() if board}
        if not begun and matrix.settings:
            raise ConfigError(f"{folder}: no setting has a {PLAN_FILE}; bring them back, or repeat the command")
        return cls(folder, matrix, {name: found[name] for name in known}, known)

    @property
    def settings(self) -> list[Setting]:
        return [setting for setting in self.matrix.settings if setting.name in self.boards]

    @property
    def first_study(self) -> Study:
        return next(iter(self.studies.values()))

    @property
    def is_race(self) -> bool:
        """Whether seeds are added in every setting until it is decided."""
        return bool(self.studies) and all(study.race is not None for study in self.studies.values())

    @cached_property
    def races(self) -> list[tuple[str, Study, SequentialTest]]:
        """Every setting's name, study and sequential test."""
        return [(name, study, study.race) for name, study in self.studies.items() if study.race is not None]

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per setting and seed, one column per competing method, as recorded."""
        found = {
            label: pd.concat({name: s.last_rows(label).set_index("seed")[s.test] for name, s in self.studies.items()})
            for label in self.labels
            if label not in REFERENCES
        }
        return pd.DataFrame(found)

    @cached_property
    def labels(self) -> list[str]:
        """Methods that were evaluated in every setting."""
        boards = list(self.boards.values())
        return [label for label in boards[0] if all(label in board for board in boards)] if boards else []

    @cached_property
    def ranking(self) -> Ranking:
        return ranking(self.scores, self.first_study.metric.higher)

    @cached_property
    def summary(self) -> SettingsSummary | None:
        """Gains over local training over all settings, in two settings or more."""
        return over_settings(self.scores, self.first_study.metric) if len(self.settings) > 1 else None

    @cached_property
    def ordered(self) -> list[str]:
        """By mean rank, references last; of races by the mean place in the settings' own orders.

        A race has different numbers of seeds by method, which says who was hard to tell apart, so that ranks over the
        seeds that all have would be no test.
        """
        if not self.is_race:
            return [*self.ranking.ranks, *(label for label in self.labels if label in REFERENCES)]
        orders = [[label for label in board if label in self.labels] for board in self.boards.values()]
        places = {label: sum(order.index(label) for order in orders) for label in self.labels}
        return sorted(self.labels, key=lambda label: (label in REFERENCES, places[label]))
