"""The base of clients and states: they accept declared fields only."""

from typing import Any

from fedbench.errors import RunError, refuse_hidden_fields


class DeclaredFields:
    """A dataclass that raises RunError for an undeclared attribute, which would be lost silently.

    A class that derives from one of fedbench's own adds fields to it; ConfigError if it hides one.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        base = cls.__mro__[cls.__mro__.index(DeclaredFields) - 1]  # PrivateState or ServerState
        if base is not cls:
            refuse_hidden_fields(cls, base)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise RunError(
                f"{type(self).__qualname__} has no field '{name}', so it would be lost: to keep it, declare "
                f"`{name}: TYPE = DEFAULT` in the method's dataclass State(PrivateState) or Server(ServerState)"
            )
        super().__setattr__(name, value)
