"""The values that a user lists for a study, `--space` or `space=`: for all of its methods, or for one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedbench import methods, models
from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.studies.axis import SEARCHED, Axis, check_values
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.neighbours import LR
from fedbench.studies.space import Space

MODEL = "model."


@dataclass(frozen=True)
class ListedSpace:
    """for_all: values or distributions by key; for_one: those of single methods, by label and key.

    What is listed for a method is its whole space. A method that lacks an option listed for all keeps the rest of its
    own space beside the values, so that it has as many points as the others; a method for which nothing is listed has
    its own space.
    """

    for_all: Mapping[str, Any]
    for_one: Mapping[str, Mapping[str, Any]]

    @classmethod
    def parse(cls, by_name: Mapping[str, Any], compared: Sequence[ComparedMethod], config: Config) -> "ListedSpace":
        """From `{"train.lr": [...], "fedper:train.lr": [...]}`; a method's name stands for all its variants.

        Raises ConfigError.
        """
        check_values(by_name)
        for_all, for_one = dict[str, Any](), dict[str, dict[str, Any]]()
        kinds = [methods.load(method.name).Options for method in compared]
        options = {name for kind in kinds for name in (*kind.model_fields, *methods.symbols(kind))}
        for name, values in by_name.items():
            whose, _, key = name.rpartition(":")
            SEARCHED.check(key, options)
            takers = [method for method in compared if whose in (method.label, method.name)]
            if whose and not takers:
                known = ", ".join(method.label for method in compared)
                raise ConfigError(f"space: {name}: {whose} is none of the methods of this study: {known}")
            if whose and key.startswith(MODEL):
                raise ConfigError(f"space: {name}: the model is tuned alike for all methods; write {key} alone")
            if not whose:
                for_all[key] = values
            for method in takers:
                for_one.setdefault(method.label, {})[key] = values
        listed = cls(for_all, for_one)
        for key in for_all:
            if not any(_has(method, key) for method in compared):
                Space({key: for_all[key]}).check(compared[0].name)
                methods.checked_options(compared[0].config(config, {key: None}).method)
                raise ConfigError(f"space: {key}: none of the methods of this study has this option")
        for method in compared:
            for axes in (for_all, for_one.get(method.label, {})):
                space = Space(axes)
                space.check(method.name)
                space.with_own_names(method.name)
        check_model_keys(for_all, config)
        return listed

    def _axes(self, method: ComparedMethod) -> dict[str, Any]:
        shared = {key: values for key, values in self.for_all.items() if _has(method, key)}
        return {methods.full_key(method.name, key): values for key, values in shared.items()} | {
            methods.full_key(method.name, key): values for key, values in self.for_one.get(method.label, {}).items()
        }

    def of(self, method: ComparedMethod) -> Space:
        """The space of a method. Raises ConfigError if it has none."""
        axes = self._axes(method)
        if axes and all(_has(method, key) for key in self.for_all):
            return replace(Space.given_for(method.name, axes), listed=(*axes,))
        own = Space.of(method.name).with_own_names(method.name)
        return replace(own, axes={**own.axes, **axes}, listed=(*axes,))

    def refuse_useless(self, compared: Sequence[ComparedMethod], config: Config) -> None:
        """Raises ConfigError for a listed key that has no effect on any of the methods for which it is listed."""
        for key in dict.fromkeys([*self.for_all, *(key for own in self.for_one.values() for key in own)]):
            takers = [method for method in compared if methods.full_key(method.name, key) in self._axes(method)]
            why = [method.without_effect(self._axes(method), config).get(key, "") for method in takers]
            if why and all(why):
                instead = "; list train.lr_scale instead" if key == LR and "configure_optimizers" in why[0] else ""
                raise ConfigError(f"space: {key}: without effect, leave it out: {why[0]}{instead}")


def _has(method: ComparedMethod, key: str) -> bool:
    """Whether a method has a key; options that are refused later count as had by a method that takes any."""
    section, _, name = methods.full_key(method.name, key).partition(".")
    options = methods.load(method.name).Options
    return section != "method" or name in options.model_fields or options.model_config.get("extra") == "allow"


def check_model_keys(keys: Collection[str], config: Config) -> None:
    """Raises ConfigError for keys of a space that the model's constructor does not take.

    A model that is chosen by the data is checked with the first trial.
    """
    for key in keys:
        name = key.removeprefix(MODEL)
        if not key.startswith(MODEL) or not SEARCHED.takes(key):
            continue
        if name in models.SHAPE:
            raise ConfigError(f"space: {key}: decided by the data ({config.data.name}); leave it out")
        for model in config.model.names if config.model.name != "auto" else ():
            kind = models.load(model)
            try:
                models.check_options(model, kind, dict.fromkeys([*models.constructor_arguments(kind), name]))
            except ConfigError as error:
                raise ConfigError(f"space: {error}") from None


def spaces_of(
    compared: Sequence[ComparedMethod], space: Mapping[str, Any] | str | None, config: Config, subject: str = ""
) -> dict[str, Space]:
    """The space of each method, by label: what is listed, the grid of its paper or its own. Raises ConfigError.

    asked: values by key, `paper` or None. subject: the only method to which `paper` applies, if not to all.
    """
    if isinstance(space, Mapping):
        listed = ListedSpace.parse(space, compared, config)
        listed.refuse_useless(compared, config)
        return with_alike_models({method.label: listed.of(method) for method in compared}, config)
    if space not in (None, "paper"):
        raise ConfigError(f"space = {space}: must be paper, or values by key, for example --space train.lr=0.01,0.1")
    if space and subject and not Space.paper(subject):
        raise ConfigError(f"space = paper: the paper of {subject} names no grid; leave it out")
    of_papers = {m.label: Space.paper(m.name) for m in compared if space and subject in ("", m.label)}
    return with_alike_models({m.label: of_papers.get(m.label) or Space.of(m.name) for m in compared}, config)


def with_alike_models(spaces: Mapping[str, Space], config: Config) -> dict[str, Space]:
    """The spaces by label, each with the values of the model's arguments that any of them lists.

    Raises ConfigError if two list different values.
    """
    axes = dict[str, tuple[str, Axis]]()
    for label, space in spaces.items():
        for key, axis in space.axes.items():
            first, known = axes.setdefault(key, (label, axis)) if key.startswith(MODEL) else (label, axis)
            if known.text() != axis.text():
                raise ConfigError(
                    f"space: {key}: {first} lists {known.text()} and {label} {axis.text()}, and the model is tuned "
                    "alike for all methods: list the same values"
                )
    check_model_keys(axes, config)
    shared = {key: axis for key, (_, axis) in axes.items()}
    return {label: replace(space, axes={**space.axes, **shared}) for label, space in spaces.items()}
