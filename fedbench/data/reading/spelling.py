"""Texts that differ in case or blanks alone, or are one number: labels, users, groups and categories of any data."""

from typing import Literal

import numpy as np
from pydantic import Field

from fedbench.config import Section
from fedbench.data.description import Decision
from fedbench.errors import open_decision

Spelling = Literal["exact", "merged"]


class SpellingOption(Section):
    spelling: Spelling | None = Field(
        None,
        description="texts that differ in case or blanks alone, or are one number (1 and 1.0): different, or one "
        "(default: you are asked)",
    )


def with_one_spelling(where: str, called: str, texts: np.ndarray, spelling: Spelling | None) -> np.ndarray:
    """The texts [n] without blanks around them; if asked, those that differ in case or blanks alone are one.

    So are those that are one number. called: what they are, `column state`. The most frequent one stands for all, of
    numbers the shortest. Values of other types stay. Raises ConfigError if there are such texts and only the user
    knows.
    """
    if texts.dtype.kind != "U" or texts.ndim > 1:
        return texts
    from fedbench.data.reading.texts import clean, counts_of, variants  # pandas takes half a second

    texts = clean(texts).fillna("").to_numpy("U")
    if spelling == "exact":
        return texts
    alike = variants(counts_of(texts))
    if alike and spelling is None:
        common, (one, other, *_) = next(iter(alike.items()))
        why = "differ in case or blanks alone" if isinstance(common, str) else "are one number"
        raise open_decision(
            where,
            f"{called}: {one!r} and {other!r} {why}",
            {"--data.spelling merged": "one", "--data.spelling exact": "two"},
        )
    most_frequent = {text: same[0] for same in alike.values() for text in same[1:]}
    return np.array([most_frequent.get(text, text) for text in texts.tolist()]) if most_frequent else texts


def spelling_decision(spelling: Spelling) -> Decision:
    """The decision that a key has made."""
    same = "are one" if spelling == "merged" else "are different"
    said = f"texts that differ in case or blanks alone, or are one number, {same}"
    return Decision("samples", said, "given", "data.spelling", spelling)
