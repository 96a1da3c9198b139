"""Metrics of models and their display."""

from dataclasses import dataclass
from typing import Any

MINUS = "\u2212"


@dataclass(frozen=True)
class Metric:
    """A number that measures the quality of outputs.

    name: in records; label: for the reader; higher: whether higher is better; share: whether it is a fraction of 1,
    shown in percent; over_samples: whether it is a mean over samples, so that clients can be pooled; log_mean: whether
    its logarithm is the mean; pooled: whether it is no such mean, but is also computed over the test samples of all
    clients together; least, most: bounds of its values, None without one; those of a share are 0 and 1.
    """

    name: str
    label: str
    higher: bool = True
    share: bool = False
    over_samples: bool = True
    log_mean: bool = False
    pooled: bool = False
    least: float | None = None
    most: float | None = None

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Between which its values lie."""
        return (0.0, 1.0) if self.share else (self.least, self.most)

    @property
    def factor(self) -> float:
        """The factor from a value to the shown number."""
        return 100.0 if self.share else 1.0

    @property
    def unit(self) -> str:
        """The unit after a shown value."""
        return "\u00a0%" if self.share else ""

    @property
    def title(self) -> str:
        """The title of an axis."""
        return f"{self.label}, %" if self.share else self.label

    def number(self, value: float) -> str:
        """The value as shown, without its unit: one decimal in percent, else three significant digits; a true minus."""
        return (f"{100 * value:.1f}" if self.share else f"{value:.3g}").replace("-", MINUS)

    def with_unit(self, value: float) -> str:
        return self.number(value) + self.unit

    def difference(self, value: float) -> str:
        """With a sign, a true minus if negative."""
        text = f"{round(100 * value, 1) + 0.0:+.1f}" if self.share else f"{value:+.3g}"
        return text.replace("-", MINUS)

    def gain(self, ours: Any, theirs: Any) -> Any:
        """How much better ours is, a number or a column; negative if worse."""
        return ours - theirs if self.higher else theirs - ours
