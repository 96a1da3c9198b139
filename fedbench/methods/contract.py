"""Checks of the code of a method: its class, what its hooks return, and what they must not change."""

import inspect
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import MISSING, fields
from functools import cache, cached_property
from itertools import zip_longest
from numbers import Real
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from fedbench.config import TrainConfig
from fedbench.config.words import explain
from fedbench.errors import ConfigError, RunError, place_of_code
from fedbench.methods.base import NEEDS, ExtraPass, Method
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.messages import Message, Upload
from fedbench.methods.server import ServerState
from fedbench.methods.stores import GENERATORS, Stores
from fedbench.module.weights import Weights
from fedbench.results.trace import Trace
from fedbench.user_code.misspelt import misspelt_names

NOTHING = type(None)
RETURNS: dict[str, tuple[tuple[type, ...], str]] = {
    "begin": ((NOTHING,), "nothing: set the fields of client.state"),
    "receive": ((Weights,), "the client's weights"),
    "train": ((Upload,), "an upload, `return self.upload(client, trained)`"),
    "outgoing": ((Upload,), "the upload"),
    "personal": ((Weights, Predictor, NOTHING), "weights, a Predictor, or None"),
    "idle_model": ((Weights,), "weights"),
    "join": ((Weights, Predictor), "weights or a Predictor"),
    "answer": ((Message,), "a Message"),
    "start": ((ServerState,), "the method's Server, `return self.Server(...)`"),
    "send": ((Message,), "a Message"),
    "welcome": ((Message,), "a Message"),
    "aggregate": ((NOTHING,), "nothing: write the result to the server, `server.params = ...`"),
    "global_model": ((Weights, NOTHING), "weights, or None"),
    "shared_part": ((Weights, NOTHING), "weights, or None"),
    "question": ((Message, NOTHING), "a Message, or None"),
    "conclude": ((NOTHING,), "nothing: write the result to the server"),
}
"""The return types of each hook, and their words."""
OTHER_HOOKS = {
    *("private", "frozen", "check", "weights", "steps", "adapt_model", "common_shapes"),
    *("trainers", "makes_steps"),
}
TRAITS = {"after_fit": ("fit", "after_agg", "global"), "optimizer": ("run", "own", "plain")}
SEARCHED = ("SPACE", "PAPER", "CONSTRAINT", "RATES_FOR")
"""What a search reads of a class (`tune_space`)."""
TRAINERS = ("drawn", "all", "pooled")
WEIGHTS_FIELDS = ("params", "buffers", "counters")


def check_class(kind: type[Method]) -> None:
    """Raises ConfigError with file and line if the state, options, hooks or traits of a class are invalid."""
    _check_state(kind, "State", PrivateState)
    _check_state(kind, "Server", ServerState)
    if not (isinstance(kind.Options, type) and issubclass(kind.Options, Method.Options)):
        code = kind.Options if isinstance(kind.Options, type) else kind
        raise _mistake(code, f"{kind.__name__}.Options must derive from Method.Options")
    for name in RETURNS.keys() | OTHER_HOOKS:
        _check_hook(kind, name)
    _check_names(kind)
    _check_traits(kind)
    try:
        TrainConfig(**kind.train_defaults)
    except ValidationError as error:
        line = explain(error, TrainConfig, "train.")
        raise _mistake(kind, f"{kind.__name__}.train_defaults: {line}") from None


def _check_traits(kind: type[Method]) -> None:
    """Raises ConfigError if a trait has an invalid value."""
    for name, legal in TRAITS.items():
        if (value := getattr(kind, name)) not in legal:
            raise _mistake(kind, f"{kind.__name__}.{name} = {value!r}: must be one of {', '.join(legal)}")
    if not isinstance(kind.needs, Set) or kind.needs - NEEDS.keys():
        raise _mistake(kind, f"{kind.__name__}.needs = {kind.needs!r}: must be a frozenset of {', '.join(NEEDS)}")
    if not isinstance(kind.traces, tuple) or not all(isinstance(trace, Trace) for trace in kind.traces):
        raise _mistake(kind, f"{kind.__name__}.traces must be a tuple of fedbench.results.trace.Trace")


def check_trainers(method: Method) -> None:
    """Raises RunError if `trainers` returns none of TRAINERS."""
    if (found := method.trainers(method.options)) not in TRAINERS:
        raise hook_error(method, "trainers", f"must return one of {', '.join(TRAINERS)}; it returned {found!r}")


def _check_state(kind: type[Method], name: str, base: type[PrivateState | ServerState]) -> None:
    """Raises ConfigError if an annotation is no field or a field has no default."""
    state, called = getattr(kind, name), f"{kind.__name__}.{name}"
    if not (isinstance(state, type) and issubclass(state, base)):
        raise _mistake(state, f"{called} must derive from {base.__name__}, as a dataclass")
    known, given = {f.name for f in fields(state)}, {f.name for f in fields(base)}
    for part in state.__mro__[: state.__mro__.index(base)]:
        if lost := sorted(inspect.get_annotations(part).keys() - known):
            line = f"{called} is no dataclass, so {lost[0]} would be lost"
            raise _mistake(part, f"{line}: write @dataclass above it")
    for f in fields(state):
        if f.name not in given and f.default is MISSING and f.default_factory is MISSING:
            raise _mistake(state, f"{called}.{f.name} has no default, which every client starts with: add one")


def _check_hook(kind: type[Method], name: str) -> None:
    """Raises ConfigError if a hook's signature differs from the base class's."""
    base, own = (inspect.getattr_static(cls, name, None) for cls in (ExtraPass, kind))
    if own is None or own is base:
        return
    if isinstance(base, classmethod) and not isinstance(own, classmethod):
        raise _mistake(own, f"{kind.__name__}.{name} must be a class method: write @classmethod above it")
    base, own = (getattr(hook, "__func__", hook) for hook in (base, own))
    taken = list(inspect.signature(base).parameters)
    try:
        inspect.signature(own).bind(*taken)
    except TypeError as error:
        raise _mistake(own, f"{kind.__name__}.{name} must take {', '.join(taken)}: {error}") from None


def _check_names(kind: type[Method]) -> None:
    """Raises ConfigError for a name that nothing reads: misspelt, or a hook of an extra pass that is not made."""
    for part in kind.__mro__[: kind.__mro__.index(Method)]:
        if not issubclass(kind, ExtraPass) and (lost := {"question", "answer", "conclude"} & vars(part).keys()):
            raise _mistake(part, f"{kind.__name__}.{min(lost)} is never called: derive {kind.__name__} from ExtraPass")
    known = [*(name for name in dir(ExtraPass) if not name.startswith("_")), *SEARCHED]
    for part, name, meant in misspelt_names(kind, Method, known):
        code = vars(part)[name] if inspect.isroutine(vars(part)[name]) else part
        raise _mistake(code, f"{kind.__name__}.{name} has no effect: did you mean {meant}? (if not, name it _{name})")


def _mistake(code: Any, text: str) -> ConfigError:
    return ConfigError(f"{text} ({place_of_code(code)})")


def call_hook(method: Method, hook: str, *given: Any) -> Any:
    """Calls a hook of a method and returns its result.

    Raises RunError if the result has the wrong type or if the hook stores something beside the declared fields.
    """
    before = _leaves(_attributes(method))
    with guard_stores(method, hook):
        found, (kinds, words) = getattr(method, hook)(*given), RETURNS[hook]
    if not isinstance(found, kinds):
        raise hook_error(method, hook, f"must return {words}; it returned {type_in_words(found)}")
    if place := _first_change(before, _leaves(_attributes(method))):
        raise hook_error(
            method,
            hook,
            f"writes to self.{place}, which is lost when a run is resumed and is missing on other hosts: keep it in "
            "client.state or at the server",
        )
    return found


@contextmanager
def guard_stores(method: Method, hook: str) -> Iterator[None]:
    """Raises RunError if code of a method writes to a class variable, a global or a mutable default (see `stores`)."""
    stores = Stores.of_call(method, hook)
    yield
    if stores is None or (change := stores.first_change()) is None:
        return
    place, now = change
    if isinstance(now, GENERATORS):
        raise hook_error(
            method,
            hook,
            f"draws from {place}, whose numbers depend on who drew before: draw from client.generator(name), at the "
            "server from self.context.generator(round, client, name)",
        )
    raise hook_error(
        method,
        hook,
        f"writes to {place}, which is lost when a run is resumed and is missing on other hosts: declare a field in "
        "State and keep it in client.state, or in Server (what is the same for all may come from a function with "
        "@functools.cache)",
    )


def scores_of(method: Method, predictor: Predictor, data: Any) -> Tensor:
    """The scores of a predictor. Raises RunError if it stores something."""
    with guard_stores(method, "personal"):
        return predictor.scores(data)


def _attributes(method: Method) -> dict[str, Any]:
    """The attributes of a method without its cached properties, which may be computed later."""
    kind: Any = type(method)
    later = _made_later(kind)
    return {name: value for name, value in vars(method).items() if name not in later}


@cache
def _made_later(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if isinstance(inspect.getattr_static(kind, name), cached_property))


def check_shapes(found: Any, like: Weights, method: Method, hook: str) -> Any:
    """Returns `found`. Raises RunError if it is weights of other shapes than the model's."""
    if isinstance(found, Weights):
        for name in WEIGHTS_FIELDS:
            own, asked = getattr(found, name), getattr(like, name)
            if not isinstance(own, Tensor) or own.shape != asked.shape:
                words = f"must return {name} of shape {list(asked.shape)}"
                raise hook_error(method, hook, f"{words}; it returned {type_in_words(own)}")
    return found


def check_fit(upload: Upload, client: Client, method: Method) -> None:
    """Raises RunError if the client, model or traces of an upload, or the client's state, are invalid.

    ConfigError if uploads are changed on their way and this one cannot be.
    """
    if not isinstance(client.state, PrivateState):
        what = type_in_words(client.state)
        raise hook_error(method, "train", f"puts {what} in place of client.state: assign to its fields instead")
    if upload.client != client.id:
        raise hook_error(method, "train", f"returned the upload of client {upload.client} for client {client.id}")
    if not isinstance(upload.trained, Weights):
        raise hook_error(
            method, "train", f"must put the trained weights into its upload, not {type_in_words(upload.trained)}"
        )
    check_shapes(upload.trained, client.initial, method, "train")
    for name, value in upload.traces.items():
        if not isinstance(value, Real):
            raise hook_error(method, "train", f"must trace numbers: {name} is {type_in_words(value)}, write float(...)")
    if method.context.changes_uploads and _encodes_params(upload, client):
        method.refuse_changed_uploads()


def _encodes_params(upload: Upload, client: Client) -> bool:
    """Whether an upload has parameters, but not whole ones like those that the client received."""
    sent, received = upload.tensors.get("params"), client.message.tensors.get("params")
    if sent is None or not upload.sizes["params"]:
        return False
    return upload.sizes["params"] != sent.nbytes or received is None or received.shape != sent.shape


@contextmanager
def server_hook(method: Method, hook: str) -> Iterator[None]:
    """Turns an exception of a hook of the server half into a RunError that names its line."""
    try:
        yield
    except RunError as error:
        raise RunError.of(error) from error
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        found = RunError.of(error)
        raise RunError(f"{type(method).__name__}.{hook} fails: {found.text}", found.place, found.trace) from error


def shared_model(server: ServerState) -> dict[str, Tensor]:
    """The shared tensors of the global model, by part."""
    return {name: getattr(server, name) for name in WEIGHTS_FIELDS}


def check_server(server: ServerState, before: dict[str, Tensor], method: Method, hook: str) -> None:
    """Raises RunError if the shared model is invalid after a hook. before: its parts before the hook."""
    for name, asked in before.items():
        own = getattr(server, name)
        if not isinstance(own, Tensor):
            raise hook_error(method, hook, f"must leave a tensor in server.{name}; it left {type_in_words(own)}")
        if own.shape != asked.shape or own.is_floating_point() != asked.is_floating_point():
            words = f"must leave {type_in_words(asked)} and {asked.dtype} in server.{name}"
            raise hook_error(method, hook, f"{words}; it left {type_in_words(own)} and {own.dtype}")
        if not _finite(own) and _finite(asked):
            raise hook_error(method, hook, f"leaves non-finite numbers in server.{name}")


def _finite(numbers: Tensor) -> bool:
    # A sum shows every NaN and infinity in a tenth of the time; it may overflow without one.
    return bool(numbers.sum().isfinite()) or bool(numbers.isfinite().all())


@contextmanager
def guard_inputs(method: Method, hook: str, client: Client, exact: bool = True, **given: Weights) -> Iterator[None]:
    """Raises RunError if a hook writes to what others see or, unless it trains, to the private state.

    exact: also detects writes that PyTorch does not count, such as through `.data`, by copies. given: weights passed
    to the hook, by name.
    """
    shared = {**given, "client.message": client.message, "client.initial": client.initial}
    watched = shared if hook in ("train", "join") else {**shared, "client.state": client.state}
    before = _leaves(watched)
    copies = [_bits(value) for _, value, _ in before if isinstance(value, Tensor)] if exact else []
    yield
    place = _first_change(before, _leaves(watched)) or _first_rewrite(before, copies)
    if place:
        why = (
            "a hook that only evaluates must not change state; change it in train"
            if place.startswith("client.state")
            else "others see it too: change a copy, e.g. by .clone()"
        )
        raise hook_error(method, hook, f"writes to {place}, which it must not change: {why}")


Leaf = tuple[tuple[Any, ...], Any, int]
"""A leaf of a tree: its place, its value, and the number of writes to it if it is a tensor."""


def _first_change(before: list[Leaf], after: list[Leaf]) -> str:
    """The first place where two snapshots of a tree differ, or an empty string."""
    for one, other in zip_longest(before, after):
        if one is None or other is None or not _is_same_leaf(one, other):
            return ".".join(map(str, (one or other)[0]))
    return ""


def _first_rewrite(before: list[Leaf], copies: list[Tensor]) -> str:
    """The first place of a tensor whose bits differ from its copy's, or an empty string."""
    tensors = [(place, value) for place, value, _ in before if isinstance(value, Tensor)]
    places = (place for (place, value), copy in zip(tensors, copies, strict=False) if not copy.equal(_bits(value)))
    return ".".join(map(str, next(places, ())))


def _bits(tensor: Tensor) -> Tensor:
    """A copy as bytes, in which NaN equals itself."""
    return tensor.detach().clone().reshape(-1).view(torch.uint8)


def _leaves(tree: Any) -> list[Leaf]:
    found: list[Leaf] = []
    _gather(tree, (), found)
    return found


def _gather(tree: Any, place: tuple[Any, ...], found: list[Leaf]) -> None:
    items: Iterable[tuple[Any, Any]]
    if isinstance(tree, (Weights, PrivateState)):  # a union would be rebuilt at every call
        items = vars(tree).items()
    elif isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, Message):
        items = tree.tensors.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        found.append((place, tree, _writes(tree)))
        return
    for key, item in items:
        kind: Any = type(item)
        if _has_parts(kind):
            _gather(item, (*place, key), found)
        else:
            found.append(((*place, key), item, _writes(item)))


@cache
def _has_parts(kind: type) -> bool:
    return issubclass(kind, (Weights, PrivateState, dict, Message, list, tuple))


def _writes(value: Any) -> int:
    """The number of writes to a tensor, as far as PyTorch counts them."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _is_same_leaf(one: Leaf, other: Leaf) -> bool:
    (place, value, version), (now, found, writes) = one, other
    same = value is found or (not isinstance(value, Tensor) and type(value) is type(found) and value == found)
    return version == writes and same and place == now


def hook_error(method: Method, hook: str, text: str) -> RunError:
    """The error of a hook, with its line."""
    return RunError(f"{type(method).__name__}.{hook} {text}", place_of_code(getattr(method, hook)))


def type_in_words(value: Any) -> str:
    """The type of a value, in words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "None" if value is None else f"a value of type {type(value).__name__}"
