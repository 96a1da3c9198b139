"""Claims of papers as rows of data, and the study that tests them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.studies.claims.study import claims

__all__ = ["claims"]


def __getattr__(name: str) -> Any:
    """The study is imported when it is asked for; `traced.py` is imported by every process that runs a claim."""
    if name == "claims":
        from fedbench.studies.claims.study import claims

        return claims
    raise AttributeError(f"module 'fedbench.studies.claims' has no attribute '{name}'")
