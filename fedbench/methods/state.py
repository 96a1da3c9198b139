"""The base of clients and states: they accept declared fields only."""

from typing import Any

from fedbench.errors import RunError


class DeclaredFields:
    """A dataclass that raises RunError for an undeclared attribute, which would be lost silently."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise RunError(
                f"{type(self).__qualname__} has no field '{name}', so it would be lost: to keep it, declare "
                f"`{name}: TYPE = DEFAULT` in the method's dataclass State(PrivateState) or Server(ServerState)"
            )
        super().__setattr__(name, value)
