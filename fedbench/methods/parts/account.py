"""What uploads of labels and expertise spend of a privacy budget together, and what is said of it."""

from dataclasses import dataclass
from math import inf

from fedbench.methods.parts.privacy import LabelNoise, NumberNoise, epsilon_at


@dataclass(frozen=True)
class Account:
    """Of uploads with a label and, if `expertise_sent`, an expertise number for every public image."""

    labels: LabelNoise
    expertise: NumberNoise
    expertise_sent: bool

    @property
    def in_the_clear(self) -> str | None:
        """Which of labels and expertise is sent without noise."""
        if self.labels.kind == "none":
            return "labels are sent without noise (method.label_privacy)"
        if self.expertise_sent and not self.expertise.sigma:
            return "expertise is sent without noise (method.expertise_sigma, or method.expertise=equal)"
        return None

    def spent(self, uploads: int) -> dict[str, float]:
        """epsilon: of so many uploads, at the expertise's delta; epsilon_basic, delta_basic: the paper's times uploads.

        Infinite where one of labels and expertise has noise and the other is sent without; nothing where both are.
        """
        labels, expertise, delta = self.labels.budget, self.expertise.budget, self.expertise.delta
        if not labels + expertise:
            return {}
        if uploads and self.in_the_clear:
            return {"epsilon": inf, "epsilon_basic": inf, "delta_basic": inf}
        return {
            "epsilon": self._accounted(uploads),
            "epsilon_basic": uploads * (labels + expertise),
            "delta_basic": uploads * delta if expertise else 0.0,
        }

    def _accounted(self, uploads: int) -> float:
        """Epsilon of so many uploads by Rényi accounting, or the sum of the labels' own where that is less."""
        of_labels, of_expertise, delta = self.labels.divergence, self.expertise.divergence, self.expertise.delta
        together = epsilon_at(uploads * (of_labels + of_expertise), delta)
        return min(together, uploads * self.labels.budget + epsilon_at(uploads * of_expertise, delta))

    def lines(self, uploads: int) -> list[str]:
        """What one upload and all of a client's uploads spend, to be said before round 1; nothing without noise."""
        labels, expertise, delta = self.labels.budget, self.expertise.budget, self.expertise.delta
        if not labels + expertise:
            return []
        lines = [
            f"fedmosaic: one upload spends epsilon {labels + expertise:.6g} (labels {labels:.6g}, expertise "
            f"{expertise:.6g}) with delta {delta:g}, all {uploads} of them {uploads} times both by basic composition"
        ]
        if (clear := self.in_the_clear) is None:
            spent = self.spent(uploads)["epsilon"]
            lines[0] += f", and epsilon {spent:.6g} with delta {delta:g} by Rényi accounting"
        else:
            lines.append(f"fedmosaic: {clear}, so that nothing is promised for an upload as a whole")
        if expertise > 1:
            lines.append(f"fedmosaic: the epsilon of the expertise, {expertise:.6g}, is proved for values up to 1 only")
        return lines
