"""`AdaptiveTimeout`: what the native estimator decides, applied to calls."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self, TypedDict, TypeVar

from barograph import _native
from barograph._attempt import AsyncAttempt, BlockingAttempt, Timeout

T = TypeVar("T")


class AdaptiveTimeout(_native.AdaptiveTimeout):
    """How long to wait for one link – an ordered pair of this program and a target – to answer.

    `bytes` is what an exchange moves both ways, as far as it is known beforehand; `tries` is how many attempts
    it may make in all. Only what is said to be idempotent is ever sent twice; its last try runs to `limit`. A call
    that is not ends early, as the first of two tries: the caller is told, and may make the second.
    """

    on_answer: Callable[[float], object] | None = None
    """Called with the seconds that each answered attempt took, for example `barograph.station.Feed`.

    What it raises goes to `sys.unraisablehook`: the call was answered all the same.
    """

    @classmethod
    def load(cls, saved: bytes, **settings: Any) -> Self:
        """The link that `save` saved, with the settings of the constructor."""
        return cls(saved=saved, **settings)

    def attempt(
        self, *, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0, connects: bool = False
    ) -> AsyncAttempt:
        """A single attempt: `async with link.attempt() as attempt:`, as `asyncio.timeout`; it begins there.

        Where it `connects` first, its time starts when `attempt.connected()` or `attempt.started()` is called.
        """
        return AsyncAttempt(self, bytes, number, self._tries(tries), elapsed, connects=connects)

    def attempt_blocking(
        self, *, bytes: int = 0, number: int = 0, tries: int | None = None, elapsed: float = 0.0
    ) -> BlockingAttempt:
        """A single attempt of blocking code, which must respect `attempt.timeout`; it begins at its `with`."""
        return BlockingAttempt(self, bytes, number, self._tries(tries), elapsed)

    async def call(
        self, make: Callable[[], Awaitable[T]], *, bytes: int = 0, tries: int | None = None, idempotent: bool = False
    ) -> T:
        """Awaits `make()`; when its timeout passes, cancels it and, if it is idempotent, makes another.

        Raises `Timeout` with the decision when the last try was cut off, or the only one of what is not
        idempotent; and whatever `make()` raises.
        """
        for about in exchange(bytes, self._tries(tries), repeatable=idempotent):
            attempt = self.attempt(**about)
            try:
                async with attempt:
                    return await make()
            except Timeout as cut:
                if not (idempotent and is_to_repeat(cut, attempt)):
                    raise
        raise AssertionError("the last try returns or raises")

    def call_blocking(
        self, function: Callable[[float], T], *, bytes: int = 0, tries: int | None = None, idempotent: bool = False
    ) -> T:
        """As `call`, for a function that is given its timeout in seconds and raises when it has passed.

        TimeoutError says that, and so does any error that a TimeoutError caused.
        """
        for about in exchange(bytes, self._tries(tries), repeatable=idempotent):
            attempt = self.attempt_blocking(**about)
            try:
                with attempt:
                    return function(attempt.timeout)
            except Timeout as cut:
                if not (idempotent and is_to_repeat(cut, attempt)):
                    raise
        raise AssertionError("the last try returns or raises")

    def _tries(self, tries: int | None) -> int:
        if tries is not None and tries < 1:
            raise ValueError(f"tries must be at least 1, not {tries}")
        return self.tries if tries is None else tries


class About(TypedDict):
    """What an estimator is told about an attempt."""

    bytes: int
    number: int
    tries: int
    elapsed: float


def exchange(bytes: int, tries: int, *, repeatable: bool) -> Iterator[About]:
    """The attempts of one exchange that begins now: if it is not `repeatable`, one, the first of `PLAIN_TRIES`."""
    began = time.monotonic()
    made = tries if repeatable else 1
    tries = tries if repeatable else PLAIN_TRIES
    for number in range(made):
        yield {"bytes": bytes, "number": number, "tries": tries, "elapsed": time.monotonic() - began}


def is_to_repeat(cut: Timeout, attempt: AsyncAttempt | BlockingAttempt) -> bool:
    """Whether `cut` ended this very attempt (a call inside may have a link of its own), and more are left."""
    return cut.decision is attempt.decision and cut.number + 1 < cut.tries


PLAIN_TRIES = 2
"""The caller can make the second try of what we may not repeat, so the first need not run to the limit."""
