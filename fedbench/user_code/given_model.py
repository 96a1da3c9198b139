"""Models that a user passes as instances: a class whose objects are copies of the instance. Lists of models."""

from collections.abc import Mapping
from copy import deepcopy
from inspect import Signature
from types import new_class
from typing import Any

from fedbench.errors import ConfigError, first_line
from fedbench.import_string import AT, keep
from fedbench.user_code import name_of
from fedbench.user_code.objects import Walk

MARK = "_copies_an_instance"


def with_model_name(value: Any) -> Any:
    """A model section in which an instance, or a list of models, is replaced by its name. Raises ConfigError."""
    if isinstance(value, Mapping):
        return {**value, "name": _name_of_model(value["name"])} if "name" in value else value
    name = _name_of_model(value)
    return value if name is value else {"name": name}


def copies_instance(kind: type) -> bool:
    """Whether a class makes copies of an instance, which all have its weights."""
    return MARK in vars(kind)


def _name_of_models(models: list[Any]) -> str:
    """The name of several models, which are names, classes or instances. Raises ConfigError."""
    names = [name_of(item) if isinstance(item, type) else _name_of_model(item) for item in models]
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(
                f"model: a list holds the models that clients get in turn, each a name, a class or an instance, not "
                f"{name!r}; arguments (model.ARGUMENT) are the same for all of them"
            )
    if not names:
        raise ConfigError("model: the list is empty; name one model or more")
    return ",".join(names)


def _name_of_model(value: Any) -> Any:
    """The name of an instance of LightningModule, or of a list; anything else unchanged. Raises ConfigError."""
    if isinstance(value, list | tuple):
        return _name_of_models([*value])
    if isinstance(value, str) and "," in value:
        return ",".join(part.strip() for part in value.split(","))
    kinds = [] if isinstance(value, type) else [kind.__name__ for kind in type(value).__mro__]
    if "LightningModule" in kinds:
        return name_of_instance(value)
    if "Module" in kinds and hasattr(value, "forward"):
        raise ConfigError(
            f"model is a {type(value).__name__}, a plain torch.nn.Module: put it into a LightningModule with "
            "training_step and configure_optimizers, and pass its class or an instance"
        )
    return value


def name_of_instance(module: Any) -> str:
    """The name under which `import_string` finds a class that makes copies of a module as it is now.

    It identifies the module's class and state. Raises ConfigError if the module cannot be copied.
    """
    kind = type(module)
    try:
        kept = deepcopy(module).cpu()
    except Exception as error:
        raise ConfigError(
            f"model {kind.__name__}: the instance cannot be copied ({type(error).__name__}: {first_line(error)}); pass "
            "the class, and its arguments as further keys of model"
        ) from error
    kept.zero_grad()

    def copied(cls: type) -> Any:
        return deepcopy(kept)

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    members = {**names, "__new__": copied, "__signature__": Signature(), MARK: True}
    name = f"{kind.__module__}:{kind.__qualname__}{AT}{Walk(kept).fingerprint[:8]}"
    keep(name, new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(members)))
    return name
