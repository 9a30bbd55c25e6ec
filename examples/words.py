"""Counts the words of a text file: split each line, count by word.

    headgate up examples/words.py:flow --rates 200 --seconds 5
    headgate up examples/words.py:flow --rates 200 --seconds 5 --input book.txt

Without --input it counts the words of this file. One sees words.jsonl grow: a line ["word", 3] each time a word comes,
so that the last line of a word has its count.
"""

import os
import re

from headgate import Context, Exhausted, Source, Static, flat_map, topology
from headgate.tasks import CollectToFile, CountByKey


class Lines(Source):
    """The lines of a file, once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines: list[str] = []

    def open(self, context: Context) -> None:
        with open(self.path, encoding="utf-8") as file:
            self.lines = file.read().splitlines()

    def read(self, position: int, limit: int) -> list[str]:
        if position >= len(self.lines):
            raise Exhausted
        return self.lines[position : position + limit]


@flat_map
def split(line: str) -> list[str]:
    return re.findall(r"[a-z]+", line.lower())


def itself(word: str) -> str:
    return word


flow = topology("words")
lines = flow.source("lines", Lines, path=os.path.abspath(__file__))
words = flow.task("split", split).emits(6)  # about six words a line
count = flow.task("count", CountByKey)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("words.jsonl"))
lines >> words >> count.by(itself) >> store
