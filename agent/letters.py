"""Dead letters of a VM on their way to the controller: kept until it has them on its disk. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from headgate.topology_runtime.letters import DeadLetter, DeadLetters, LettersTaken, weighed

A_MESSAGE, AGAIN_MOST = 30, 2000  # letters of 7,000 characters each, which may be 28,000 bytes
WHOLE_MOST = 2000  # letters that wait whole; of more (the controller is away) only what they are of
AGAIN_NS = 5_000_000_000  # not taken for so long: said again


class LetterBox:
    """Letters are numbered from 0 on in an agent's life (`boot`). What workers that are no more have `left` on the
    VM's disk may go once the controller has it."""

    def __init__(self, vm: str, boot: int, left: Iterable[DeadLetter] = ()) -> None:
        self._vm, self._boot = vm, boot
        self._first = 0  # number of the first that waits
        self._waiting: deque[DeadLetter] = deque()
        self._said_ns = 0  # when the first that waits was said last; −1: it has only now become the first
        self._left = -1  # those below this number are on the disk; −1: none is
        self.add(left, 0, left=True)

    def add(self, letters: Iterable[DeadLetter], now_ns: int, left: bool = False) -> list[DeadLetters]:
        """New ones; what to say of them. left: a worker has ended, these were the last of it."""
        begin = len(self._waiting)
        for letter in letters:
            whole = len(self._waiting) < WHOLE_MOST
            self._waiting.append(letter if whole else letter.bare())
        self._left = self._first + len(self._waiting) if left else self._left
        return self._say(begin, len(self._waiting), now_ns)

    def over(self) -> bool:
        """True once, when the controller has all that is on the disk of workers that are no more."""
        over = 0 <= self._left <= self._first
        self._left = -1 if over else self._left
        return over

    def taken(self, word: LettersTaken) -> None:
        """The controller has those below this number."""
        while word.boot == self._boot and self._waiting and self._first < word.below:
            self._waiting.popleft()
            self._first += 1
            self._said_ns = -1

    def again(self, now_ns: int) -> list[DeadLetters]:
        """What waits, once more: bounded, the others follow when these are taken."""
        return self._say(0, min(len(self._waiting), AGAIN_MOST), now_ns)

    def overdue(self, now_ns: int) -> bool:
        self._said_ns = now_ns if self._said_ns < 0 else self._said_ns
        return bool(self._waiting) and now_ns - self._said_ns >= AGAIN_NS

    def _say(self, begin: int, end: int, now_ns: int) -> list[DeadLetters]:
        self._said_ns = now_ns if begin == 0 else self._said_ns
        letters, said = list(islice(self._waiting, begin, end)), list[DeadLetters]()
        while letters:
            count = weighed(letters, A_MESSAGE)
            part, letters = tuple(letters[:count]), letters[count:]
            said.append(DeadLetters(self._vm, part, self._boot, self._first + begin, self._first))
            begin += count
        return said
