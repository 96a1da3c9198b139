"""Checks whether clients can have models of their own, `model=A,B`, with a method."""

from collections.abc import Mapping, Sequence

from fedbench.errors import ConfigError
from fedbench.methods import METHODS
from fedbench.methods.base import Method


def check_takes_models(kind: type[Method], name: str, models: Sequence[str]) -> None:
    """Raises ConfigError if there are several models and a method has one for all clients."""
    if len(set(models)) > 1 and not takes_models(kind):
        able = ", ".join(sorted(other for other, known in METHODS.loadable() if takes_models(known)))
        raise ConfigError(
            f"model = {','.join(models)}: with {name} all clients have one model, because it exchanges parameters of "
            f"the whole model; name one model, or use a method for several: {able}"
        )


def takes_models(kind: type[Method]) -> bool:
    """Whether clients can have models of their own."""
    return kind.common_shapes is not Method.common_shapes


def check_alike(name: str, methods: Mapping[str, Method]) -> None:
    """Raises ConfigError if what clients exchange has other shapes in one model than in another.

    methods: the method of this name with each of the models.
    """
    (first, own), *others = [(model, method.common_shapes()) for model, method in methods.items()]
    for model, found in others:
        if found is None or found != own:
            raise ConfigError(
                f"model = {','.join(methods)}: what clients of {name} exchange must have the same shapes in all "
                f"models, and has {_words(own)} in {first}, {_words(found)} in {model}; choose models that agree in it"
            )


def _words(shapes: Sequence[tuple[int, ...]] | None) -> str:
    found = [str(list(shape)) for shape in shapes or ()]
    return ", ".join([*found[:MOST_SHOWN], *["..."] * (len(found) > MOST_SHOWN)]) or "none"


MOST_SHOWN = 4
"""Shapes that a message lists."""
