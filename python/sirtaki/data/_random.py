"""Random numbers that are the same on every machine, in Rust and in Python.

The order of samples has to be the same on all ranks and after a restart, so it comes from no other
library's generator. This is ``sirtaki::random`` of the Rust package, number for number:
xoshiro256++ (Blackman and Vigna), its state filled by SplitMix64 (Steele, Lea and Flood).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

_WORD = 0xFFFF_FFFF_FFFF_FFFF
_STEP = 0x9E37_79B9_7F4A_7C15


def _mix(value: int) -> int:
    z = (value + _STEP) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _WORD
    return z ^ (z >> 31)


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _WORD


class Stream:
    """The stream of random numbers that belongs to a purpose and some numbers.

    >>> stream = Stream("order", 42, 7)
    >>> [stream.below(1000) for _ in range(3)]
    [764, 388, 817]
    """

    def __init__(self, purpose: str, *key: int) -> None:
        state = _mix(len(purpose))
        for byte in purpose.encode():
            state = _mix(state ^ byte)
        state = _mix(state ^ len(key))
        for number in key:
            state = _mix(_rotated(state, 17) ^ _mix(number & _WORD))
        self._state = tuple(_mix((state + count * _STEP) & _WORD) for count in range(4))

    def below(self, limit: int) -> int:
        """A number from 0 to ``limit - 1``, all equally likely."""
        return next(self.below_each([limit]))

    def below_each(self, limits: Any) -> Any:
        """Such a number for each limit, one after another."""
        a, b, c, d = self._state
        for limit in limits:
            while True:
                rest = (a + d) & _WORD
                bits = (((rest << 23) | (rest >> 41)) + a) & _WORD
                c ^= a
                d ^= b
                a, b, c = a ^ d, b ^ c, c ^ ((b << 17) & _WORD)
                d = ((d << 45) | (d >> 19)) & _WORD
                product = bits * limit
                low = product & _WORD
                # The few values that would make some results likelier are not used.
                if low >= limit or low >= (_WORD + 1 - limit) % limit:
                    break
            self._state = (a, b, c, d)
            yield product >> 64


@lru_cache(maxsize=4)
def order(samples: int, seed: int, epoch: int) -> np.ndarray[Any, Any]:
    """The order of all samples in an epoch.

    >>> order(12, 42, 0).tolist()
    [5, 7, 6, 10, 8, 0, 3, 1, 4, 11, 9, 2]
    """
    numbers = list(range(samples))
    places = range(samples - 1, 0, -1)
    stream = Stream("order of samples", seed, epoch)
    for last, other in zip(places, stream.below_each(range(samples, 1, -1))):
        numbers[last], numbers[other] = numbers[other], numbers[last]
    found = np.array(numbers, np.int64)
    found.flags.writeable = False
    return found


def draws(samples: int, seed: int, rank: int, number: int, count: int) -> np.ndarray[Any, Any]:
    """Samples that a rank draws at random for its batch of this number."""
    stream = Stream("draws of samples", seed, rank, number)
    return np.array(list(stream.below_each([samples] * count)), np.int64)
