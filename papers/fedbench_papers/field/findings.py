"""What the field says: a paragraph per finding, each with the test behind it, made of the record alone."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd
from scipy import stats

from fedbench.config.words import plural
from fedbench.report.typeset import join_words, p_text
from fedbench.results.settings_summary import ranking, signed_rank
from fedbench.results.statistics import LEAST_SEEDS
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import SIGNS, is_clear
from fedbench_papers.field.measures import FINE_TUNED
from fedbench_papers.field.standings import PLAIN, Field, Standing, kind_of

LEAST_SETTINGS = 4
"""Fewest settings, or methods, over which a rank correlation or a signed-rank test is made."""
LEAST_METHODS = 3
"""Fewest methods that are ranked."""
OF_PAPERS = {"CO-PFL": "co-pfl", "FedOBP": "fedobp", "FedCAC": "fedcac", "FedMosaic": "fedmosaic"}
"""The papers whose claims are tested beside the field, and their methods."""
OF_SETTING = (
    "The verdicts of a setting hold together for all its methods, with 95 %; those of several settings are not "
    "corrected for their number."
)
FIXED = (
    "Student t intervals over seeds and test samples, corrected for all methods of a setting and all looks "
    "(Bonferroni); settings are not corrected for their number."
)
PICKED = "The best are picked on test, which flatters them; some settings share their data set."


@dataclass(frozen=True)
class Finding:
    """title: a question; text: the answer; test: what stands behind it."""

    title: str
    text: str
    test: str


def findings(field: Field) -> list[Finding]:
    """Those that the recorded settings allow."""
    return [finding for question in QUESTIONS for finding in question(field)]


def where_collaboration_pays(field: Field) -> Iterator[Finding]:
    pays = {setting: better_than_local(field, setting) for setting in field.settings}
    named = {name: better for name, better in pays.items() if better}
    without = [field.title(name) for name, better in pays.items() if not better]
    text = f"In {len(named)} of {plural(len(pays), 'setting')} a method was shown to be better than local training."
    if named:
        top = max((one for better in named.values() for one in better), key=gain_over_local)
        assert top.over_local is not None
        where, points = field.title(top.setting), top.over_local.text()
        text += f" The largest gain that was shown is that of {top.method} in '{where}': {points} points; as the "
        text += "largest of many it is flattered."
        counts = [
            f"{field.title(name)} {len(better)} of {len(field.rivals(name)) - 1}{copies_among(field, better)}"
            for name, better in named.items()
        ]
        text += f" Methods that are better: {'; '.join(counts)}."
    if without:
        text += f" In {join_words(without)} none was."
    yield Finding("Where does collaboration pay?", text, OF_SETTING)


def better_than_local(field: Field, setting: str) -> list[Standing]:
    return [one for one in field.rivals(setting) if one.over_local is not None and one.over_local.is_better]


def copies_among(field: Field, standings: Sequence[Standing]) -> str:
    """How many of some methods of a setting are fedavg or local training there, in brackets; empty if none is."""
    kinds = Counter(plain for one in standings if (plain := field.same_as(one.setting, one.method)))
    named = [f"{number} of them {PLAIN[plain]} itself" for plain, number in kinds.items()]
    return f" ({', '.join(named)})" if named else ""


def gain_over_local(standing: Standing) -> float:
    return standing.over_local.mean if standing.over_local else 0.0


def shared_or_personal(field: Field) -> Iterator[Finding]:
    differences = {}
    for setting in field.settings:
        shared, personal = field.best_of(setting, "shared"), field.best_of(setting, "personal")
        if shared and personal and (ahead := field.difference(setting, personal.method, shared.method)) is not None:
            differences[setting] = ahead
    if not differences:
        return
    above = sum(value > 0 for value in differences.values())
    shared_first = [field.title(setting) for setting, value in differences.items() if value <= 0]
    text = f"The best personal method is ahead of the best shared one in {above} of "
    text += f"{plural(len(differences), 'setting')}, by {100 * median(differences.values()):.1f} points in the median."
    text += f" One model for all is ahead in {join_words(shared_first)}." if shared_first else ""
    kinds = Counter(kind_of(method) for method in field.competing)
    test = "Too few settings for a test."
    if len(differences) >= LEAST_SETTINGS:
        zero = pd.Series(0.0, index=[*differences])
        test = f"Wilcoxon's signed-rank test over settings: p {p_text(signed_rank(pd.Series(differences), zero))}."
    test += f" The best of {kinds['personal']} personal methods against that of {kinds['shared']} shared ones, both "
    test += "picked on test: the larger number favours the personal ones."
    yield Finding("One model for all, or one for each?", text, test)


def what_heterogeneity_does(field: Field) -> Iterator[Finding]:
    points = []
    for setting in field.settings:
        distance, best = field.about(setting)["heterogeneity"], field.best_of(setting, "personal")
        gain = None if best is None else field.difference(setting, best.method, BASELINE)
        if distance is not None and gain is not None:
            points.append((distance, gain))
    if len(points) < LEAST_SETTINGS or any(len({*axis}) < 2 for axis in zip(*points, strict=True)):
        return
    rho, p = stats.spearmanr(*zip(*points, strict=True))
    direction = "smaller" if rho < 0 else "larger"
    text = (
        f"The more clients' classes differ, the {direction} is the gain of the best personal method over local "
        f"training (rank correlation {rho:+.2f})."
        if is_clear(p)
        else "No relation is shown between how far clients' classes differ and what the best personal method gains "
        f"over local training (rank correlation {rho:+.2f})."
    )
    test = f"Spearman's rank correlation over {len(points)} settings: p {p_text(float(p))}. {PICKED}"
    yield Finding("Does the gain grow with heterogeneity?", text, test)


def never_better_than_fine_tuning(field: Field) -> Iterator[Finding]:
    better: dict[str, list[str]] = {}
    worse: Counter[str] = Counter()
    for method in field.competing:
        own = [s for s in field.settings if not field.same_as(s, method)]
        known = {s: gain for s in own if (gain := field.gain(s, method, FINE_TUNED)) is not None}
        if known:
            better[method] = [s for s, gain in known.items() if gain.is_better]
            worse[method] = sum(gain.is_worse for gain in known.values())
    if not better:
        return
    never, some = [m for m, where in better.items() if not where], {m: w for m, w in better.items() if w}
    text = f"{len(never)} of {plural(len(better), 'method')} were in no setting shown to be better than {FINE_TUNED}"
    text += f", and {sum(worse[m] > 0 for m in never)} of these are worse somewhere."
    alike: dict[tuple[str, ...], list[str]] = {}
    for method, where in some.items():
        alike.setdefault(tuple(where), []).append(method)
    for places, methods in sorted(alike.items(), key=lambda pair: -len(pair[0])):
        text += f" Better in {'; '.join(map(field.title, places))}: {', '.join(methods)}."
    if never:
        text += f" Nowhere: {', '.join(never)}."
    if copies(field):
        text += " Where a method is fedavg or local training itself, it is not counted."
    yield Finding(f"Which methods are better than {FINE_TUNED}?", text, FIXED)


def what_is_a_plain_method(field: Field) -> Iterator[Finding]:
    """The methods that are fedavg or local training in a setting."""
    known = copies(field)
    if not known:
        return
    named = []
    for (method, plain), where in known.items():
        places = "every setting" if len(where) == len(field.settings) else "; ".join(map(field.title, where))
        named.append(f"{method} is {PLAIN[plain]} in {places}.")
    text = "By the values that tuning chose, or by the setting, some methods do what a plain one does, so that what is "
    text += f"said of them there is said of that one. {' '.join(named)}"
    test = f"The same scores to the bit in every seed that both have, {LEAST_SEEDS} at least, after aggregation and "
    test += "after another local training; of newcomers their own scores."
    yield Finding("Which methods are fedavg or local training themselves?", text, test)


def copies(field: Field) -> dict[tuple[str, str], list[str]]:
    """By method and plain method, the settings in which it is that one."""
    known: dict[tuple[str, str], list[str]] = {}
    for setting, method in field.standings:
        if plain := field.same_as(setting, method):
            known.setdefault((method, plain), []).append(setting)
    return dict(sorted(known.items()))


def what_turns_with_the_point(field: Field) -> Iterator[Finding]:
    changed, turned, count = list[str](), list[str](), 0
    for (setting, method), standing in field.standings.items():
        other = {"after_agg": "after_fit", "after_fit": "after_agg"}.get(field.point(setting))
        now = standing.over_local
        then = None if other is None else field.gain(setting, method, BASELINE, other)
        if now is None or then is None or method not in field.competing:
            continue
        count += 1
        one, two = SIGNS.get(now.relation, 0), SIGNS.get(then.relation, 0)
        if one != two:
            changed.append(method)
        if one * two < 0:
            turned.append(f"{method} in {field.title(setting)}")
    if not count:
        return
    text = f"Of {count} verdicts against local training {len(changed)} differ between the two points, after "
    text += f"aggregation and after another local training, and {len(turned)} turn round" + (
        f": {'; '.join(turned)}." if turned else "."
    )
    common = [f"{name} ({number})" for name, number in Counter(changed).most_common(5)]
    text += f" Most often: {', '.join(common)}." if common else ""
    yield Finding("What turns with the evaluation point?", text, FIXED)


def the_worst_tenth(field: Field) -> Iterator[Finding]:
    up, down = list[str](), list[str]()
    for setting in field.settings:
        for one in better_than_local(field, setting):
            change = field.difference(setting, one.method, BASELINE, "worst_tenth")
            if change is not None:
                (down if change < 0 else up).append(f"{one.method} in {field.title(setting)}")
    if not up and not down:
        return
    text = "Where a method is better than local training on average, the worst tenth of clients is better off, "
    text += f"or as well, in {len(up)} of {len(up) + len(down)} cases" + (
        f", but not with {'; '.join(down[:8])}." if down else "."
    )
    test = "Counted, not tested: the methods of a setting share its clients and its local training."
    yield Finding("Do the worst-off clients gain?", text, test)


def cost_and_gain(field: Field) -> Iterator[Finding]:
    points = field.costs_and_gains(field.settings)
    if len(points) < LEAST_SETTINGS or any(len({*axis}) < 2 for axis in zip(*points.values(), strict=True)):
        return
    rho, p = stats.spearmanr(*zip(*points.values(), strict=True))
    slow = sorted(points, key=lambda method: -points[method][0])[:3]
    least, most = min(ratio for ratio, _ in points.values()), max(ratio for ratio, _ in points.values())
    text = f"Methods take {least:.1f} to {most:.1f} times the processor time of {FINE_TUNED} (most: "
    text += f"{', '.join(f'{method} {points[method][0]:.1f}' for method in slow)}). "
    text += (
        f"Slower ones gain {'more' if rho > 0 else 'less'} (rank correlation {rho:+.2f})."
        if is_clear(p)
        else f"No relation is shown between what a method takes and what it gains (rank correlation {rho:+.2f})."
    )
    test = (
        f"Spearman's rank correlation over the {len(points)} methods that run in every setting: p {p_text(float(p))}."
    )
    yield Finding("Does it pay to spend more?", text, f"{test} Methods share clients and seeds, so that p is rough.")


def over_all_settings(field: Field) -> Iterator[Finding]:
    everywhere = [m for m in field.competing if len(field.of_method(m)) == len(field.settings)]
    if len(field.settings) < LEAST_SETTINGS or len(everywhere) < LEAST_METHODS:
        return
    gains = {m: {s: field.difference(s, m, BASELINE) for s in field.settings} for m in everywhere}
    ranks = ranking(pd.DataFrame(gains).astype(float), higher=True)
    first = [f"{method} ({ranks.ranks[method]:.1f})" for method in [*ranks.ranks][:5]]
    apart = sum(is_clear(value) for value in ranks.pairs.values())
    text = f"Of the {len(everywhere)} methods that run in every setting, the best mean ranks are those of "
    text += f"{join_words(first)}. {apart} of {len(ranks.pairs)} pairs are told apart over settings"
    if not apart and not is_clear(ranks.finest):
        text += (
            f", which {plural(len(field.settings), 'setting')} cannot do: p of a pair is {ranks.finest:.2g} at least"
        )
    p = 1.0 if ranks.friedman is None else ranks.friedman
    test = (
        f"Friedman's test that all are alike: p {p_text(p)}; pairs by Wilcoxon's signed-rank test, corrected by Holm."
    )
    yield Finding("Is there a best method over all settings?", f"{text}.", test)


def of_the_papers(field: Field) -> Iterator[Finding]:
    lines = [line for paper, method in OF_PAPERS.items() if (line := paper_line(field, paper, method))]
    if lines:
        yield Finding("And the four papers whose claims are tested here?", " ".join(lines), f"{OF_SETTING} {FIXED}")


def paper_line(field: Field, paper: str, method: str) -> str:
    """How a paper's method stands, in a few sentences; empty if it was not compared.

    Settings in which it is fedavg or local training are named and not counted.
    """
    standings = field.of_method(method)
    if not standings:
        return ""
    plain = {one.setting: field.same_as(one.setting, method) for one in standings}
    judged = [one for one in standings if one.may_be_best is not None and not plain[one.setting]]
    text = f"{paper}:"
    if not any(plain.values()):
        text += f" judged in none of {plural(len(standings), 'setting')}, for the reasons that the page names."
    if judged:
        local = Counter(one.over_local.relation for one in judged if one.over_local is not None)
        gains = (field.gain(one.setting, method, FINE_TUNED) for one in judged)
        tuned = Counter(gain.relation for gain in gains if gain is not None)
        best = [field.title(one.setting) for one in judged if one.may_be_best]
        text = f"{paper}: in {plural(len(judged), 'setting')} where it was judged, better than local training in "
        text += f"{local['better']} and worse in {local['worse']}, better than {FINE_TUNED} in {tuned['better']} and "
        text += f"worse in {tuned['worse']}; "
        text += f"among the possible best in {'; '.join(best)}." if best else "nowhere among the possible best."
    for name, words in PLAIN.items():
        if where := [field.title(setting) for setting, same in plain.items() if same == name]:
            text += f" Not counted, because it is {words} there, with the same scores in every seed: "
            text += f"{'; '.join(where)}."
    return text


QUESTIONS: Sequence[Callable[[Field], Iterator[Finding]]] = (
    where_collaboration_pays,
    shared_or_personal,
    what_heterogeneity_does,
    over_all_settings,
    never_better_than_fine_tuning,
    what_is_a_plain_method,
    what_turns_with_the_point,
    the_worst_tenth,
    cost_and_gain,
    of_the_papers,
)
"""In the order of the page."""
