"""The words and tables of a study over settings that adds seeds in each until it is decided."""

from collections.abc import Callable, Sequence

from fedbench.config.words import plural
from fedbench.report.answer import doubts, doubts_of_lead
from fedbench.report.leaderboard import LeaderboardRow
from fedbench.report.race import LOCAL_WORDS, margin_text, premises, race_next
from fedbench.report.study import Study
from fedbench.report.survey import Survey
from fedbench.report.typeset import Cell, join_words, sentence
from fedbench.results.race import Race
from fedbench.results.tables import BASELINE, REFERENCES

SCORES, AGAINST_LOCAL, WHO_IS_BEST = "Scores", "Against local training", "Who is best"
"""The tables, each with a column per setting."""
MATRIX_RACE_NOTE = (
    "scores with their number of seeds, which differ; bold: the best of its column, = may be the best, each by the "
    "verdict; differences with their simultaneous intervals; given up: the maximum of seeds would hardly decide it; "
    "withheld: it does not hold without an outlying seed, or there is a doubt, which the notes name"
)


def race_tables(survey: Survey) -> dict[str, list[list[Cell]]]:
    """The tables by name: one line per method, one column per setting."""
    cells: dict[str, Callable[[Study, Race, LeaderboardRow], Cell]] = {
        SCORES: _score,
        AGAINST_LOCAL: _against_local,
        WHO_IS_BEST: _who_is_best,
    }
    return {
        name: [
            [Cell(label), *(cell(study, race, survey.boards[setting][label]) for setting, study, race in races(survey))]
            for label in survey.ordered
            if name == SCORES or label not in (REFERENCES if name == WHO_IS_BEST else (BASELINE, *REFERENCES))
        ]
        for name, cell in cells.items()
    }


def races(survey: Survey) -> list[tuple[str, Study, Race]]:
    """Every setting's name, study and race."""
    return [(name, study, study.race) for name, study in survey.studies.items() if study.race is not None]


def _score(study: Study, race: Race, row: LeaderboardRow) -> Cell:
    assert row.verdicts is not None
    is_best = race.ending == "winner" and row.label == race.leader and not _doubt(study, race)
    may_be_best = race.look > 0 and race.ending != "winner" and row.label in race.candidates
    text = f"{study.metric.number(row.score.mean)} ({len(row.score.values)})"
    return Cell(text, int(is_best), may_be_best, row.tone)


def _against_local(study: Study, race: Race, row: LeaderboardRow) -> Cell:
    assert row.verdicts is not None
    _, interval, verdict, _, _ = row.verdicts.cells()
    return Cell(", ".join(filter(None, (interval, verdict))), tone=row.tone)


def _who_is_best(study: Study, race: Race, row: LeaderboardRow) -> Cell:
    assert row.verdicts is not None
    *_, interval, verdict = row.verdicts.cells()
    if race.ending == "winner" and row.label == race.leader and _doubt(study, race):
        verdict = "ahead of all, but in doubt"
    return Cell(", ".join(filter(None, (interval, verdict))))


def _doubt(study: Study, race: Race) -> str:
    """Why the winner of a race is not named."""
    return doubts_of_lead(study, race.leader or "", [*race.out])


def race_matrix_answer(survey: Survey) -> str:
    """The answer of every setting in one sentence; settings with the same answer are named together."""
    said: dict[str, list[str]] = {}
    for name, study, race in races(survey):
        said.setdefault(_setting_answer(study, race), []).append(name)
    return f"{sentence('; '.join(words.format(join_words(names)) for words, names in said.items()))}."


def _setting_answer(study: Study, race: Race) -> str:
    """The answer of a setting, with a place for its name."""
    leader, rest, margin = race.leader or "", join_words(race.candidates[1:]), margin_text(study)
    if not race.look:
        return "in {} nothing is decided yet" if race.needs else "in {} nothing can be decided"
    if race.ending == "winner":
        doubt = _doubt(study, race)
        return f"in {{}} {leader} beats all others, but {doubt}" if doubt else f"in {{}} {leader} is the best"
    if race.ending == "tie":
        return f"in {{}} {leader} is the best, equal to it within {margin}: {rest}"
    if race.ending == "within":
        return f"in {{}} {leader} is best or within {margin} of the best, and {rest} may be better"
    known = f"{join_words(race.candidates)} may be the best"
    return f"in {{}} it is undecided: {known}" if race.is_over else f"in {{}} it is not decided yet: {known}"


def race_matrix_notes(survey: Survey) -> list[str]:
    """The lines under the answer: who is better than local training where, what is not over, and the guarantee."""
    every, margin, lines = races(survey), margin_text(survey.first_study), list[str]()
    for verdict, words in LOCAL_WORDS.items():
        fine: dict[str, list[str]] = {}
        doubtful: dict[tuple[str, str], list[str]] = {}
        for name, study, race in every:
            for method, told in race.over_local.items():
                if told.verdict == verdict and (doubt := doubts(study, method, BASELINE, told.bound.mean)):
                    doubtful.setdefault((method, doubt), []).append(name)
                elif told.verdict == verdict:
                    fine.setdefault(method, []).append(name)
        if fine:
            together: dict[tuple[str, ...], list[str]] = {}
            for method in sorted(fine, key=lambda method: (-len(fine[method]), survey.ordered.index(method))):
                together.setdefault(tuple(fine[method]), []).append(method)
            shown = [
                f"{join_words(them)} in {_settings_in_words(names, len(every))}" for names, them in together.items()
            ]
            lines.append(f"{sentence(words.format(margin=margin))}: {'; '.join(shown)}.")
        for (method, doubt), names in doubtful.items():
            lines.append(f"{method} in {join_words(names)}: {words.format(margin=margin)}, but {doubt}.")
    for name, _, race in every:
        if race.needs and race.look:
            lines.append(f"Stopped in {name} before it was decided; the same command continues with {race_next(race)}.")
    return [*lines, guarantee(survey)] if any(race.look for _, _, race in every) else lines


def _settings_in_words(names: Sequence[str], settings: int) -> str:
    return "every setting" if len(names) == settings > 1 else join_words(list(names))


def guarantee(survey: Survey) -> str:
    """What the verdicts of the settings promise."""
    settings = len(races(survey))
    several = f" and of all {settings} together with at most {min(100, 5 * settings)}\u00a0%" if settings > 1 else ""
    return (
        f"95\u00a0% for each setting: the statements of one setting, over all its looks, are false with a probability "
        f"of at most 5\u00a0%{several}, {premises(survey.first_study)}. The intervals of a setting are simultaneous. A "
        "study that stops early tends to exaggerate differences."
    )


def race_subtitle(survey: Survey) -> str:
    """The rules of the races, fixed beforehand."""
    rules = survey.first_study.plan.race or {}
    return f"margin {margin_text(survey.first_study)}, at most {plural(int(rules['most']), 'seed')}"
