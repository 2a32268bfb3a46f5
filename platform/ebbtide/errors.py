"""What the SDK raises, and only from calls that answer a question: recording never raises.

::

    EbbtideSDKError
    ├── ServerUnreachable    no server answers at the configured URL
    └── RequestRefused       it answered, and refused: names the field and the rule
"""

from __future__ import annotations

from typing import Self

import msgspec


class EbbtideSDKError(Exception):
    """The root of everything the SDK raises on purpose."""


class ServerUnreachable(EbbtideSDKError):
    """No server answers; ``kind`` is the transport's word for why."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"no Ebbtide server answers ({kind}); start one with `ebbtide up`, or set EBBTIDE_URL")
        self.kind = kind


class RequestRefused(EbbtideSDKError):
    """The server refused; ``status`` is HTTP's, ``code``, ``field`` and ``rule`` are the server's."""

    def __init__(self, status: int, code: str, field: str | None, rule: str, try_this: str | None) -> None:
        where = f"{field}: " if field else ""
        hint = f"; try: {try_this}" if try_this else ""
        super().__init__(f"refused ({status} {code}): {where}{rule}{hint}")
        self.status, self.code, self.field, self.rule = status, code, field, rule

    @classmethod
    def of(cls, status: int, body: bytes) -> Self:
        """The error that an answer's JSON body describes."""
        try:
            error = msgspec.json.decode(body)["error"]
            return cls(
                status,
                str(error.get("code", "error")),
                error.get("field"),
                str(error.get("rule", "")),
                error.get("try"),
            )
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            return cls(status, "error", None, "the answer has no explanation", None)
