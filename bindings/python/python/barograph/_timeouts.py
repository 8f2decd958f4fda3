"""A bounded set of links, one for each target."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from barograph._link import AdaptiveTimeout
from barograph._native import Host

TARGETS_MAX = 1024
"""At up to 4 KB a link, 4 MB: enough for a program's targets, and a bound on what names from outside cost."""


class Timeouts:
    """One `AdaptiveTimeout` for each target, such as "host:port"; they share what they learn of this host.

    Beyond `targets_max` the target unused for longest is forgotten. `make` makes a new link, for example
    `lambda host: AdaptiveTimeout(host=host, limit=60)`.
    """

    def __init__(
        self, make: Callable[[Host], AdaptiveTimeout] | None = None, *, targets_max: int = TARGETS_MAX
    ) -> None:
        if targets_max < 1:
            raise ValueError(f"targets_max must be at least 1, not {targets_max}")
        self._make = make or (lambda host: AdaptiveTimeout(host=host))
        self._targets_max = targets_max
        self._host = Host()
        self._links: OrderedDict[str, AdaptiveTimeout] = OrderedDict()
        self._lock = threading.Lock()

    def link(self, target: str) -> AdaptiveTimeout:
        """The link to `target`, new if it is not known."""
        with self._lock:
            if (link := self._links.get(target)) is not None:
                self._links.move_to_end(target)
                return link
        # Outside of the lock: `make` is the user's, and may ask for another link. Of two that are made at
        # once for one target the first stays.
        made = self._make(self._host)
        with self._lock:
            link = self._links.setdefault(target, made)
            self._links.move_to_end(target)
            if self._targets_max < len(self._links):
                self._links.popitem(last=False)
            return link

    def links(self) -> dict[str, AdaptiveTimeout]:
        """Every known target with its link, that used last at the end."""
        with self._lock:
            return dict(self._links)

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, target: str) -> bool:
        return target in self._links
