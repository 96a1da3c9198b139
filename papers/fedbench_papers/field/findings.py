"""What the field says: a paragraph per finding, each with the test behind it, made of the record alone."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import pandas as pd
from scipy import stats

from fedbench.config.words import plural
from fedbench.report.typeset import join_words, p_text
from fedbench.results.settings_summary import ranking
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import is_clear
from fedbench_papers.field.measures import FINE_TUNED
from fedbench_papers.field.standings import POOLED, Field

LEAST_SETTINGS = 4
"""Fewest settings over which a rank correlation or a signed-rank test is made."""
OF_PAPERS = {"CO-PFL": "co-pfl", "FedOBP": "fedobp", "FedCAC": "fedcac", "FedMosaic": "fedmosaic"}
"""The papers whose claims are tested beside the field, and their methods."""
EACH_TESTED = "Each verdict is that of its setting's test, whose intervals hold together for all methods."


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
    pays, best = {}, {}
    for setting in field.settings:
        better = [s for s in field.rivals(setting) if s.over_local is not None and s.over_local.is_better]
        pays[setting] = len(better)
        if better:
            best[setting] = better[0]
    named = [name for name, count in pays.items() if count]
    without = [field.title(name) for name, count in pays.items() if not count]
    text = f"In {len(named)} of {plural(len(pays), 'setting')} some method is better than local training."
    if best:
        top = max(best.values(), key=lambda s: s.over_local.mean if s.over_local else 0.0)
        assert top.over_local is not None
        where, points = field.title(top.setting), top.over_local.text()
        text += f" The largest gain is that of {top.method} in '{where}': {points} points."
        counts = [f"{field.title(name)} {pays[name]} of {len(field.rivals(name)) - 1}" for name in named]
        text += f" Methods that are better: {'; '.join(counts)}."
    if without:
        text += f" In none of {join_words(without)} is any method told to be better."
    yield Finding("Where does collaboration pay?", text, EACH_TESTED)


def shared_or_personal(field: Field) -> Iterator[Finding]:
    pairs = {s: (field.best_of(s, "shared"), field.best_of(s, "personal")) for s in field.settings}
    known = {s: (one, two) for s, (one, two) in pairs.items() if one is not None and two is not None}
    if not known:
        return
    differences = {s: two.score - one.score for s, (one, two) in known.items()}
    ahead = [s for s, value in differences.items() if value > 0]
    shared = [field.title(s) for s, value in differences.items() if value <= 0]
    text = f"The best personal method has the higher mean in {len(ahead)} of {plural(len(known), 'setting')}"
    text += f", by {100 * np.median([*differences.values()]):.1f} points in the median."
    if shared:
        text += f" One model for all is ahead in {join_words(shared)}."
    test = "Too few settings for a test."
    if len(known) >= LEAST_SETTINGS:
        p = float(stats.wilcoxon([*differences.values()]).pvalue)
        test = (
            f"Wilcoxon's signed-rank test over settings: p {p_text(p)}. Both are the best of several, chosen on test."
        )
    yield Finding("One model for all, or one for each?", text, test)


def what_heterogeneity_does(field: Field) -> Iterator[Finding]:
    points = []
    for setting in field.settings:
        distance, best = field.about(setting)["heterogeneity"], field.best_of(setting, "personal")
        local = field.standings.get((setting, BASELINE))
        if distance is not None and best is not None and local is not None:
            points.append((distance, best.score - local.score))
    if len(points) < LEAST_SETTINGS:
        return
    rho, p = stats.spearmanr(*zip(*points, strict=True))
    direction = "smaller" if rho < 0 else "larger"
    text = (
        f"The more clients' classes differ, the {direction} is the gain of the best personal method over local "
        f"training (rank correlation {rho:+.2f})."
        if is_clear(p)
        else f"How far clients' classes differ does not tell how much is gained (rank correlation {rho:+.2f})."
    )
    test = f"Spearman's rank correlation over {len(points)} settings: p {p_text(float(p))}."
    yield Finding("Does the gain grow with heterogeneity?", text, test)


def never_better_than_fine_tuning(field: Field) -> Iterator[Finding]:
    better: dict[str, list[str]] = {}
    worse: Counter[str] = Counter()
    for method in field.competing:
        if method in (FINE_TUNED, BASELINE):
            continue
        gains = {s: field.gain(s, method, FINE_TUNED) for s in field.settings}
        known = {s: gain for s, gain in gains.items() if gain is not None}
        if known:
            better[method] = [s for s, gain in known.items() if gain.is_better]
            worse[method] = sum(gain.is_worse for gain in known.values())
    if not better:
        return
    never, some = [m for m, where in better.items() if not where], {m: w for m, w in better.items() if w}
    text = f"{plural(len(never), 'method')} of {len(better)} are in no setting better than {FINE_TUNED}"
    text += f", and {sum(worse[m] > 0 for m in never)} of these are worse somewhere."
    if some:
        listed = [
            f"{m} ({'; '.join(field.title(s) for s in w)})" for m, w in sorted(some.items(), key=lambda x: -len(x[1]))
        ]
        text += f" Better somewhere: {', '.join(listed)}."
    if never:
        text += f" Never: {', '.join(never)}."
    test = "Paired t tests over seeds and test samples, all methods of a setting corrected together."
    yield Finding(f"Which methods are better than {FINE_TUNED}?", text, test)


def what_turns_with_the_point(field: Field) -> Iterator[Finding]:
    signs = {"better": 1, "worse": -1}
    changed, turned, count = list[str](), list[str](), 0
    for (setting, method), standing in field.standings.items():
        at = field.point(setting)
        other = {"after_agg": "after_fit", "after_fit": "after_agg"}.get(at)
        now = standing.over_local
        then = None if other is None else field.gain(setting, method, BASELINE, other)
        if now is None or then is None or method == POOLED:
            continue
        count += 1
        one, two = signs.get(now.relation, 0), signs.get(then.relation, 0)
        if one != two:
            changed.append(method)
        if one * two < 0:
            turned.append(f"{method} in {field.title(setting)}")
    if not count:
        return
    text = f"Of {count} verdicts against local training {len(changed)} are others after the fit than after aggregation"
    text += f", and {len(turned)} turn round" + (f": {'; '.join(turned)}." if turned else ".")
    common = [f"{name} ({n})" for name, n in Counter(changed).most_common(5)]
    text += f" Most often: {', '.join(common)}." if common else ""
    yield Finding("What turns with the evaluation point?", text, EACH_TESTED)


def the_worst_tenth(field: Field) -> Iterator[Finding]:
    up, down = list[str](), list[str]()
    for (setting, method), standing in field.standings.items():
        if standing.over_local is None or not standing.over_local.is_better or field.point(setting) == "newcomers":
            continue
        ours, local = (field.number(setting, m, "worst_tenth", field.point(setting)) for m in (method, BASELINE))
        if ours is not None and local is not None:
            (up if ours >= local else down).append(f"{method} in {field.title(setting)}")
    if not up and not down:
        return
    p = float(stats.binomtest(len(up), len(up) + len(down)).pvalue)
    text = "Where a method is better than local training on average, the worst tenth of clients is better off in "
    text += f"{len(up)} of {len(up) + len(down)} cases" + (f", but not with {'; '.join(down[:8])}." if down else ".")
    yield Finding(
        "Do the worst-off clients gain?", text, f"Sign test: p {p_text(p)}; methods of a setting share clients."
    )


def cost_and_gain(field: Field) -> Iterator[Finding]:
    points = {}
    for method in field.competing:
        ratios, gains = [], []
        for standing in field.of_method(method):
            ours, base = (field.number(standing.setting, m, "seconds") for m in (method, FINE_TUNED))
            if ours and base and standing.over_local is not None:
                ratios.append(ours / base)
                gains.append(standing.over_local.mean)
        if ratios:
            points[method] = (fmean(ratios), fmean(gains))
    if len(points) < LEAST_SETTINGS:
        return
    rho, p = stats.spearmanr(*zip(*points.values(), strict=True))
    slow = sorted(points, key=lambda m: -points[m][0])[:3]
    text = (
        f"Methods take {min(v[0] for v in points.values()):.1f} to {max(v[0] for v in points.values()):.1f} times the "
    )
    text += f"processor time of {FINE_TUNED} ({', '.join(f'{m} {points[m][0]:.1f}' for m in slow)}). "
    text += (
        f"Slower ones gain {'more' if rho > 0 else 'less'} (rank correlation {rho:+.2f})."
        if is_clear(p)
        else f"What a method takes does not tell what it gains (rank correlation {rho:+.2f})."
    )
    yield Finding(
        "Does it pay to spend more?",
        text,
        f"Spearman's rank correlation over {len(points)} methods: p {p_text(float(p))}.",
    )


def over_all_settings(field: Field) -> Iterator[Finding]:
    everywhere = [m for m in field.competing if len(field.of_method(m)) == len(field.settings)]
    if len(field.settings) < LEAST_SETTINGS or len(everywhere) < 3:
        return
    scores = pd.DataFrame({m: {s: field.standings[s, m].score for s in field.settings} for m in everywhere})
    ranks = ranking(scores, higher=True)
    first = [*ranks.ranks][:5]
    p = 1.0 if ranks.friedman is None else ranks.friedman
    apart = sum(is_clear(value) for value in ranks.pairs.values())
    text = f"Of the {len(everywhere)} methods that run in every setting, the best mean ranks are those of "
    text += join_words([f"{m} ({ranks.ranks[m]:.1f})" for m in first]) + ". "
    text += f"{apart} of {len(ranks.pairs)} pairs are told apart over settings" + (
        f": {plural(len(field.settings), 'setting')} are too few to rank so many methods." if not apart else "."
    )
    yield Finding(
        "Is there a best method over all settings?",
        text,
        f"Friedman's test: p {p_text(p)}; pairs by Wilcoxon, corrected by Holm.",
    )


def of_the_papers(field: Field) -> Iterator[Finding]:
    lines = [line for paper, method in OF_PAPERS.items() if (line := paper_line(field, paper, method))]
    if lines:
        yield Finding("And the four papers whose claims are tested here?", " ".join(lines), EACH_TESTED)


def paper_line(field: Field, paper: str, method: str) -> str:
    """How a paper's method stands, in a sentence; empty if it was not compared."""
    standings = field.of_method(method)
    if not standings:
        return ""
    relations = Counter(s.over_local.relation for s in standings if s.over_local is not None)
    tuned = [gain.relation for s in standings if (gain := field.gain(s.setting, method, FINE_TUNED)) is not None]
    best = [field.title(s.setting) for s in standings if s.may_be_best]
    text = (
        f"{paper}: of {plural(len(standings), 'setting')} better than local training in {relations['better']}, worse "
    )
    text += f"in {relations['worse']}; better than {FINE_TUNED} in {tuned.count('better')}, worse in "
    text += f"{tuned.count('worse')}; "
    return text + (
        f"it may be the best in {len(best)} ({', '.join(best)})." if best else "it is nowhere among the best."
    )


QUESTIONS: Sequence[Callable[[Field], Iterator[Finding]]] = (
    where_collaboration_pays,
    shared_or_personal,
    what_heterogeneity_does,
    over_all_settings,
    never_better_than_fine_tuning,
    what_turns_with_the_point,
    the_worst_tenth,
    cost_and_gain,
    of_the_papers,
)
"""In the order of the page."""
