"""Base classes of configuration sections, with strict validation."""

from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, NoneType
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticSerializationError, to_jsonable_python

from fedbench.config.words import refuse_values
from fedbench.errors import ConfigError, nearest
from fedbench.user_code import name_of

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Records store seeds in 32 bits."""
M = TypeVar("M", bound=BaseModel)

CONFUSED_TYPES: dict[type, tuple[type, ...]] = {int: (bool, float, str), float: (bool, str)}
"""Types that pydantic would convert to such a number; its strict mode would refuse NumPy's numbers too."""


class Section(BaseModel):
    """A group of keys; unknown keys are refused; `none` means no value if the key is optional.

    Comma-separated words are a list of text. A plain string sets the key `name`, if there is one (`method: fedcac`).
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False, coerce_numbers_to_str=True)

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises ConfigError for an unknown key, a wrong type or a value out of range."""
        if not (name.startswith("_") or name in type(self).model_fields or self.model_config["extra"] == "allow"):
            raise ConfigError(f"unknown key {name}; {nearest(name, type(self).model_fields)}")
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            refuse_values(error, type(self))

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) and "name" in cls.model_fields else value

    @field_validator("*", mode="before")
    @classmethod
    def _none_by_name(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields.get(info.field_name or "")
        named = isinstance(value, str) and value == "none"  # an array would compare its numbers
        return None if named and field and NoneType in get_args(field.annotation) else value

    @field_validator("*", mode="before")
    @classmethod
    def _list_of_words(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields.get(info.field_name or "")
        return value.split(",") if isinstance(value, str) and field and field.annotation == list[str] else value

    @field_validator("*", mode="wrap")
    @classmethod
    def _as_written(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        """Refuses true, 1.0 and "1" for integers, true and "1" for floats, and an empty text for a path."""
        result = check(value)
        if isinstance(result, Path) and value == "":  # would be the current folder
            raise ValueError("is empty; give a path, such as . for this folder")
        pairs = zip(result, value, strict=False) if isinstance(result, list) else [(result, value)]
        if any(isinstance(written, CONFUSED_TYPES.get(type(taken), ())) for taken, written in pairs):
            raise PydanticCustomError("written_otherwise", "not a number of this type")
        return result

    @field_validator("*", mode="before")
    @classmethod
    def _no_null_byte(cls, value: Any) -> Any:
        if isinstance(value, str | Path) and "\0" in str(value):
            raise ValueError("contains a null byte; remove it")
        return value


class RootSection(Section):
    """A section that is made by itself."""

    def __init__(self, **values: Any) -> None:
        """Raises ConfigError with a one-line message for unknown keys, wrong types and values out of range."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            refuse_values(error, type(self))


def distinct(value: list[Any], info: ValidationInfo) -> list[Any]:
    """Checks that a list has no value twice. Raises ValueError."""
    if len(set(value)) != len(value):
        raise ValueError(f"give each {str(info.field_name).removesuffix('s')} once")
    return value


def plain(value: Any) -> Any:
    """The value with Python's numbers and lists in place of those of NumPy, also inside lists, tuples and dicts."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def _option(value: Any) -> Any:
    """The plain value of an additional key. Raises ValueError for one that cannot be written into a file."""
    option = plain(value)
    try:
        to_jsonable_python(option)
    except PydanticSerializationError:
        raise ValueError("must be a number, a text, true, false or none, or a list or mapping of these") from None
    return option


def make_section(kind: type[M], values: Mapping[str, Any], prefix: str) -> M:
    """The section with these values. Raises ConfigError, which names keys with `prefix` before them."""
    try:
        return kind(**values)
    except ValidationError as error:
        refuse_values(error, kind, prefix)


class OpenSection(Section):
    """A section with additional keys, which the class named by `name` checks.

    In Python a class or function sets `name` too.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(_option)]]
    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_object(cls, value: Any) -> Any:
        if isinstance(value, type | FunctionType):
            return {"name": name_of(value)}
        if isinstance(value, dict) and isinstance(value.get("name"), type | FunctionType):
            return {**value, "name": name_of(value["name"])}
        return value

    @property
    def options(self) -> dict[str, Any]:
        """The additional keys."""
        return dict(self.model_extra or {})
