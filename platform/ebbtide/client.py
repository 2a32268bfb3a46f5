"""One server and one key: the object behind the module's functions, for programs that need more than one."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import httpx
import msgspec

from ebbtide.configuration import Configuration
from ebbtide.errors import RequestRefused, ServerUnreachable
from ebbtide.publisher import Counts, Publisher
from ebbtide.reading import find_transport, read_curated
from ebbtide.session import Session, open_session, send_reward
from ebbtide.verification import Receipt
from ebbtide_schemas.events import Correlation, Group, RewardSource, RewardTarget
from ebbtide_schemas.samples import Curated

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
"""Longer than the server's own longest wait for new samples."""
EXIT_FLUSH_S = 5.0
"""Leaving a session or the program waits at most this long for a server that is slow or away."""


log = logging.getLogger("ebbtide")


class _Nowhere(httpx.BaseTransport):
    """Stands in for a server that cannot be named: a wrong setting must not stop the agent."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.UnsupportedProtocol("the configuration names no server", request=request)


class Client:
    """Publishes, reads and forgets for the tenant that the API key belongs to."""

    def __init__(self, configuration: Configuration, transport: httpx.BaseTransport | None = None) -> None:
        if (problem := configuration.problem) is not None:
            log.warning("ebbtide: %s; nothing is sent", problem)
            configuration, transport = Configuration(), _Nowhere()
        headers = {"authorization": f"Bearer {configuration.api_key}"} if configuration.api_key else {}
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        self._http = httpx.Client(base_url=configuration.url, headers=headers, timeout=timeout, transport=transport)
        self._publisher = Publisher(self._post_events)
        atexit.register(self.close)

    @property
    def counts(self) -> Counts:
        """How many events were sent, refused by a rule, or lost to a full queue."""
        return self._publisher.counts

    def publish(self, event: bytes) -> None:
        """Queue one ATDP event (a line of JSON)."""
        self._publisher.put(event)

    def flush(self, timeout_s: float = EXIT_FLUSH_S) -> bool:
        """Wait until everything queued is answered; False if it took longer."""
        return self._publisher.flush(timeout_s)

    def session(
        self,
        *,
        agent: str,
        subject: str | None = None,
        purpose: str | None = "training",
        session: str | None = None,
        trajectory: str | None = None,
        model: str | None = None,
        group: Group | None = None,
        correlations: Mapping[str, str] | None = None,
        **labels: str,
    ) -> Session:
        """A new episode of ``agent`` about ``subject``; use it in a ``with`` block, whose end ends the trajectory.

        ``correlations`` are outside ids by kind, such as ``{"ticket": "T-88"}``, by which a reward can find it;
        ``labels`` are further ATDP metadata: agent_version, harness, adapter, jurisdiction, consent_basis, ...
        """
        return open_session(
            self.publish,
            self.flush,
            agent=agent,
            subject=subject,
            purpose=purpose,
            session=session,
            trajectory=trajectory,
            model=model,
            group=group,
            labels=labels,
            correlations=correlations,
        )

    def reward(
        self,
        answer_id: str | None,
        value: float,
        name: str = "reward",
        *,
        response: str | None = None,
        trajectory: str | None = None,
        correlation: tuple[str, str] | None = None,
        source: RewardSource = "human",
        reason: str | None = None,
        reward_id: str | None = None,
        supersedes: str | None = None,
    ) -> str:
        """Reward an answer, or with ``answer_id=None`` a provider's response, a trajectory or a correlated id.

        Returns the reward's id.
        """
        outside = Correlation(kind=correlation[0], value=correlation[1]) if correlation else None
        target = RewardTarget(step=answer_id, response=response, trajectory=trajectory, correlation=outside)
        return send_reward(
            self.publish,
            target,
            value,
            name=name,
            source=source,
            reason=reason,
            reward_id=reward_id,
            supersedes=supersedes,
        )

    def curated(
        self,
        tenant: str,
        *,
        follow: bool = False,
        cursor: str | None = None,
        withdrawals: bool = False,
        transport: str = "http",
    ) -> Iterator[Curated]:
        """Samples in their newest revision, up to now; with ``follow``, then each new one as it comes.

        Every record's ``cursor`` resumes after it, over any ``transport``. A consumer that lives longer than one
        read passes ``withdrawals=True`` and stops using what a `Withdrawal` names. ``transport="kafka"`` reads
        beside the platform, without the API: it needs the extra ``ebbtide[trainer]`` and the platform's settings.

        Raises:
            ValueError: there is no such transport here.
        """
        if transport != "http":
            read = find_transport(transport)
            return read(tenant, follow=follow, cursor=cursor, withdrawals=withdrawals)
        return read_curated(self._get, tenant, follow=follow, cursor=cursor, withdrawals=withdrawals)

    def consent(self, subject: str, state: Literal["given", "withdrawn"], *, purpose: str | None = None) -> None:
        """Record a person's will; it acts on what is curated already as well as on what comes."""
        self._act("/v1/consents", {"subject": subject, "state": state, "purpose": purpose})

    def forget(self, subject: str) -> Receipt:
        """Destroy the keys of a person; returns a signed receipt that `ebbtide.verify` checks offline."""
        answer = self._act("/v1/erasures", {"subject": subject})
        return msgspec.json.decode(answer.content, type=Receipt)

    def close(self) -> None:
        """Flush for a bounded time and let go of the connections."""
        atexit.unregister(self.close)
        self._publisher.close(EXIT_FLUSH_S)
        self._http.close()

    def _post_events(self, lines: bytes) -> httpx.Response:
        return self._http.post("/v1/events", content=lines, headers={"content-type": "application/x-ndjson"})

    def _get(self, path: str, parameters: Mapping[str, str]) -> httpx.Response:
        return _checked(lambda: self._http.get(path, params=dict(parameters)))

    def _act(self, path: str, body: Mapping[str, str | None]) -> httpx.Response:
        content = {name: value for name, value in body.items() if value is not None}
        return _checked(lambda: self._http.post(path, json=content))


def _checked(send: Callable[[], httpx.Response]) -> httpx.Response:
    try:
        answer = send()
    except httpx.HTTPError as error:
        raise ServerUnreachable(type(error).__name__) from None
    if answer.status_code >= 400:
        raise RequestRefused.of(answer.status_code, answer.content)
    return answer
