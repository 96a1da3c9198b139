"""The data of a report: the study and the leaderboard of every setting, read once.

A study without settings is a study with one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from fedbench.errors import ConfigError
from fedbench.report.leaderboard import LeaderboardRow, leaderboard
from fedbench.report.study import Study
from fedbench.results.plan import PLAN_FILE, is_study
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.settings_file import Setting, SettingsFile, is_matrix
from fedbench.results.settings_summary import Ranking, SettingsSummary, over_settings, ranking

ALONE = SettingsFile({}, {}, [Setting("", {}, ".")])
"""The settings of a study that has none."""


@dataclass(frozen=True)
class SettingsStudy:
    """The results of a study or a run by setting, without settings by "". begun: the studies of all that have begun."""

    folder: Path
    file: SettingsFile
    begun: Mapping[str, Study]

    @classmethod
    def load(cls, folder: Path, first: Sequence[str] = ()) -> "SettingsStudy":
        """Reads a folder. first: methods that get a colour first.

        Raises ConfigError if it holds neither a study nor a run, or if what it holds is damaged.
        """
        if not is_matrix(folder):
            return cls(folder, ALONE, {"": Study.load(folder, first)})
        file = SettingsFile.read(folder)
        begun = {s.name: Study.load(folder / s.path, first) for s in file.settings if is_study(folder / s.path)}
        if not begun and file.settings:
            raise ConfigError(f"{folder}: no setting has a {PLAN_FILE}; bring them back, or repeat the command")
        return cls(folder, file, begun)

    @cached_property
    def boards(self) -> dict[str, dict[str, LeaderboardRow]]:
        """The leaderboards of the settings with evaluations, by label."""
        boards = {name: {row.label: row for row in leaderboard(study)} for name, study in self.begun.items()}
        return {name: board for name, board in boards.items() if board}

    @cached_property
    def studies(self) -> Mapping[str, Study]:
        """The studies of the settings with evaluations; without settings the study."""
        return {name: self.begun[name] for name in self.boards} if self.has_settings else self.begun

    @property
    def has_settings(self) -> bool:
        return self.file is not ALONE

    @property
    def settings(self) -> list[Setting]:
        """The settings with evaluations."""
        return [setting for setting in self.file.settings if setting.name in self.boards]

    @property
    def first_study(self) -> Study:
        return next(iter(self.studies.values()))

    @property
    def rows(self) -> list[LeaderboardRow]:
        """The leaderboard of a study without settings, if it compares methods: a grid does where it adds seeds."""
        study = self.first_study
        compares = study.plan.subject is None or study.sequential_test is not None
        return [*self.boards.get("", {}).values()] if compares else []

    @property
    def is_sequential(self) -> bool:
        """Whether seeds are added in every setting until it is decided."""
        return bool(self.studies) and all(study.sequential_test is not None for study in self.studies.values())

    @cached_property
    def sequential_tests(self) -> list[tuple[str, Study, SequentialTest]]:
        """Every setting's name, study and sequential test."""
        return [
            (name, study, study.sequential_test)
            for name, study in self.studies.items()
            if study.sequential_test is not None
        ]

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per setting and seed, one column per competing method, as recorded."""
        competing = [label for label in self.labels if label not in self.references]
        columns = {
            label: pd.concat({name: s.last_rows(label).set_index("seed")[s.test] for name, s in self.studies.items()})
            for label in competing
        }
        return pd.DataFrame(columns)

    @cached_property
    def labels(self) -> list[str]:
        """Methods that were evaluated in every setting."""
        boards = list(self.boards.values())
        return [label for label in boards[0] if all(label in board for board in boards)] if boards else []

    @cached_property
    def references(self) -> set[str]:
        """The methods that do not compete."""
        return {label for study in self.begun.values() for label in study.plan.references}

    @cached_property
    def ranking(self) -> Ranking:
        return ranking(self.scores, self.first_study.metric.higher)

    @cached_property
    def summary(self) -> SettingsSummary | None:
        """Gains over local training over all settings, in two settings or more."""
        return over_settings(self.scores, self.first_study.metric) if len(self.settings) > 1 else None

    @cached_property
    def ordered(self) -> list[str]:
        """By mean rank, references last; of sequential tests by the mean place in the settings' own orders.

        These have different numbers of seeds by method, which says who was hard to tell apart, so that ranks over the
        seeds that all have would be no test. Without settings, in the order of the study.
        """
        if not self.has_settings:
            return self.first_study.ordered
        if not self.is_sequential:
            return [*self.ranking.ranks, *(label for label in self.labels if label in self.references)]
        orders = [[label for label in board if label in self.labels] for board in self.boards.values()]
        places = {label: sum(order.index(label) for order in orders) for label in self.labels}
        return sorted(self.labels, key=lambda label: (label in self.references, places[label]))

    @property
    def known(self) -> list[str]:
        """The methods in order, without settings also those that have no score."""
        more = [] if self.has_settings else self.first_study.plan.labels()
        return [*dict.fromkeys([*self.ordered, *more])]
