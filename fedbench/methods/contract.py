"""Checks of the code of a method at every call: what its hooks return, and what they must not change."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from numbers import Real
from typing import Any

from torch import Tensor

from fedbench.errors import ConfigError, RunError, place_of_code
from fedbench.methods.base import Method
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.messages import Message, Upload
from fedbench.methods.server import ServerState
from fedbench.methods.snapshots import bits_of, first_change, first_rewrite, leaves_of
from fedbench.methods.stores import GENERATORS, Stores
from fedbench.module.weights import Weights

NOTHING = type(None)
LOST = "which is lost when a run is resumed and is missing on other hosts"
"""What is wrong with all that is kept beside declared fields."""
RETURNS: dict[str, tuple[tuple[type, ...], str]] = {
    "begin": ((NOTHING,), "nothing: set the fields of client.state"),
    "receive": ((Weights,), "the client's weights"),
    "train": ((Upload,), "an upload, `return self.upload(client, trained)`"),
    "outgoing": ((Upload,), "the upload"),
    "reference": ((Tensor, NOTHING), "a tensor like upload.params, or None"),
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
BEFORE_TRAINING = ("begin", "receive")
"""Hooks whose steps are not in the count of a training."""
TRAINERS = ("drawn", "all", "pooled")
WEIGHTS_FIELDS = ("params", "buffers", "counters")


def check_trainers(method: Method) -> None:
    """Raises RunError if `trainers` returns none of TRAINERS."""
    if (trainers := method.trainers(method.options)) not in TRAINERS:
        raise hook_error(method, "trainers", f"must return one of {', '.join(TRAINERS)}; it returned {trainers!r}")


def call_hook(method: Method, hook: str, *given: Any) -> Any:
    """Calls a hook of a method and returns its result.

    Raises RunError if the result has the wrong type or if the hook stores something beside the declared fields, and
    ConfigError if it makes private steps that nobody counts.
    """
    before = leaves_of(_attributes(method))
    with guard_stores(method, hook), _guard_steps(method, hook, *given):
        result, (kinds, words) = getattr(method, hook)(*given), RETURNS[hook]
    if not isinstance(result, kinds):
        raise hook_error(method, hook, f"must return {words}; it returned {type_in_words(result)}")
    if place := first_change(before, leaves_of(_attributes(method))):
        raise hook_error(
            method,
            hook,
            f"writes to self.{place}, {LOST}: keep it in client.state or at the server",
        )
    return result


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
        f"writes to {place}, {LOST}: declare a field in State and keep it in client.state, or in Server (what is the "
        "same for all may come from a function with @functools.cache)",
    )


@contextmanager
def _guard_steps(method: Method, hook: str, *given: Any) -> Iterator[None]:
    """Raises ConfigError if a hook before the training makes private steps: epsilon would lack them."""
    if hook not in BEFORE_TRAINING or not method.context.private_steps:
        yield
        return
    (client,) = given
    made = client.steps_made
    yield
    if client.steps_made > made:
        raise ConfigError(
            f"privacy.level = sample: {method.context.method} makes gradient steps in `{hook}`, which epsilon would "
            "not count; make them in `train`, or set privacy.level = client"
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


def check_shapes(result: Any, like: Weights, method: Method, hook: str) -> Any:
    """Returns `result`. Raises RunError if it is weights of other shapes than the model's."""
    if isinstance(result, Weights):
        for name in WEIGHTS_FIELDS:
            value, initial = getattr(result, name), getattr(like, name)
            if not isinstance(value, Tensor) or value.shape != initial.shape:
                words = f"must return {name} of shape {list(initial.shape)}"
                raise hook_error(method, hook, f"{words}; it returned {type_in_words(value)}")
    return result


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
    if method.context.changes_uploads and _encodes_params(upload, client, method):
        method.refuse_changed_uploads()


def _encodes_params(upload: Upload, client: Client, method: Method) -> bool:
    """Whether an upload has parameters, but not whole ones like those of its reference."""
    sent = upload.tensors.get("params")
    if sent is None or not upload.sizes["params"]:
        return False
    start = call_hook(method, "reference", client.message, upload)
    return upload.sizes["params"] != sent.nbytes or start is None or start.shape != sent.shape


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
        cause = RunError.of(error)
        raise RunError(f"{type(method).__name__}.{hook} fails: {cause.text}", cause.place, cause.trace) from error


def shared_model(server: ServerState) -> dict[str, Tensor]:
    """The shared tensors of the global model, by part."""
    return {name: getattr(server, name) for name in WEIGHTS_FIELDS}


def check_server(server: ServerState, before: dict[str, Tensor], method: Method, hook: str) -> None:
    """Raises RunError if the shared model is invalid after a hook. before: its parts before the hook."""
    for name, earlier in before.items():
        tensor = getattr(server, name)
        if not isinstance(tensor, Tensor):
            raise hook_error(method, hook, f"must leave a tensor in server.{name}; it left {type_in_words(tensor)}")
        if tensor.shape != earlier.shape or tensor.is_floating_point() != earlier.is_floating_point():
            words = f"must leave {type_in_words(earlier)} and {earlier.dtype} in server.{name}"
            raise hook_error(method, hook, f"{words}; it left {type_in_words(tensor)} and {tensor.dtype}")
        if not _finite(tensor) and _finite(earlier):
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
    before = leaves_of(watched)
    copies = [bits_of(value) for _, value, _ in before if isinstance(value, Tensor)] if exact else []
    yield
    place = first_change(before, leaves_of(watched)) or first_rewrite(before, copies)
    if place:
        why = (
            "a hook that only evaluates must not change state; change it in train"
            if place.startswith("client.state")
            else "others see it too: change a copy, e.g. by .clone()"
        )
        raise hook_error(method, hook, f"writes to {place}, which it must not change: {why}")


def hook_error(method: Method, hook: str, text: str) -> RunError:
    """The error of a hook, with its line."""
    return RunError(f"{type(method).__name__}.{hook} {text}", place_of_code(getattr(method, hook)))


def type_in_words(value: Any) -> str:
    """The type of a value, in words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "None" if value is None else f"a value of type {type(value).__name__}"
