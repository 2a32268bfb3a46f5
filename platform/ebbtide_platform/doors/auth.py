"""Who is asking: an API key fixes the tenant, and nothing that was sent can change it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request

from ebbtide_platform.errors import Forbidden, Unauthenticated
from ebbtide_platform.ports import KeyDoor, Principal, Scope

REMEMBERED_S = 1.0
"""A revoked key is refused at every door after this time at the latest; the promise is two seconds."""
REMEMBERED_KEYS = 1024
MAX_KEY_CHARACTERS = 256


class Authenticator:
    """Asks the key door who a key is, and remembers the answer for a second; safe from any thread."""

    def __init__(self, door: KeyDoor, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._door = door
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    def require(self, scope: Scope) -> Callable[[Request], Principal]:
        """A dependency of a route: the principal behind the request, if it may do what ``scope`` says."""

        def principal(request: Request) -> Principal:
            return self.principal(request, scope)

        return principal

    def principal(self, request: Request, scope: Scope) -> Principal:
        """Who asks; needs nothing but the request's headers and query. May block: call it in a thread.

        Raises:
            Unauthenticated: there is no key, or one that is unknown or revoked.
            Forbidden: the key lacks ``scope``, or another tenant is named beside it.
            Unavailable: the key door does not answer.
        """
        found = self._recognise(_bearer(request))
        if scope not in found.scopes:
            raise Forbidden(f"this API key lacks the scope {scope}", try_this=f"ebbtide key create --scope {scope}")
        check_tenant_named(found, request.query_params.get("tenant"))
        check_tenant_named(found, request.headers.get("x-tenant"))
        return found

    def _recognise(self, api_key: str) -> Principal:
        # The digest stands for the key, so that no key lies in memory longer than its request.
        digest = hashlib.sha256(api_key.encode("utf-8", "replace")).digest()
        now = self._clock()
        with self._lock:
            asked, principal = self._known.get(digest, (now, None))
            if principal is not None and now - asked < REMEMBERED_S:
                return principal
            self._known.pop(digest, None)
        principal = self._door.authenticate(api_key)
        with self._lock:
            self._known[digest] = (now, principal)
            while len(self._known) > REMEMBERED_KEYS:
                self._known.popitem(last=False)
        return principal


def check_tenant_named(principal: Principal, tenant: str | None) -> None:
    """See that ``tenant``, where a request names one, is the key's own.

    Raises:
        Forbidden: it is another; the answer is the same whether or not that one exists.
    """
    if tenant not in (None, principal.tenant):
        raise Forbidden("this API key is not that tenant's", try_this="leave the tenant out: the key says it")


def _bearer(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not 0 < len(key) <= MAX_KEY_CHARACTERS:
        raise Unauthenticated("no API key", try_this="send it as `Authorization: Bearer ebb_...`")
    return key
