"""AG News: 120,000 training and 7,600 test articles of four topics, as tokens: one per word of title and description.

The most frequent words of the training part are tokens 2, 3, ... (equally frequent ones in alphabetical order); 0 pads,
and 1 is any other word. Words are runs of letters and digits in lower case. Source: Zhang, Zhao and LeCun,
"Character-level convolutional networks for text classification", NeurIPS 2015.
"""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from fedbench.config import Section
from fedbench.config.section import PositiveInt
from fedbench.data.cache import Block, Content
from fedbench.data.description import Decision
from fedbench.data.reading.arrays import checked_labels, refuse_damage
from fedbench.data.reading.published import NOT_NORMALISED, Download, Extent, PublishedSet

TOPICS = ("World", "Sports", "Business", "Sci/Tech")
WORD = re.compile(r"\w+")
PAD, UNKNOWN, FIRST = 0, 1, 2
ADDRESS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
FILES = {"train.csv": "b1a00f826fdfbd249f79597b59e1dc12", "test.csv": "d52ea96a97a2d943681189a97654912d"}
"""With the MD5 sums in torchtext."""
PUBLISHED = {
    "ag-news": PublishedSet(
        Extent(120_000, (100,), len(TOPICS), "token"),
        tuple(FILES),
        below=("ag_news_csv", "AG_NEWS"),
        constants=NOT_NORMALISED,
        downloads=lambda: tuple(Download((ADDRESS + name,), md5) for name, md5 in FILES.items()),
        size="31 MB",
        licence="research and other non-commercial use",
    )
}


class Options(Section):
    words: PositiveInt = Field(10_000, description="number of words that have a token of their own")
    length: PositiveInt = Field(100, description="tokens of a sample; longer texts are cut, shorter ones padded")


def read(name: str, folder: Path, options: Options) -> Content:
    (texts, topics), (test_texts, test_topics) = (read_articles(folder / name) for name in FILES)
    tokens = vocabulary(texts, options.words)
    blocks = [
        Block(word_tokens(texts, tokens, options.length), topics),
        Block(word_tokens(test_texts, tokens, options.length), test_topics),
    ]
    last = FIRST + len(tokens) - 1
    line = (
        f"the {len(tokens)} most frequent words of the training part are tokens {FIRST} to {last}; 0 pads, 1 is unknown"
    )
    decided = Decision("samples", line)
    return Content(len(topics), len(test_topics), blocks, len(TOPICS), TOPICS, decisions=lambda targets: (decided,))


def read_articles(file: Path) -> tuple[list[list[str]], np.ndarray]:
    """The words of each article, and classes int64 [n] from 0. Raises ConfigError."""
    with refuse_damage(file, "not a table of class, title and description"):
        table = pd.read_csv(file, header=None, dtype={1: str, 2: str}, keep_default_na=False)
        topics, titles, descriptions = (table[column] for column in table)
        labels = checked_labels(str(file), topics.to_numpy(), len(table), len(TOPICS), first=1) - 1
    texts = zip(titles, descriptions, strict=True)
    return [WORD.findall(f"{title} {text}".lower()) for title, text in texts], labels


def vocabulary(texts: list[list[str]], most: int) -> dict[str, int]:
    """The token of each word."""
    counts = Counter(word for words in texts for word in words)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:most]
    return {word: token for token, word in enumerate(frequent, FIRST)}


def word_tokens(texts: list[list[str]], tokens: dict[str, int], length: int) -> np.ndarray:
    """int64 [n, length]."""
    numbers = np.full((len(texts), length), PAD, np.int64)
    for row, words in enumerate(texts):
        numbers_of_text = [tokens.get(word, UNKNOWN) for word in words[:length]]
        numbers[row, : len(numbers_of_text)] = numbers_of_text
    return numbers
