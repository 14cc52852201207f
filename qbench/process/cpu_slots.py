"""How many processes may work beside each other, over everything that a run does at one time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    """``count`` places, one core each. Work waits for its first place; it takes more only while they are free and
    nobody waits, and gives them back between two parts of its work."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"slots: expected at least 1, got {count}")
        self._free, self._waiting = count, 0
        self._changed = threading.Condition()

    @contextmanager
    def occupy(self) -> Iterator[None]:
        """Holds one place, as soon as there is one."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._free > 0)
            self._waiting -= 1
            self._free -= 1
        try:
            yield
        finally:
            self.give_back()

    def take_spare(self) -> bool:
        """Takes one more place if there is one that nobody waits for; ``give_back`` returns it."""
        with self._changed:
            if self._free <= 0 or self._waiting:
                return False
            self._free -= 1
            return True

    def give_back(self) -> None:
        """Returns a place that ``take_spare`` took."""
        with self._changed:
            self._free += 1
            self._changed.notify()

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for a first place: whoever holds more than one gives one back."""
        return self._waiting > 0
