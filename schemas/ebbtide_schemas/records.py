"""What stands on the log: headers without personal data, sealed segments, and references between stages.

Every record is msgpack. Readers ignore members they do not know, so that yesterday's code survives
tomorrow's records; a record of another *version* is quarantined, never guessed. Ids are UUIDv8 strings,
times are integer milliseconds since the epoch, all digests are lower-case hex.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ebbtide_schemas.events import BranchKind, EndMark, RewardSource, Role

RECORD_VERSION = 1

SealClass = Literal["raw", "redacted", "quarantine"]
Level = Literal["recorded", "replayable", "token-exact"]
Verdict = Literal["eligible", "held", "rejected"]
GroupState = Literal["complete", "short", "expired"]
SegmentKind = Literal["message", "tool-definition", "sampler", "hidden", "rendered"]


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The leniency that all log types share."""


# --- sealed content ---------------------------------------------------------------------------------------


class SealedChunk(_Record, frozen=True, kw_only=True):
    """One piece of a sealed segment; everything but ``nonce`` and ``data`` is bound as associated data."""

    segment: str
    tenant: str
    trajectory: str | None
    """None: the content key is the tenant's own (tool definitions, segments about nobody)."""
    subjects: tuple[str, ...]
    seal_class: SealClass
    first_event: str
    """The event that carried this segment first."""
    nonce: bytes
    data: bytes
    chunk: int = 0
    chunks: int = 1
    day: str | None = None
    """Only for seal class quarantine: the day key (YYYY-MM-DD) that seals what nobody is known to own."""


class SegmentRef(_Record, frozen=True, kw_only=True):
    """Where a segment stands in a step, and nothing of what it says."""

    id: str
    kind: SegmentKind
    role: Role | None = None
    subjects: tuple[str, ...] = ()
    about_nobody: bool = False
    """True: sealed under the tenant's key, so no person's erasure takes it."""
    size: int = 0
    """Bytes of the canonical segment."""


# --- steps, aliases, rewards -------------------------------------------------------------------------------


class GroupRef(_Record, frozen=True, kw_only=True):
    """The group a trajectory belongs to, with ids that are keyed by tenant and so never meet another's."""

    id: str
    size: int
    index: int | None = None
    task: str | None = None
    environment: str | None = None
    verifier: str | None = None
    seed: int | None = None


class StepHeader(_Record, frozen=True, kw_only=True):
    """The clear part of a step: ids, order, governance fields. ``digest`` covers all of it but receipt time
    and ``time_suspect``, which is judged by it."""

    event: str
    tenant: str
    trajectory: str
    session: str
    ordinal: int
    parent: str | None
    branch: BranchKind
    removed: tuple[int, ...] = ()
    end: EndMark | None = None
    prefix: int = 0
    observation: tuple[SegmentRef, ...] = ()
    tools: tuple[SegmentRef, ...] = ()
    action: SegmentRef | None = None
    outcome: tuple[SegmentRef, ...] = ()
    hidden: SegmentRef | None = None
    sampler: SegmentRef | None = None
    agent: str = ""
    agent_version: str | None = None
    harness: str | None = None
    prompt_version: str | None = None
    tools_version: str | None = None
    model: str | None = None
    adapter: str | None = None
    group: GroupRef | None = None
    consent_basis: str | None = None
    purpose: str | None = None
    jurisdiction: str | None = None
    retention: str | None = None
    producer: str | None = None
    subjects: tuple[str, ...] = ()
    subject_declared: bool = False
    """False: nobody was named, and the session's own fresh subject stands in."""
    finish_reason: str | None = None
    status: str = "ok"
    latency_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    level: Level = "recorded"
    event_ms: int | None = None
    """The producer's clock, as given; None when it named no time that can be read."""
    time_suspect: bool = False
    flags: tuple[str, ...] = ()
    """What the door had to mend, e.g. ``surrogates_replaced``."""
    received_ms: int = 0
    digest: str = ""


class StepRecord(_Record, frozen=True, kw_only=True, tag="step"):
    """``ebbtide.steps.v1``: a header and those of its segments that no earlier event carried."""

    header: StepHeader
    sealed: tuple[SealedChunk, ...] = ()
    version: int = RECORD_VERSION


class ChunkRecord(_Record, frozen=True, kw_only=True, tag="chunk"):
    """``ebbtide.steps.v1``: a chunk too large to travel inside its step; it always stands before it."""

    tenant: str
    trajectory: str
    sealed: SealedChunk
    version: int = RECORD_VERSION


class AliasRecord(_Record, frozen=True, kw_only=True, tag="alias"):
    """``ebbtide.aliases.v1``: this name (of a step, response or correlation) means that trajectory."""

    alias: str
    tenant: str
    trajectory: str
    step: str | None
    received_ms: int
    version: int = RECORD_VERSION


class RewardRecord(_Record, frozen=True, kw_only=True, tag="reward"):
    """``ebbtide.rewards.v1`` and, once ``trajectory`` is known, ``ebbtide.routed.v1``."""

    event: str
    tenant: str
    alias: str
    """The target's alias; equal to ``trajectory`` when the trajectory itself was named."""
    value: float
    name: str
    source: RewardSource
    received_ms: int
    event_ms: int | None = None
    time_suspect: bool = False
    supersedes: str | None = None
    trajectory: str | None = None
    step: str | None = None
    reason: tuple[SealedChunk, ...] = ()
    digest: str = ""
    """HMAC over the canonical reward under the tenant's id key: the same id with another digest is a conflict."""
    version: int = RECORD_VERSION


# --- findings ----------------------------------------------------------------------------------------------


class Finding(_Record, frozen=True, kw_only=True):
    """One detected span, in code points of one string leaf; no text."""

    leaf: str
    """JSON pointer of the string leaf inside the segment; ``#`` enters JSON held in a string."""
    start: int
    end: int
    type: str
    score: float
    entity: str = ""
    """Keyed digest of the normalised value; the key dies with any subject of the segment."""
    key: bool = False
    """True: the span is in the object key at ``leaf``, not in its value."""


class SegmentFindings(_Record, frozen=True, kw_only=True):
    """What redaction saw in one new segment."""

    segment: str
    state: Literal["scanned", "erased", "repeat"] = "scanned"
    findings: tuple[Finding, ...] = ()
    binary: bool = False
    """True: the segment holds bytes (picture, sound) that a text detector cannot vouch for."""


class FindingsRecord(_Record, frozen=True, kw_only=True, tag="findings"):
    """``ebbtide.findings.v1``: a step, carried on without its text, and what was found in it."""

    header: StepHeader
    segments: tuple[SegmentFindings, ...]
    redaction: str
    """Version of the detectors that looked, e.g. ``presidio-2.2.366/en_core_web_sm``."""
    version: int = RECORD_VERSION


# --- settled trajectories -----------------------------------------------------------------------------------


class EffectiveReward(_Record, frozen=True, kw_only=True):
    """A reward that counts in a revision; raw value, provenance and lateness stay apart."""

    event: str
    name: str
    value: float
    source: RewardSource
    event_ms: int
    """Event time clamped to receipt time."""
    late: bool
    step: str | None = None
    supersedes: str | None = None


class RenderedRef(_Record, frozen=True, kw_only=True):
    """One segment of a chain as it may be shown: sealed under class ``redacted`` in the segment store."""

    segment: str
    role: Role | None
    trained: bool
    """True for what the agent itself produced."""
    hole: bool = False
    """True: erased. Position and role stay."""
    subjects: tuple[str, ...] = ()
    about_nobody: bool = False


class Chain(_Record, frozen=True, kw_only=True):
    """A maximal run of steps in which each extends the one before: one curated sample."""

    sample: str
    steps: tuple[str, ...]
    segments: tuple[RenderedRef, ...]
    rollout_weight: float
    level: Level = "recorded"


class SettledRecord(_Record, frozen=True, kw_only=True, tag="settled"):
    """``ebbtide.trajectories.v1``: one revision of a trajectory; ``digest`` says what it is, ``revision`` its turn."""

    tenant: str
    trajectory: str
    session: str
    revision: int
    supersedes: int | None
    digest: str
    root: str
    """SHA-256 over the step digests in chain order: the trajectory root."""
    chains: tuple[Chain, ...]
    rewards: tuple[EffectiveReward, ...]
    steps: int
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
    holes: int = 0
    missing_parents: int = 0
    binary: bool = False
    flags: tuple[str, ...] = ()
    findings: dict[str, int] = {}
    redaction: str = ""
    first_ms: int = 0
    last_ms: int = 0
    settled_ms: int = 0
    """The tick that settled it; receipt time, never part of the digest."""
    version: int = RECORD_VERSION


# --- decisions, samples, groups ------------------------------------------------------------------------------


class DecisionRecord(_Record, frozen=True, kw_only=True, tag="decision"):
    """``ebbtide.decisions.v1``: the verdict on one revision, with all its reasons and what it was based on."""

    settled: SettledRecord
    verdict: Verdict
    reasons: tuple[str, ...]
    policy: str
    """``name@version``."""
    facts_offset: int
    """Facts below this offset were known; the curator looks again at the newest."""
    decided_ms: int
    version: int = RECORD_VERSION


class CuratedRecord(_Record, frozen=True, kw_only=True, tag="sample"):
    """``ebbtide.curated.<tenant>.v1``: one sample; its segments are sealed, the rest holds no text."""

    sample: str
    tenant: str
    trajectory: str
    revision: int
    supersedes: int | None
    facts_offset: int
    policy: str
    chain: Chain
    sealed: tuple[SealedChunk, ...]
    """Rendered segments in chain order; a hole has none."""
    settled: SettledRecord
    """The settled trajectory without its chains."""
    version: int = RECORD_VERSION


class WithdrawalRecord(_Record, frozen=True, kw_only=True, tag="withdrawal"):
    """``ebbtide.curated.<tenant>.v1``: from here on the sample must not be trained on. Never a null value."""

    sample: str
    tenant: str
    trajectory: str
    revision: int
    facts_offset: int
    reasons: tuple[str, ...]
    version: int = RECORD_VERSION


class MemberRecord(_Record, frozen=True, kw_only=True, tag="member"):
    """``ebbtide.members.v1``: the newest verdict on one member, keyed by its group."""

    group: GroupRef
    tenant: str
    trajectory: str
    revision: int
    facts_offset: int
    verdict: Verdict
    reasons: tuple[str, ...]
    decided_ms: int
    version: int = RECORD_VERSION


class GroupMember(_Record, frozen=True, kw_only=True):
    """One member as a closed group names it."""

    trajectory: str
    revision: int
    verdict: Verdict
    reasons: tuple[str, ...]


class GroupRecord(_Record, frozen=True, kw_only=True, tag="group"):
    """``ebbtide.groups.v1``: a closed group; a later change of a member makes a new revision."""

    group: GroupRef
    tenant: str
    state: GroupState
    revision: int
    members: tuple[GroupMember, ...]
    closed_ms: int
    version: int = RECORD_VERSION


# --- facts, ticks, quarantine --------------------------------------------------------------------------------


class Policy(_Record, frozen=True, kw_only=True):
    """The rules a verdict follows; a document with a name and a version."""

    name: str = "default"
    version: int = 1
    purposes: tuple[str, ...] = ("training",)
    reward_window_s: float = 86_400.0
    """How long after the last step a reward still belongs to revision 0."""
    required_rewards: tuple[str, ...] = ()
    """Names that must be there; empty means: any one reward."""
    idle_s: float = 1_800.0
    """A trajectory without end mark is over after this much silence (receipt time)."""
    group_deadline_s: float = 604_800.0
    max_text_bytes: int = 4_000_000
    allow_binary: bool = False
    require_subject: bool = False


class FactRecord(_Record, frozen=True, kw_only=True, tag="fact"):
    """``ebbtide.facts.v1``: one act of governance, in total order, without personal data."""

    kind: Literal["policy", "consent", "hold", "erasure", "tenant", "review"]
    tenant: str | None
    fact_ms: int
    subject: str | None = None
    trajectory: str | None = None
    purpose: str | None = None
    """For consent: the purpose it is about; None means every purpose."""
    state: Literal["given", "withdrawn", "set", "lifted", "approved", "refused"] | None = None
    policy: Policy | None = None
    version: int = RECORD_VERSION


class TickRecord(_Record, frozen=True, kw_only=True, tag="tick"):
    """``ebbtide.ticks.v1``: receipt time as a record, so that a replay closes the same windows."""

    tick_ms: int
    version: int = RECORD_VERSION


class QuarantineRecord(_Record, frozen=True, kw_only=True, tag="quarantine"):
    """``ebbtide.quarantine.v1``: what could not be processed, sealed whole, with the reason; replayable."""

    stage: str
    reason: str
    """A code, never a message: messages repeat input."""
    topic: str
    partition: int
    offset: int
    tenant: str | None
    trajectory: str | None
    event: str | None
    sealed: tuple[SealedChunk, ...]
    quarantined_ms: int
    version: int = RECORD_VERSION


StepTopicRecord = StepRecord | ChunkRecord
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
