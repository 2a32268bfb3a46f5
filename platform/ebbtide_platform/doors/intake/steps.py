"""A step to its records: chunks that travel alone, the step itself, the names it has, the rewards it came with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from ebbtide_platform.doors.intake.drafts import Draft, Names, People, erased, out_record, references
from ebbtide_platform.doors.intake.outline import Piece, Place, own_identities
from ebbtide_platform.doors.intake.rewards import reward_out, reward_record
from ebbtide_platform.errors import TooLarge
from ebbtide_platform.ports import Erased, KeyScope, OutRecord
from ebbtide_platform.sealing.identity import (
    alias_id,
    event_id,
    group_id,
    session_id,
    task_id,
    trajectory_id,
    uuid8,
)
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.topics import ALIASES, STEPS
from ebbtide_schemas.chain import header_digest
from ebbtide_schemas.events import SPEC_VERSION, Reward, RewardTarget, Step
from ebbtide_schemas.records import (
    AliasRecord,
    ChunkRecord,
    GroupRef,
    RewardRecord,
    SealedChunk,
    SegmentRef,
    StepHeader,
    StepRecord,
)
from ebbtide_schemas.validation import event_time, level_of


def draft_step(
    step: Step, flags: Sequence[str], pieces: Sequence[Piece], names: Names, people: People, sealer: Sealer
) -> Draft:
    """The step with everything but its ciphertext; ``pieces`` are its outline, ``flags`` what was mended in it.

    Raises:
        SubjectErased: somebody it is about has been erased.
    """
    refs = [_reference(piece, sealer) for piece in pieces]
    header = _header(step, flags, list(zip(pieces, refs, strict=True)), names, people)
    aliases = _aliases(step, header, names)
    rewards = _rewards_at_emission(step, header, names)

    def seal() -> tuple[OutRecord, ...]:
        sealed = _seal(pieces, refs, header.event, sealer)
        return (
            *_step_records(header, sealed, names),
            *(out_record(ALIASES, alias.alias, "alias", alias, header.event, names) for alias in aliases),
            *(reward_out(_with_reason(record, reason, header, sealer), names) for record, reason in rewards),
        )

    # What the header's digest does not cover, but a repeat has to repeat.
    parts = [header.digest, *(alias.alias for alias in aliases), *(record.digest for record, _ in rewards)]
    return Draft(header.event, hashlib.sha256("\n".join(parts).encode()).hexdigest(), seal)


# --- the header ------------------------------------------------------------------------------------------------


def _reference(piece: Piece, sealer: Sealer) -> SegmentRef:
    segment = sealer.segment_id(piece.scope, piece.plain)
    if isinstance(segment, Erased):
        raise erased(piece.field)
    return SegmentRef(
        id=segment,
        kind=piece.kind,
        role=piece.role,
        subjects=piece.scope.subjects,
        about_nobody=not piece.scope.subjects,
        size=len(piece.plain),
    )


def _header(
    step: Step, flags: Sequence[str], placed: Sequence[tuple[Piece, SegmentRef]], names: Names, people: People
) -> StepHeader:
    def at(place: Place) -> tuple[SegmentRef, ...]:
        return tuple(ref for piece, ref in placed if piece.place == place)

    key, meta, outcome, usage = names.key, step.meta, step.outcome, step.outcome.usage
    event_ms, suspect = event_time(meta.time, names.received_ms)
    header = StepHeader(
        event=event_id(key, step.id),
        tenant=names.tenant,
        trajectory=trajectory_id(key, step.trajectory),
        session=session_id(key, meta.session or step.trajectory),
        ordinal=step.ordinal,
        parent=None if step.parent is None else event_id(key, step.parent),
        branch=step.branch,
        removed=tuple(step.removed),
        end=step.end,
        prefix=step.observation.prefix,
        observation=at("observation"),
        tools=at("tools"),
        action=next(iter(at("action")), None),
        outcome=at("outcome"),
        hidden=next(iter(at("hidden")), None),
        sampler=next(iter(at("sampler")), None),
        agent=meta.agent,
        agent_version=meta.agent_version,
        harness=meta.harness,
        prompt_version=meta.prompt_version,
        tools_version=meta.tools_version,
        model=meta.model,
        adapter=meta.adapter,
        group=_group(step, key),
        consent_basis=meta.consent_basis,
        purpose=meta.purpose,
        jurisdiction=meta.jurisdiction,
        retention=meta.retention,
        producer=meta.producer,
        subjects=tuple(sorted(set(references(own_identities(step), people, "meta.subjects")))),
        subject_declared=bool(meta.subjects),
        finish_reason=outcome.finish_reason,
        status=outcome.status,
        latency_ms=outcome.latency_ms,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        level=level_of(step),
        event_ms=event_ms,
        time_suspect=suspect,
        flags=tuple(sorted(flags)),
        received_ms=names.received_ms,
    )
    return msgspec.structs.replace(header, digest=header_digest(header))


def _group(step: Step, key: bytes) -> GroupRef | None:
    group = step.meta.group
    if group is None:
        return None
    return GroupRef(
        id=group_id(key, group.id),
        size=group.size,
        index=group.index,
        task=None if group.task is None else task_id(key, group.task),
        environment=group.environment,
        verifier=group.verifier,
        seed=group.seed,
    )


def _aliases(step: Step, header: StepHeader, names: Names) -> list[AliasRecord]:
    """The names by which a reward may find the step; the trajectory's alias is its own id and needs none.

    An outside id names no step: several steps of a trajectory carry the same ticket, and which of them came
    first must not show in a revision.
    """
    key, meta = names.key, step.meta
    aliases: dict[str, str | None] = {alias_id(key, "step", step.id): header.event}
    if meta.response_id is not None:
        aliases[alias_id(key, "response", meta.response_id)] = header.event
    for outside in meta.correlations:
        aliases[alias_id(key, f"correlation:{outside.kind}", outside.value)] = None
    return [
        AliasRecord(
            alias=alias,
            tenant=header.tenant,
            trajectory=header.trajectory,
            step=named,
            received_ms=header.received_ms,
        )
        for alias, named in aliases.items()
    ]


def _rewards_at_emission(step: Step, header: StepHeader, names: Names) -> list[tuple[RewardRecord, str | None]]:
    """(record, reason) of each; its id follows from the step's, so that a repeat of the step repeats it."""
    found = []
    for position, known in enumerate(step.rewards):
        reward = Reward(
            specversion=SPEC_VERSION,
            id=step.id,
            target=RewardTarget(step=step.id),
            value=known.value,
            name=known.name,
            source=known.source,
            reason=known.reason,
            time=step.meta.time,
        )
        event = uuid8(names.key, "event", step.id, "reward", str(position))
        record = reward_record(reward, event, names)
        record = msgspec.structs.replace(record, trajectory=header.trajectory, step=header.event)
        found.append((record, known.reason))
    return found


# --- sealing -----------------------------------------------------------------------------------------------------


def _seal(pieces: Sequence[Piece], refs: Sequence[SegmentRef], event: str, sealer: Sealer) -> list[SealedChunk]:
    sealed: dict[str, tuple[SealedChunk, ...]] = {}
    for piece, ref in zip(pieces, refs, strict=True):
        if ref.id not in sealed:
            chunks = sealer.seal(piece.scope, event, ref.id, piece.plain)
            if isinstance(chunks, Erased):
                raise erased(piece.field)
            sealed[ref.id] = chunks
    return [chunk for chunks in sealed.values() for chunk in chunks]


def _with_reason(record: RewardRecord, reason: str | None, header: StepHeader, sealer: Sealer) -> RewardRecord:
    if reason is None:
        return record
    scope = KeyScope(header.tenant, header.trajectory, header.subjects, "raw")
    plain = reason.encode()
    segment = sealer.segment_id(scope, plain)
    chunks = segment if isinstance(segment, Erased) else sealer.seal(scope, record.event, segment, plain)
    if isinstance(chunks, Erased):
        raise erased("rewards")
    return msgspec.structs.replace(record, reason=chunks)


def _step_records(header: StepHeader, sealed: Sequence[SealedChunk], names: Names) -> list[OutRecord]:
    """The step in one record if it fits; else its chunks before it, each in a record of its own."""
    key, event = header.trajectory, header.event
    try:
        return [out_record(STEPS, key, "step", StepRecord(header=header, sealed=tuple(sealed)), event, names)]
    except TooLarge:
        chunks = [ChunkRecord(tenant=header.tenant, trajectory=key, sealed=chunk) for chunk in sealed]
        alone = [out_record(STEPS, key, "chunk", chunk, event, names) for chunk in chunks]
        return [*alone, out_record(STEPS, key, "step", StepRecord(header=header), event, names)]
