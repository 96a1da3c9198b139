"""What is installed: fedbench's version, its optional libraries, and another project under the same import name."""

from importlib.util import find_spec

from fedbench.errors import ConfigError

DISTRIBUTION = "fedbench-pfl"
"""The name that pip knows; `fedbench` on the package index is another project, which cannot be installed beside it."""
DEPENDENCIES = {"ray": {"ray": "Ray"}, "wandb": {"wandb": "W&B", "wandb_workspaces": "W&B"}}
"""Dependencies that are imported late, so that what does without them runs where they were left out."""
EXTRAS = {
    "tune": {"optuna": "Optuna", "ray": "Ray"},
    "plots": {"matplotlib": "matplotlib"},
    "tensorboard": {"tensorboardX": "TensorBoard"},
    "privacy": {"dp_accounting": "dp-accounting"},
    "onnx": {"onnx": "onnx", "onnxscript": "onnxscript", "onnxruntime": "onnxruntime"},
}
"""The libraries of each extra of pyproject.toml: modules, and what they are called in messages."""


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


def missing(needed: str) -> list[str]:
    """The libraries of an extra, or of what is imported late, that are not installed. Imports none of them."""
    libraries = (DEPENDENCIES | EXTRAS)[needed]
    return list(dict.fromkeys(name for module, name in libraries.items() if not _is_found(module)))


def _is_found(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and spec.origin is not None  # any folder of this name, such as W&B's, has no origin


def install(needed: str) -> str:
    """The command that installs an extra, or dependencies that were left out."""
    return f"pip install {DISTRIBUTION}" if needed in DEPENDENCIES else f"pip install '{DISTRIBUTION}[{needed}]'"


def require(needed: str, instead: str = "") -> None:
    """Raises ConfigError unless these libraries are installed. instead: what works without them."""
    if names := missing(needed):
        verb = "is" if len(names) == 1 else "are"
        text = f"{' and '.join(names)} {verb} not installed: {install(needed)}"
        raise ConfigError(f"{text}, or {instead}" if instead else text)


def other_fedbench() -> str | None:
    """One line if the index's other project `fedbench` is installed: its files replace ours of the same names."""
    if (number := version_of("fedbench")) is None:
        return None
    return (
        f"another project, fedbench {number}, is installed under the same import name: pip uninstall fedbench, then "
        f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
    )
