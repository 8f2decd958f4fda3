"""What the helpers for HTTP clients have in common."""

from __future__ import annotations

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""RFC 9110 §9.2.2: repeating these has the effect of doing them once."""

BYTES_MAX = 2**63 - 1
"""No body is longer; the core counts bytes in 64 bits."""


def is_idempotent(method: str) -> bool:
    """Whether a request with `method` may be sent twice."""
    return method.upper() in IDEMPOTENT


def length(header: str | None) -> int:
    """What a Content-Length says, 0 if it says nothing that can be understood."""
    if header is None or not (header.isascii() and header.isdigit() and len(header) <= len(str(BYTES_MAX))):
        return 0
    return min(int(header), BYTES_MAX)
