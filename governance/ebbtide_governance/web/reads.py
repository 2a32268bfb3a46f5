"""Routes that read the read model; each answers for the key's tenant and no other.

Another tenant's id gets the answer of an id that nobody has, word for word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from ebbtide_governance.tables.reading import ReadModel
from ebbtide_platform.errors import NotFound
from ebbtide_platform.ports import Principal
from ebbtide_platform.sealing.identity import event_id, trajectory_id
from ebbtide_schemas.records import Verdict

PAGE = 100
MAX_PAGE = 500

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str, Query(max_length=128)]


def reads_router(
    model: ReadModel,
    authenticate: Callable[[Request], Principal],
    identity_key: Callable[[str], bytes],
) -> APIRouter:
    """The read routes, over a way to tell who asks with the scope ``read``, and the tenants' identity keys."""
    router = APIRouter(prefix="/v1", tags=["reads"])

    def tenant_of(request: Request) -> str:
        return authenticate(request).tenant

    @router.get("/status")
    def status(tenant: str = Depends(tenant_of)) -> Response:
        """Counts, account, latency and last errors of the tenant."""
        return _json(model.status(tenant))

    @router.get("/trajectories")
    def trajectories(
        tenant: str = Depends(tenant_of),
        verdict: Verdict | Literal["open", "quarantined"] | None = None,
        cursor: Cursor = "",
        limit: Limit = PAGE,
    ) -> Response:
        """Trajectories in the order of their ids, of one state if it is asked for."""
        return _json(model.trajectories(tenant, state=verdict, after=cursor, limit=limit))

    @router.get("/trajectories/{id}")
    def trajectory(id: str, tenant: str = Depends(tenant_of)) -> Response:  # noqa: A002  # the path says {id}
        """Why a trajectory stands where it stands; the id may be Ebbtide's or the producer's own, also of a step."""
        view = model.why(tenant, id)
        if view is None:
            key = identity_key(tenant)
            owner = model.trajectory_of_step(tenant, [id, event_id(key, id)])
            view = model.why(tenant, owner or trajectory_id(key, id))
        if view is None:
            raise NotFound("there is no such trajectory")
        return _json(view)

    @router.get("/groups")
    def groups(tenant: str = Depends(tenant_of), cursor: Cursor = "", limit: Limit = PAGE) -> Response:
        """Groups with their state, in the order of their ids."""
        return _json(model.groups(tenant, after=cursor, limit=limit))

    @router.get("/quarantine")
    def quarantine(tenant: str = Depends(tenant_of), cursor: Cursor = "", limit: Limit = PAGE) -> Response:
        """Records that could not be processed, newest first: references and reasons, never content."""
        return _json(model.quarantine(tenant, before=cursor, limit=limit))

    return router


def _json(view: Any) -> Response:
    return Response(msgspec.json.encode(view), media_type="application/json")
