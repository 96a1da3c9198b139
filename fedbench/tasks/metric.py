"""A number that tells how good a model is, and how people see it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """A number that tells how good outputs are.

    name: in records; label: for the reader; higher: whether more is better; share: whether it is a fraction of 1, which
    is shown in percent; over_samples: whether it is a mean over samples, so that clients can be pooled.
    """

    name: str
    label: str
    higher: bool = True
    share: bool = False
    over_samples: bool = True

    @property
    def factor(self) -> float:
        """What a value is multiplied by to be shown."""
        return 100.0 if self.share else 1.0

    @property
    def unit(self) -> str:
        """What is written behind a value."""
        return "\u00a0%" if self.share else ""

    @property
    def title(self) -> str:
        """Of an axis."""
        return f"{self.label}, %" if self.share else self.label

    def number(self, value: float) -> str:
        """The value as it is shown, without its unit: one decimal in percent, else three significant digits."""
        return f"{100 * value:.1f}" if self.share else f"{value:.3g}"

    def shown(self, value: float) -> str:
        return self.number(value) + self.unit

    def difference(self, value: float) -> str:
        """With a sign, which is a true minus where it is one."""
        text = f"{round(100 * value, 1) + 0.0:+.1f}" if self.share else f"{value:+.3g}"
        return text.replace("-", "\u2212")

    def gain(self, ours: Any, theirs: Any) -> Any:
        """By how much ours is better, a number or a column of them; below 0 where it is worse."""
        return ours - theirs if self.higher else theirs - ours
