"""Compares methods under one protocol: the same partitions, start weights, batches and tuning budget for each."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning, keywords_of
from fedbench.errors import ConfigError
from fedbench.jobs import folder_locks, run_state
from fedbench.methods import METHODS, checked_options, full_key, load, symbols
from fedbench.report.typeset import join_words
from fedbench.results.contrasts import too_few
from fedbench.results.plan import Plan
from fedbench.results.remarks import with_label
from fedbench.results.settings_file import Setting, SettingsFile, settings_of
from fedbench.studies.compared_methods import (
    BASELINES,
    ComparedMethod,
    Methods,
    method_names,
    require_distinct,
)
from fedbench.studies.cost import steps_of
from fedbench.studies.listed_space import spaces_of
from fedbench.studies.run_studies import StudyWatch, run_studies
from fedbench.studies.same_runs import refuse_same_methods, refuse_same_settings
from fedbench.studies.settings import OPTION, checked_settings, has_option, in_setting, is_option, pairs_of
from fedbench.studies.space import Space
from fedbench.studies.study_result import StudyResult
from fedbench.studies.tuning_study import TuningStudy
from fedbench.studies.validation_size import require_validation
from fedbench.tracking.loggers import log_page
from fedbench.user_code.files import hash_of


class Comparison(StudyResult):
    """The result of a comparison.

    `table` has a row per method, the best first; over settings, one per method and setting.
    """


@keywords_of(ComparisonTuning)
def compare(
    config: Config | Mapping[str, Any],
    methods: Methods,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    space: Mapping[str, Any] | str | None = None,
    trials: int | None = None,
    watch: StudyWatch | None = None,
    **tuning: Any,
) -> Comparison:
    """Run a comparison, or its missing part, and write its page and tables. Raises ConfigError before any run.

    methods: `NAME`, `NAME:key=value,...` for a variant, `package.module:Class` or the class itself; local, centralized
    and fedavg-ft are always included. over: values by key, `{"partition.alpha": [0.1, 0.5]}`: compare in every
    combination; values of `data`, `partition`, `model` and `aggregator` may be objects. An option,
    `{"method.tau": [0.1, 0.5]}`, is that of the one compared method that has it, or of all.
    space: values or distributions of Ray Tune by key for all methods, or for one, `{"fedper:train.lr": [0.01, 0.1]}`;
    `paper` for the grids of the methods' papers, if they name one; by default each method's own. tuning: the keys of
    `ComparisonTuning`, such as tune=6, budget_steps=True, or until_decided=True, margin=1. Final runs have the seeds of
    the configuration, by default 0 to 9. trials: how many runs go side by side at most, by default as many as fit.

    >>> small = {"rounds": 1, "seeds": [0], "resources": {"hosts": 0}}
    >>> result = compare(small, ["fedper"], tune=0, trials=1)
    >>> sorted(result.table["method"])
    ['centralized', 'fedavg-ft', 'fedper', 'local']
    """
    how = ComparisonTuning(**tuning)
    if isinstance(methods, Config):
        raise ConfigError("compare: the configuration comes first, then the methods: compare(config, methods)")
    config = Config.of(config)
    studies, matrix, folder = plan_comparisons(config, method_names(methods), how, over, space)
    if how.stopping_rule is None and (line := too_few(len(studies[0].config.seeds))):
        logging.getLogger("fedbench").warning(with_label(line))
    if matrix is None:
        run_studies(studies, trials, watch, how.max_hours)
        return Comparison(folder)
    run_state.refuse_other_results(folder, "compare --over")
    with folder_locks.writable(folder):
        new = run_studies(studies, trials, watch, how.max_hours)
        matrix.write(folder)
    from fedbench.report import make_report

    make_report(folder)
    if new:
        log_page(folder, config)
    return Comparison(folder)


def plan_comparisons(
    config: Config,
    methods: Sequence[str],
    tuning: ComparisonTuning,
    over: Mapping[str, Sequence[Any]] | None = None,
    space: Mapping[str, Any] | str | None = None,
) -> tuple[list[TuningStudy], SettingsFile | None, Path]:
    """The comparison in every setting, not run yet, and its folder. Raises ConfigError."""
    over = checked_settings(over) if over else {}
    config = tuning.with_final_seeds(config)
    if space is not None and tuning.tune == 0:
        raise ConfigError(
            f"space = {space}: without effect with tune = 0, which tries no candidates; leave one of them out"
        )
    root = (config.out or Path("results")).absolute()
    spec = ComparisonSpec([ComparedMethod.parse(text) for text in methods], tuning, root, space)
    require_distinct(spec.compared)
    check_named_options(config, spec.compared)
    folder = config.out or root / "compare" / (config.name or _name(config, spec, over))
    if not over:
        study = spec.study(config, folder)
        refuse_same_methods(study)
        return [study], None, folder
    spec.check_settings(over)
    matrix = SettingsFile(config.model_dump(mode="json"), over, settings_of(over))
    studies = [spec.in_setting(s).study(in_setting(config, s), folder / s.path, s.name) for s in matrix.settings]
    refuse_same_methods(studies[0])
    refuse_same_settings(studies)
    return studies, matrix, folder


@dataclass(frozen=True)
class ComparisonSpec:
    """The compared methods and their tuning in every setting. space: as given to `compare`."""

    compared: Sequence[ComparedMethod]
    tuning: ComparisonTuning
    root: Path
    space: Mapping[str, Any] | str | None = None

    def check_settings(self, over: Mapping[str, Sequence[Any]]) -> None:
        """Raises ConfigError for a key that a compared method sets too, or one that is given twice under two names.

        An option must be that of exactly one of the compared methods, or of all.
        """
        for key in filter(is_option, over):
            takers = [method for method in self.compared if has_option(method, key)]
            if not takers or 1 < len(takers) < len(self.compared):
                who = ", ".join(method.label for method in takers) or "none"
                raise ConfigError(
                    f"over: {key}: exactly one of the compared methods must have this option, or all of them; here "
                    f"{who} {'have' if takers else 'has'} it; variants go into --methods as NAME:key=value"
                )
        for method in self.compared:
            seen = dict[str, str]()
            for key, values in over.items():
                for whole in {full_key(method.name, own) for value in values for own in pairs_of(key, value)}:
                    if whole in method.fixed:
                        raise ConfigError(f"over: {key}: {method.label} sets {whole} too; leave it out there")
                    if seen.setdefault(whole, key) != key:
                        raise ConfigError(f"over: {seen[whole]} and {key}: both set {whole}; leave one of them out")

    def in_setting(self, setting: Setting) -> "ComparisonSpec":
        """With the options of a setting at the methods that have them."""
        options = {key: value for key, value in setting.values.items() if is_option(key)}
        compared = [
            replace(method, fixed={**method.fixed, **own})
            for method in self.compared
            for own in [{full_key(method.name, k): v for k, v in options.items() if has_option(method, k)}]
        ]
        return replace(self, compared=compared)

    def study(self, config: Config, folder: Path, setting: str = "") -> TuningStudy:
        """The comparison in one setting. Raises ConfigError."""
        named = [method.label for method in self.compared]
        compared = [*self.compared, *(ComparedMethod.baseline(name) for name in BASELINES if name not in named)]
        counts: dict[str, int] = {}
        if self.tuning.tune != 0:
            require_validation(config, "a comparison", ", or try no candidates with --tune 0")
            spaces = spaces_of(compared, self.space, config)
            counts = self.counts(compared, config, spaces)
            compared = [
                method.tuned_over(spaces[method.label], config, counts[method.label], self.tuning)
                for method in compared
            ]
        tuning, budgets = self.tuning, counts if self.tuning.budget_steps else {}
        plan = Plan("compare", None, config.model_dump(mode="json"), [], budgets=budgets, **tuning.as_plan())
        return TuningStudy(plan, config, compared, folder, self.root, tuning.tune_seeds, tuning.final_val, setting)

    def counts(self, compared: Sequence[ComparedMethod], config: Config, spaces: Mapping[str, Space]) -> dict[str, int]:
        """Number of points of each method: equal, or fewer for methods whose runs make more gradient steps."""
        most = self.tuning.tune or self.tuning.samples
        if most is None:
            every = [method.tuned_over(spaces[method.label], config, None, self.tuning) for method in compared]
            most = min(len(method.points) for method in every)
        if not self.tuning.budget_steps:
            return {method.label: most for method in compared}
        steps = {method.label: steps_of(method.config(config)) for method in compared}
        # One model on pooled data makes few steps for many clients, so it sets no standard.
        least = min(steps[e.label] for e in compared if not e.is_pooled(config))
        return {label: max(1, round(most * min(1.0, least / max(1, own)))) for label, own in steps.items()}


def check_named_options(config: Config, compared: Sequence[ComparedMethod]) -> None:
    """Raises ConfigError for options of no compared method, unless they are at their defaults.

    They have to come with the name of their method: in --methods, or with a method that is compared.
    """
    own = config.method
    named, fields = "name" in own.model_fields_set, load(own.name).Options.model_fields
    if named and own.name in {*BASELINES, *(method.name for method in compared)}:
        checked_options(own)
        return
    for key, value in own.options.items():
        whole = full_key(own.name, f"{OPTION}{key}")
        known = fields.get(whole.removeprefix(OPTION))
        if known is None or value != known.get_default(call_default_factory=True):
            takers = [method.label for method in compared if has_option(method, whole)]
            who = f"{join_words(takers)} {'has' if len(takers) == 1 else 'have'} it" if takers else owners_text(key)
            which = f"{own.name} is not compared;" if named else "for which method?"
            raise ConfigError(
                f"method.{key} = {value}: {which} write NAME:{key}={value} in --methods where it applies ({who}), or "
                "leave it out"
            )
    checked_options(own)


def owners_text(key: str) -> str:
    """The methods that have an option, in words, where no compared method has it."""
    owners = [name for name, kind in METHODS.loadable() if key in {*kind.Options.model_fields, *symbols(kind.Options)}]
    return f"no compared method has it, but {join_words(owners)}" if owners else "no method has it"


def without_method(config: Config, methods: Sequence[str]) -> tuple[Config, str | None]:
    """A preset's configuration without a method that is not compared, and a line about it. Raises ConfigError."""
    own, names = config.method, [ComparedMethod.parse(text).name for text in methods]
    if own.name in {*BASELINES, *names} or "method" not in config.model_fields_set:
        return config, None
    tree = config.given()
    del tree["method"]
    options = "".join(f", {key} = {value}" for key, value in own.options.items())
    return Config(**tree), f"left out, because {own.name} is not compared: method = {own.name}{options} of the preset"


def _name(config: Config, spec: ComparisonSpec, over: Mapping[str, Sequence[Any]]) -> str:
    names = [(method.label, method.fixed) for method in spec.compared]
    tuning = spec.tuning
    known: tuple[Any, ...] = (config.key(), names, tuning.tune, tuning.point, tuning.final_val, dict(over))
    if tuning.search != "grid" or tuning.budget_steps or spec.space:
        # A search with more samples uses the same folder.
        space = Space(dict(spec.space)).as_text() if isinstance(spec.space, Mapping) else spec.space is not None
        known += (tuning.search, tuning.budget_steps, space)
    where = f"{len(settings_of(over))}-settings" if over else config.data.name.rpartition("/")[2]
    return f"{len(names)}-methods-{where}-{hash_of(known)[:8]}"
