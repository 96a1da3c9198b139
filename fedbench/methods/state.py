"""What clients and states have in common: they hold what a field declares, and nothing else."""

from typing import Any

from fedbench.errors import RunError


class Declared:
    """A dataclass that takes no attribute without a field. Raises RunError: it would be lost, without a word."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise RunError(
                f"{type(self).__qualname__} has no field '{name}', so that it would be lost: what is to be kept needs "
                f"`{name}: TYPE = DEFAULT` in the method's dataclass State(PrivateState) or Server(ServerState)"
            )
        super().__setattr__(name, value)
