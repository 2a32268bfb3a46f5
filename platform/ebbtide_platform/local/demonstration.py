"""The demo's run: publishes a workload through the SDK, waits until all is decided, and proves what was promised."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ebbtide.client import Client
from ebbtide.configuration import Configuration
from ebbtide_platform.adapters.kafka import Follower
from ebbtide_platform.codec import decode_any
from ebbtide_platform.errors import Unavailable
from ebbtide_platform.local.workload import TENANTS, Conversation, Reward
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import curated
from ebbtide_schemas.samples import Sample

SETTLE_WAIT_S = 180.0
"""How long everything may take to be decided: minutes on a slow machine, seconds on a quick one."""
POLL_S = 0.5
QUIET_POLLS = 4
"""The counts must stand still for so many polls before they count as the end."""
READ_BYTES = 1 << 20

Note = Callable[[str, int, int], None]
"""Called with a phase, how far it is, and its total."""


@dataclass
class Proofs:
    """What the demo promises; each must hold."""

    accounts_balance: bool = False
    samples_in_foreign_topics: int = 0
    readable_values_on_disk: int = 0
    refused_people_curated: int = 0
    duplicate_samples: int = 0

    @property
    def hold(self) -> bool:
        """True if every promise was kept."""
        broken = (
            self.samples_in_foreign_topics,
            self.readable_values_on_disk,
            self.refused_people_curated,
            self.duplicate_samples,
        )
        return self.accounts_balance and not any(broken)


@dataclass
class Result:
    """The figures of one demo run."""

    conversations: int = 0
    rewards_sent: int = 0
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The API's status by tenant."""
    samples: dict[str, int] = field(default_factory=dict)
    planted: Counter[str] = field(default_factory=Counter)
    """Known values in the conversations that became samples, by kind."""
    removed: Counter[str] = field(default_factory=Counter)
    """How many of them no longer occur in their sample."""
    files_searched: int = 0
    bytes_searched: int = 0
    elapsed_s: float = 0.0
    proofs: Proofs = field(default_factory=Proofs)


def demonstrate(
    settings: Settings, keys: Mapping[str, str], conversations: Sequence[Conversation], window_s: float, note: Note
) -> Result:
    """Run the whole job against a platform that is up; ``window_s`` is its reward window.

    Raises:
        Unavailable: the platform did not come to rest in time.
    """
    began = time.monotonic()
    result = Result(conversations=len(conversations))
    clients = {tenant: Client(Configuration(settings.api_url, keys[tenant])) for tenant in TENANTS}
    try:
        late = _publish(clients, conversations, result, note)
        _await_rest(settings, keys, Counter(c.tenant for c in conversations), note)
        time.sleep(window_s)  # a reward is late only once its window has passed
        for tenant, trajectory, reward in late:
            _reward(clients[tenant], trajectory, reward, result)
        result.status = _await_rest(settings, keys, Counter(c.tenant for c in conversations), note)
        _read_back(settings, keys, clients, conversations, result, note)
    finally:
        for client in clients.values():
            client.close()
    _search_disk(settings.data_dir, conversations, result, note)
    result.proofs.accounts_balance = all(_balances(status) for status in result.status.values())
    result.proofs.samples_in_foreign_topics = _foreign_samples(settings)
    result.elapsed_s = time.monotonic() - began
    return result


def _publish(
    clients: Mapping[str, Client], conversations: Sequence[Conversation], result: Result, note: Note
) -> list[tuple[str, str, Reward]]:
    """Publish every conversation; returns the rewards that are to come late."""
    late: list[tuple[str, str, Reward]] = []
    for index, conversation in enumerate(conversations):
        client = clients[conversation.tenant]
        trajectory = _name(index)
        if conversation.refuses:
            client.consent(conversation.person.reference, "withdrawn", purpose="training")
        for reward in conversation.rewards:
            if reward.disorder == "before the steps":
                _reward(client, trajectory, reward, result)
        with client.session(
            agent=conversation.agent, subject=conversation.person.reference, purpose="training", trajectory=trajectory
        ) as session:
            for turn in conversation.turns:
                session.record(turn.messages, turn.answer)
        for reward in conversation.rewards:
            if reward.disorder == "late":
                late.append((conversation.tenant, trajectory, reward))
            elif reward.disorder != "before the steps":
                for _ in range(2 if reward.disorder == "twice" else 1):
                    _reward(client, trajectory, reward, result)
        note("publishing", index + 1, len(conversations))
    for client in clients.values():
        client.flush(SETTLE_WAIT_S)
    return late


def _reward(client: Client, trajectory: str, reward: Reward, result: Result) -> None:
    client.reward(None, reward.value, reward.name, trajectory=trajectory, reward_id=f"{trajectory}-{reward.name}")
    result.rewards_sent += 1


def _await_rest(
    settings: Settings, keys: Mapping[str, str], expected: Mapping[str, int], note: Note
) -> dict[str, dict[str, Any]]:
    """The status of each tenant once every trajectory is decided and nothing moves any more."""
    deadline = time.monotonic() + SETTLE_WAIT_S
    total = sum(expected.values())
    quiet, before = 0, b""
    while time.monotonic() < deadline:
        status = {tenant: _status(settings, keys[tenant]) for tenant in TENANTS}
        accounts = [status[tenant]["account"] for tenant in TENANTS]
        decided = sum(account["trajectories_in"] - account["open"] for account in accounts)
        note("deciding", decided, total)
        now = msgspec.json.encode(status, order="deterministic")
        rewards = [status[tenant]["rewards"] for tenant in TENANTS]
        done = decided == total and all(reward["parked"] == 0 for reward in rewards)
        quiet = quiet + 1 if done and now == before else 0
        if quiet == QUIET_POLLS:
            return status
        before = now
        time.sleep(POLL_S)
    raise Unavailable(
        f"not everything was decided within {SETTLE_WAIT_S:.0f} s",
        try_this="look at the platform's log, or run it with `ebbtide up` and ask `ebbtide status`",
    )


def _status(settings: Settings, key: str) -> dict[str, Any]:
    answer = httpx.get(f"{settings.api_url}/v1/status", headers={"authorization": f"Bearer {key}"}, timeout=30.0)
    answer.raise_for_status()
    status: dict[str, Any] = answer.json()
    return status


def _read_back(
    settings: Settings,
    keys: Mapping[str, str],
    clients: Mapping[str, Client],
    conversations: Sequence[Conversation],
    result: Result,
    note: Note,
) -> None:
    """Consume every sample, and look for what was planted in the conversation it came from."""
    texts: dict[str, str] = {}
    for tenant, client in clients.items():
        samples = [record for record in client.curated(tenant) if isinstance(record, Sample)]
        result.samples[tenant] = len(samples)
        result.proofs.duplicate_samples += len(samples) - len({sample.id for sample in samples})
        texts |= {sample.trajectory: _text(sample) for sample in samples}
    with httpx.Client(base_url=settings.api_url, timeout=30.0) as http:
        for index, conversation in enumerate(conversations):
            headers = {"authorization": f"Bearer {keys[conversation.tenant]}"}
            trajectory = http.get(f"/v1/trajectories/{_name(index)}", headers=headers).json()["trajectory"]
            text = texts.get(trajectory)
            if text is not None:
                result.proofs.refused_people_curated += conversation.refuses
                for kind, value in conversation.values:
                    result.planted[kind] += 1
                    result.removed[kind] += value not in text
            note("reading samples", index + 1, len(conversations))


def _text(sample: Sample) -> str:
    """All strings of a sample's messages, with JSON inside strings unescaped once."""
    return msgspec.json.encode(sample.messages).decode().replace('\\"', '"')


def _search_disk(folder: Path, conversations: Sequence[Conversation], result: Result, note: Note) -> None:
    """Search every file the platform wrote (log segments, databases, outbox, its own log) for planted values."""
    needles = sorted({value.encode() for conversation in conversations for _, value in conversation.values})
    overlap = max(map(len, needles), default=1)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for number, path in enumerate(files):
        found: set[bytes] = set()
        for block in _blocks(path, overlap):
            result.bytes_searched += len(block)
            found |= {needle for needle in needles if needle in block}
        result.proofs.readable_values_on_disk += len(found)
        result.files_searched += 1
        note("searching the disk", number + 1, len(files))


def _blocks(path: Path, overlap: int) -> Iterator[bytes]:
    """The file in overlapping blocks, so that a value on a border is seen; sparse index files are mostly zeros."""
    with path.open("rb") as file:
        tail = b""
        while block := file.read(READ_BYTES):
            yield tail + block
            tail = block[-overlap:]


def _foreign_samples(settings: Settings) -> int:
    """Records in a tenant's curated topic that name another tenant."""
    foreign = 0
    for tenant in TENANTS:
        with Follower(settings, [curated(tenant)]) as follower:
            for record in follower.read_to_end():
                foreign += getattr(decode_any(record.value), "tenant", None) != tenant
    return foreign


def _balances(status: Mapping[str, Any]) -> bool:
    account = status["account"]
    places = ("eligible", "rejected", "held", "open", "quarantined")
    return bool(account["trajectories_in"] == sum(account[place] for place in places))


def _name(index: int) -> str:
    return f"demo-{index:04d}"
