"""What is installed: fedbench's version, its extras, and another project under the same import name."""

from importlib.util import find_spec

from fedbench.errors import ConfigError

DISTRIBUTION = "fedbench-pfl"
"""The name that pip knows; `fedbench` on the package index is another project, which cannot be installed beside it."""
EXTRAS = {
    "ray": {"ray": "Ray"},
    "tune": {"optuna": "Optuna", "ray": "Ray"},
    "wandb": {"wandb": "W&B", "wandb_workspaces": "W&B"},
    "plots": {"matplotlib": "matplotlib"},
    "tensorboard": {"tensorboardX": "TensorBoard"},
    "privacy": {"dp_accounting": "dp-accounting"},
}
"""The optional libraries of each extra of pyproject.toml: modules, and what they are called in messages."""


def version() -> str | None:
    """fedbench's version; None in a checkout that was not installed."""
    return version_of(DISTRIBUTION)


def version_of(distribution: str) -> str | None:
    """The version of an installed package by the name that pip knows; None if there is none."""
    from importlib import metadata  # here, because most imports of fedbench do without it

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def missing(extra: str) -> list[str]:
    """The libraries of an extra that are not installed. Imports none of them."""
    return list(dict.fromkeys(name for module, name in EXTRAS[extra].items() if not _is_found(module)))


def _is_found(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and spec.origin is not None  # any folder of this name, such as W&B's, has no origin


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def require(extra: str, instead: str = "") -> None:
    """Raises ConfigError unless the libraries of an extra are installed. instead: what works without them."""
    if names := missing(extra):
        verb = "is" if len(names) == 1 else "are"
        said = f"{' and '.join(names)} {verb} not installed: {install(extra)}"
        raise ConfigError(f"{said}, or {instead}" if instead else said)


def other_fedbench() -> str | None:
    """One line if the index's other project `fedbench` is installed: its files replace ours of the same names."""
    if (found := version_of("fedbench")) is None:
        return None
    return (
        f"another project, fedbench {found}, is installed under the same import name: pip uninstall fedbench, then "
        f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
    )
