"""Attempts under way: each asks for its timeout when it begins, and records once how it ended."""

from __future__ import annotations

import asyncio
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from barograph._native import Decision, write_unraisable

if TYPE_CHECKING:
    from barograph._link import AdaptiveTimeout


class Timeout(TimeoutError):
    """An attempt was cut off because its timeout had passed, and there was no other."""

    decision: Decision
    """Why the attempt was given so long."""
    seconds: float
    """How long it ran."""
    number: int
    """0 for the first attempt of its exchange, 1 for the first retry."""
    tries: int
    """How many attempts the exchange had in all; 2 where the second was left to the caller."""


AnyTimeout = TypeVar("AnyTimeout", bound=Timeout)
End = Literal["answered", "timed_out", "superseded", "failed"]


class Attempt:
    """One attempt without a deadline of its own, for callers that cut it off by other means."""

    def __init__(self, link: AdaptiveTimeout, bytes: int, number: int, tries: int, elapsed: float) -> None:
        self._link = link
        self._about = (bytes, number, tries, elapsed)
        self._number, self._tries = number, tries
        self._ended = False
        self._decision: Decision | None = None
        self._made = self._began = 0.0

    def begin(self) -> Self:
        """Decides how long it may take, and starts its clock."""
        if self._decision is not None:
            raise RuntimeError("an attempt begins only once")
        self._decision = self._link.decide(*self._about)
        self._made = self._began = time.monotonic()
        return self

    @property
    def decision(self) -> Decision:
        """How long it may take, and why; known once it has begun."""
        if self._decision is None:
            raise RuntimeError("the timeout of an attempt is set when the attempt begins: enter it first")
        return self._decision

    @property
    def timeout(self) -> float:
        """How long it may take, in seconds."""
        return self.decision.timeout

    @property
    def is_last(self) -> bool:
        """Whether no attempt of this exchange comes after it."""
        return self._tries <= self._number + 1

    @property
    def seconds(self) -> float:
        """How long it has run."""
        # A coarse clock may stand still for a while, but nothing takes no time.
        return max(time.monotonic() - self._began, CLOCK_TICK)

    def started(self) -> None:
        """The attempt begins only now: what went before (waiting for a connection) is no part of it."""
        self._began = time.monotonic()

    def connected(self) -> None:
        """As `started`, and what went before was the set-up of a new connection."""
        self._link.connected(max(time.monotonic() - self._made, CLOCK_TICK))
        self.started()

    def end(self, how: End, seconds: float | None = None) -> None:
        """Records how the attempt ended, now or after `seconds`; only the first end counts."""
        if self._ended:
            return
        self._ended = True
        took = self.seconds if seconds is None else seconds
        getattr(self._link, how)(took, *self._about)
        if how == "answered" and (on_answer := self._link.on_answer) is not None:
            try:
                on_answer(took)
            except Exception as error:
                # It must not turn an answer into a failure: told as what is raised while an object is freed.
                write_unraisable(error, on_answer)

    def ended_by(self, error: BaseException) -> None:
        """Records that `error`, which is no timeout of this attempt, ended it."""
        # Cancellation means that the caller no longer waits, not that the link failed.
        self.end("failed" if isinstance(error, Exception) else "superseded")

    def has_run_out(self) -> bool:
        """Whether the timeout has passed, so that an error that says so can have come from it."""
        return TIMER_SLACK * self.timeout <= self.seconds

    def as_error(self, kind: type[AnyTimeout], seconds: float) -> AnyTimeout:
        """The exception for an attempt that was cut off after so long."""
        error = kind(f"no answer within {seconds:.6g} s: {self.decision!r}")
        error.decision, error.seconds = self.decision, seconds
        error.number, error.tries = self._number, self._tries
        return error


class AsyncAttempt(Attempt):
    """`async with link.attempt() as attempt:` cancels what is inside when its timeout has passed."""

    def __init__(
        self, link: AdaptiveTimeout, bytes: int, number: int, tries: int, elapsed: float, *, connects: bool
    ) -> None:
        super().__init__(link, bytes, number, tries, elapsed)
        self._connects = connects

    def started(self) -> None:
        super().started()
        if not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time() + self.timeout)

    async def __aenter__(self) -> Self:
        self.begin()
        self._deadline = asyncio.timeout(None if self._connects else self.timeout)
        await self._deadline.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = self.seconds
        try:
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError as cut:
            self.end("timed_out", seconds)
            raise self.as_error(Timeout, seconds) from cut
        if error is None:
            self.end("answered", seconds)
        elif self._deadline.expired():
            # What ran inside made another error of our cancellation.
            self.end("timed_out", seconds)
        else:
            self.ended_by(error)


class BlockingAttempt(Attempt):
    """`with link.attempt_blocking() as attempt:` – pass `attempt.timeout` on to what blocks.

    An error that says that time ran out, when it has, becomes a `Timeout`.
    """

    def __enter__(self) -> Self:
        self.begin()
        self._outer = sys.exception()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = self.seconds
        if error is None:
            self.end("answered", seconds)
        elif not says_timeout(error, self._outer):
            self.ended_by(error)
        elif self.has_run_out():
            self.end("timed_out", seconds)
            raise self.as_error(Timeout, seconds) from error
        else:
            # A shorter timeout than ours, from somewhere else.
            self.end("superseded", seconds)


def says_timeout(error: BaseException, outer: BaseException | None) -> bool:
    """Whether `error`, or what caused it, is a TimeoutError.

    Libraries wrap the socket's TimeoutError in exceptions of their own (urllib, urllib3, requests). `outer`,
    which was being handled before, is no cause.
    """
    cause: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if cause is None or cause is outer:
            return False
        if isinstance(cause, TimeoutError):
            return True
        reason = getattr(cause, "reason", None)
        cause = reason if isinstance(reason, BaseException) else cause.__cause__ or cause.__context__
    return False


CLOCK_TICK = max(time.get_clock_info("monotonic").resolution, 1e-9)
"""The least that is said to have taken any time: a tick of the clock, and no less than the core's nanosecond."""

TIMER_SLACK = 0.99
"""Timers may round down a little, and are read by another clock than ours."""

CAUSES_MAX = 8
"""Deeper than any library wraps its errors (requests: three)."""
