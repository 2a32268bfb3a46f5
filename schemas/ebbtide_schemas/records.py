"""What stands on the log: headers without personal data, sealed segments, and references between stages.

Every record is msgpack. Readers ignore members they do not know, so that yesterday's code survives
tomorrow's records; a record of another *version* is quarantined, never guessed. Ids are UUIDv8 strings,
times are integer milliseconds since the epoch, all digests are lower-case hex.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ebbtide_schemas.events import Count, EndMark, RewardSource, Role
from ebbtide_schemas.headers import ClaimedMs, Finite, LogStruct, ReceiptMs
from ebbtide_schemas.headers import GroupRef as GroupRef
from ebbtide_schemas.headers import GroupState as GroupState
from ebbtide_schemas.headers import Level as Level
from ebbtide_schemas.headers import SealClass as SealClass
from ebbtide_schemas.headers import SealedChunk as SealedChunk
from ebbtide_schemas.headers import SegmentKind as SegmentKind
from ebbtide_schemas.headers import SegmentRef as SegmentRef
from ebbtide_schemas.headers import StepHeader as StepHeader
from ebbtide_schemas.headers import Verdict as Verdict

RECORD_VERSION = 1

Id = Annotated[str, Meta(min_length=1, max_length=63)]
"""One of our ids. A fact that names none of any use would be met again with every tick."""

Seconds = Annotated[float, Meta(ge=0, le=3_155_760_000)]
"""How long a policy lets something wait: up to a century, so that every deadline is a date."""


class StepRecord(LogStruct, frozen=True, kw_only=True, tag="step"):
    """``ebbtide.steps.v1``: a header and those of its segments that no earlier event carried."""

    header: StepHeader
    sealed: tuple[SealedChunk, ...] = ()
    version: int = RECORD_VERSION


class ChunkRecord(LogStruct, frozen=True, kw_only=True, tag="chunk"):
    """``ebbtide.steps.v1``: a chunk too large to travel inside its step; it always stands before it."""

    tenant: str
    trajectory: str
    sealed: SealedChunk
    version: int = RECORD_VERSION


class AliasRecord(LogStruct, frozen=True, kw_only=True, tag="alias"):
    """``ebbtide.aliases.v1``: this name (of a step, response or correlation) means that trajectory."""

    alias: str
    tenant: str
    trajectory: str
    step: str | None
    received_ms: ReceiptMs
    version: int = RECORD_VERSION


class RewardRecord(LogStruct, frozen=True, kw_only=True, tag="reward"):
    """``ebbtide.rewards.v1`` and, once ``trajectory`` is known, ``ebbtide.routed.v1``."""

    event: str
    tenant: str
    alias: str
    """The target's alias; equal to ``trajectory`` when the trajectory itself was named."""
    value: Finite
    name: str
    source: RewardSource
    received_ms: ReceiptMs
    event_ms: ClaimedMs | None = None
    time_suspect: bool = False
    supersedes: str | None = None
    trajectory: str | None = None
    step: str | None = None
    reason: tuple[SealedChunk, ...] = ()
    digest: str = ""
    """HMAC over the canonical reward under the tenant's id key: the same id with another digest is a conflict."""
    version: int = RECORD_VERSION


# --- findings ----------------------------------------------------------------------------------------------


class Finding(LogStruct, frozen=True, kw_only=True):
    """One detected span, in code points of one string leaf; no text."""

    leaf: str
    """JSON pointer of the string leaf inside the segment; ``#`` enters JSON held in a string, and the members of
    an object are counted in sorted order (in JSON text: as they stand), since a key can be personal."""
    start: Count
    end: Count
    type: str
    score: Finite
    entity: str = ""
    """Keyed digest of the normalised value; the key dies with any subject of the segment."""
    key: bool = False
    """True: the span is in the object key at ``leaf``, not in its value."""


class SegmentFindings(LogStruct, frozen=True, kw_only=True):
    """What redaction saw in one new segment."""

    segment: str
    state: Literal["scanned", "erased", "repeat"] = "scanned"
    findings: tuple[Finding, ...] = ()
    binary: bool = False
    """True: the segment holds bytes (picture, sound) that a text detector cannot vouch for."""


class FindingsRecord(LogStruct, frozen=True, kw_only=True, tag="findings"):
    """``ebbtide.findings.v1``: a step, carried on without its text, and what was found in it."""

    header: StepHeader
    segments: tuple[SegmentFindings, ...]
    redaction: str
    """Version of the detectors that looked, e.g. ``presidio-2.2.366/en_core_web_sm``."""
    version: int = RECORD_VERSION


# --- settled trajectories -----------------------------------------------------------------------------------


class EffectiveReward(LogStruct, frozen=True, kw_only=True):
    """A reward that counts in a revision; raw value, provenance and lateness stay apart."""

    event: str
    name: str
    value: Finite
    source: RewardSource
    event_ms: ClaimedMs
    """Event time clamped to receipt time."""
    late: bool
    step: str | None = None
    supersedes: str | None = None


class RenderedRef(LogStruct, frozen=True, kw_only=True):
    """One segment of a chain as it may be shown: sealed under class ``redacted`` in the segment store."""

    segment: str
    role: Role | None
    trained: bool
    """True for what the agent itself produced."""
    hole: bool = False
    """True: erased. Position and role stay."""
    subjects: tuple[str, ...] = ()
    about_nobody: bool = False


class Chain(LogStruct, frozen=True, kw_only=True):
    """A maximal run of steps in which each extends the one before: one curated sample."""

    sample: str
    steps: tuple[str, ...]
    segments: tuple[RenderedRef, ...]
    rollout_weight: Finite
    level: Level = "recorded"


class SettledRecord(LogStruct, frozen=True, kw_only=True, tag="settled"):
    """``ebbtide.trajectories.v1``: one revision of a trajectory; ``digest`` says what it is, ``revision`` its turn."""

    tenant: str
    trajectory: str
    session: str
    revision: Count
    supersedes: Count | None
    digest: str
    root: str
    """SHA-256 over the step digests in chain order: the trajectory root."""
    chains: tuple[Chain, ...]
    rewards: tuple[EffectiveReward, ...]
    steps: Count
    subjects: tuple[str, ...]
    subject_declared: bool
    end: EndMark | Literal["idle"]
    agent: str
    model: str | None = None
    adapter: str | None = None
    purpose: str | None = None
    consent_basis: str | None = None
    jurisdiction: str | None = None
    retention: str | None = None
    group: GroupRef | None = None
    level: Level = "recorded"
    holes: Count = 0
    missing_parents: Count = 0
    text_bytes: Count = 0
    """Bytes of its canonical segments before redaction, each counted once."""
    binary: bool = False
    flags: tuple[str, ...] = ()
    findings: dict[str, Count] = msgspec.field(default_factory=dict)
    redaction: str = ""
    first_ms: ClaimedMs = 0
    last_ms: ClaimedMs = 0
    settled_ms: ReceiptMs = 0
    """The tick that settled it; receipt time, never part of the digest."""
    version: int = RECORD_VERSION


# --- decisions, samples, groups ------------------------------------------------------------------------------


class DecisionRecord(LogStruct, frozen=True, kw_only=True, tag="decision"):
    """``ebbtide.decisions.v1``: the verdict on one revision, with all its reasons and what it was based on."""

    settled: SettledRecord
    verdict: Verdict
    reasons: tuple[str, ...]
    policy: str
    """``name@version``."""
    facts_offset: Count
    """Facts below this offset were known; the curator looks again at the newest."""
    decided_ms: ReceiptMs
    version: int = RECORD_VERSION


class CuratedRecord(LogStruct, frozen=True, kw_only=True, tag="sample"):
    """``ebbtide.curated.<tenant>.v1``: one sample; its segments are sealed, the rest holds no text."""

    sample: str
    tenant: str
    trajectory: str
    revision: Count
    supersedes: Count | None
    facts_offset: Count
    policy: str
    chain: Chain
    sealed: tuple[SealedChunk, ...]
    """Rendered segments in chain order; a hole has none."""
    settled: SettledRecord
    """The settled trajectory without its chains."""
    version: int = RECORD_VERSION


class WithdrawalRecord(LogStruct, frozen=True, kw_only=True, tag="withdrawal"):
    """``ebbtide.curated.<tenant>.v1``: from here on the sample must not be trained on. Never a null value."""

    sample: str
    tenant: str
    trajectory: str
    revision: Count
    facts_offset: Count
    reasons: tuple[str, ...]
    version: int = RECORD_VERSION


class MemberRecord(LogStruct, frozen=True, kw_only=True, tag="member"):
    """``ebbtide.members.v1``: the newest verdict on one member, keyed by its group."""

    group: GroupRef
    tenant: str
    trajectory: str
    revision: Count
    facts_offset: Count
    verdict: Verdict
    reasons: tuple[str, ...]
    decided_ms: ReceiptMs
    version: int = RECORD_VERSION


class GroupMember(LogStruct, frozen=True, kw_only=True):
    """One member as a closed group names it."""

    trajectory: str
    revision: Count
    verdict: Verdict
    reasons: tuple[str, ...]


class GroupRecord(LogStruct, frozen=True, kw_only=True, tag="group"):
    """``ebbtide.groups.v1``: a closed group; a later change of a member makes a new revision."""

    group: GroupRef
    tenant: str
    state: GroupState
    revision: Count
    members: tuple[GroupMember, ...]
    closed_ms: ReceiptMs
    version: int = RECORD_VERSION


# --- facts, ticks, quarantine --------------------------------------------------------------------------------


class Policy(LogStruct, frozen=True, kw_only=True):
    """The rules a verdict follows; a document with a name and a version."""

    name: str = "default"
    version: int = 1
    purposes: tuple[str, ...] = ("training",)
    reward_window_s: Seconds = 86_400.0
    """How long after the last step a reward still belongs to revision 0."""
    required_rewards: tuple[str, ...] = ()
    """Names that must be there; empty means: any one reward."""
    idle_s: Seconds = 1_800.0
    """A trajectory without end mark is over after this much silence (receipt time)."""
    group_deadline_s: Seconds = 604_800.0
    max_text_bytes: Count = 4_000_000
    allow_binary: bool = False
    require_subject: bool = False


class FactRecord(LogStruct, frozen=True, kw_only=True, tag="fact"):
    """``ebbtide.facts.v1``: one act of governance, in total order, without personal data."""

    kind: Literal["policy", "consent", "hold", "erasure", "tenant", "review"]
    tenant: str | None
    fact_ms: ReceiptMs
    subject: Id | None = None
    trajectory: Id | None = None
    purpose: str | None = None
    """For consent: the purpose it is about; None means every purpose."""
    state: Literal["given", "withdrawn", "set", "lifted", "approved", "refused"] | None = None
    policy: Policy | None = None
    version: int = RECORD_VERSION


class TickRecord(LogStruct, frozen=True, kw_only=True, tag="tick"):
    """``ebbtide.ticks.v1``: receipt time as a record, so that a replay closes the same windows."""

    tick_ms: ReceiptMs
    version: int = RECORD_VERSION


class QuarantineRecord(LogStruct, frozen=True, kw_only=True, tag="quarantine"):
    """``ebbtide.quarantine.v1``: what could not be processed, sealed whole, with the reason; replayable."""

    stage: str
    reason: str
    """A code, never a message: messages repeat input."""
    topic: str
    partition: Count
    offset: Count
    tenant: str | None
    trajectory: str | None
    event: str | None
    sealed: tuple[SealedChunk, ...]
    quarantined_ms: ReceiptMs
    version: int = RECORD_VERSION


CuratedTopicRecord = CuratedRecord | WithdrawalRecord
LogRecord = (
    StepRecord
    | ChunkRecord
    | AliasRecord
    | RewardRecord
    | FindingsRecord
    | SettledRecord
    | DecisionRecord
    | CuratedRecord
    | WithdrawalRecord
    | MemberRecord
    | GroupRecord
    | FactRecord
    | TickRecord
    | QuarantineRecord
)
