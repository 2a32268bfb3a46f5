"""Every error that Ebbtide raises on purpose, under one root.

::

    EbbtideError
    ├── InvalidInput            a caller sent something a rule forbids: names the field and the rule
    │   ├── TooLarge            the same, for size and depth
    │   ├── Conflict            the same id came with another content
    │   ├── SubjectErased       it is about a person who has been erased
    │   └── Unsupported         a media type or content coding that no door reads
    ├── Unauthenticated         no key, or one that is unknown or revoked
    ├── Forbidden               a known key that may not do this
    ├── NotFound                no such thing for this tenant
    ├── Overloaded              a bounded queue is full; says when to come back
    ├── Unavailable             a part that is needed does not answer
    ├── Misconfigured           a setting, a file or a program of the machine is not as needed
    ├── SealError               sealed content
    │   ├── Corrupt             it was changed, or opened as something it is not
    │   └── Denied              the key door refused
    └── Poison                  a record on a topic that can never be processed: goes to quarantine

``Erased`` is no error: it is an ordinary outcome of opening (`ebbtide_platform.sealing`).
"""

from __future__ import annotations

FAULT = 70
"""EX_SOFTWARE of sysexits: the exit code of a fault of the program, worth a restart and a look at the log."""


class EbbtideError(Exception):
    """Says what happened, and what to try; its text never repeats input, so it is safe to log."""

    exit_code = 1
    http_status = 500
    code = "error"

    def __init__(self, happened: str, *, try_this: str = "") -> None:
        super().__init__(happened)
        self.happened = happened
        self.try_this = try_this

    def diagnostics(self) -> str:
        """The message for the person at the terminal: what happened, then what to do."""
        return f"{self.happened}\n  try: {self.try_this}" if self.try_this else self.happened


class InvalidInput(EbbtideError):
    """A caller sent something that a rule forbids; ``field`` is a path such as ``meta.agent``."""

    exit_code = 2
    http_status = 422
    code = "invalid"

    def __init__(self, field: str, rule: str, *, try_this: str = "") -> None:
        super().__init__(f"{field}: {rule}", try_this=try_this)
        self.field = field
        self.rule = rule


class TooLarge(InvalidInput):
    """A size or depth limit was passed."""

    http_status = 413
    code = "too_large"


class Conflict(InvalidInput):
    """The same id came before with another content; the first one stands."""

    http_status = 409
    code = "conflict"


class SubjectErased(InvalidInput):
    """What was sent is about a person who has been erased, and can never be taken."""

    http_status = 410
    code = "subject_erased"


class Unsupported(InvalidInput):
    """A media type or content coding that no door reads."""

    http_status = 415
    code = "unsupported"


class Unauthenticated(EbbtideError):
    """No API key, or one that is unknown or revoked."""

    exit_code = 3
    http_status = 401
    code = "unauthenticated"


class Forbidden(EbbtideError):
    """The key is known and may not do this."""

    exit_code = 3
    http_status = 403
    code = "forbidden"


class NotFound(EbbtideError):
    """There is no such thing for this tenant; the same answer whether or not another tenant has it."""

    exit_code = 4
    http_status = 404
    code = "not_found"


class Overloaded(EbbtideError):
    """A bounded queue is full."""

    exit_code = 5
    http_status = 429
    code = "overloaded"

    def __init__(self, happened: str, *, retry_after_s: float, try_this: str = "") -> None:
        super().__init__(happened, try_this=try_this)
        self.retry_after_s = retry_after_s


class Unavailable(EbbtideError):
    """A part that is needed does not answer."""

    exit_code = 5
    http_status = 503
    code = "unavailable"


class Misconfigured(EbbtideError):
    """A setting, a file or a program of this machine is not as needed."""

    exit_code = 6
    http_status = 500
    code = "misconfigured"


class SealError(EbbtideError):
    """Sealed content could not be opened."""

    code = "seal"


class Corrupt(SealError):
    """The bytes were changed, or are being opened as something they are not."""

    code = "corrupt"


class Denied(SealError):
    """The key door refused this workload the key."""

    code = "denied"


class Poison(EbbtideError):
    """A record that can never be processed; ``reason`` is the code under which it is quarantined."""

    code = "poison"

    def __init__(self, reason: str) -> None:
        super().__init__(f"record cannot be processed: {reason}")
        self.reason = reason
