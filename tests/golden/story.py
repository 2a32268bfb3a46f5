"""The history that a new version is recorded with: made-up people, and something of everything that arrives.

Every part is one trajectory, named for what it shows. Later versions may tell more; what was told stays told.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ebbtide_platform.topics import STEPS
from ebbtide_schemas.records import Policy
from golden.acts import Act, Fact, Garbage, Post, Tick

START_MS = 1_773_480_000_000
"""2026-03-14, 09:20 UTC."""
MINUTE_MS = 60_000
POLICY = Policy(idle_s=1_800, reward_window_s=3_600, group_deadline_s=86_400)
ADELE, BEN, CHO = "adele.quill@example.com", "ben@example.com", "crm:4711"
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_LOOK_UP = {
    "name": "look_up_order",
    "description": "Finds an order.",
    "parameters": {"type": "object", "properties": {"email": {"type": "string"}}},
}


def story() -> list[Act]:
    """All acts, in the order of their times."""
    parts = (_rules, _refund, _picture, _branches, _silent, _orphan, _ticket, _group, _mangled, _unpaid, _two_people)
    acts = [act for part in (*parts, _withdrawn, _refused, _held, _ticks) for act in part()]
    return sorted(acts, key=lambda act: act.at_ms)


# --- acts in few words ------------------------------------------------------------------------------------------


def _at(minute: float) -> int:
    return START_MS + round(minute * MINUTE_MS)


def _clock(minute: float) -> str:
    return datetime.fromtimestamp(_at(minute) / 1000, UTC).isoformat()


def _post(minute: float, event: dict[str, Any], tenant: str = "acme", **how: int) -> Post:
    return Post(at_ms=_at(minute), tenant=tenant, event=json.dumps(event), **how)


def _step(trajectory: str, ordinal: int, *, asks: Any = None, says: Any = None, **members: Any) -> dict[str, Any]:
    """A step in which the user asks and the agent says; it follows the one before."""
    meta = {"agent": "support", "purpose": "training", "subjects": [ADELE], "model": "tide-1"}
    read = [] if asks is None else [asks if isinstance(asks, dict) else {"role": "user", "content": asks}]
    event: dict[str, Any] = {
        "type": "step",
        "specversion": "atdp/1",
        "id": f"{trajectory}-{ordinal}",
        "trajectory": trajectory,
        "ordinal": ordinal,
        "meta": meta | members.pop("meta", {}),
    }
    if ordinal:
        event["parent"] = f"{trajectory}-{ordinal - 1}"
    if read:
        event["observation"] = {"segments": read}
    if says is not None:
        event["action"] = {"segment": says if isinstance(says, dict) else {"role": "assistant", "content": says}}
    return event | members


def _end(trajectory: str, ordinal: int, mark: str = "terminated", **members: Any) -> dict[str, Any]:
    return _step(trajectory, ordinal, end=mark, **members)


def _reward(event: str, target: dict[str, Any], value: float, **members: Any) -> dict[str, Any]:
    return {"type": "reward", "specversion": "atdp/1", "id": event, "target": target, "value": value} | members


def _words(layout: str, *values: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}{layout}", *values)).decode()


# --- the parts --------------------------------------------------------------------------------------------------


def _rules() -> Iterator[Act]:
    yield Fact(at_ms=_at(0), kind="policy", policy=POLICY)
    for tenant in ("acme", "globex"):
        yield Fact(at_ms=_at(0), kind="tenant", tenant=tenant)


def _ticks() -> Iterator[Act]:
    for minute in (20, 45, 70, 100, 150, 190, 230, 260, 300, 2_000):
        yield Tick(at_ms=_at(minute) + 1)


def _refund() -> Iterator[Act]:
    """A tool call with personal data, under the same names at two tenants; rewards early, superseding, late, twice."""
    call = {"id": "call-1", "name": "look_up_order", "arguments": json.dumps({"email": ADELE, "order": 88})}
    found = {"iban": "GB82 WEST 1234 5698 7654 32", "address": "12 Harbour Street", "phone": "+44 20 7946 0958"}
    sampler = {
        "prompt_delta": {"dtype": "u32le", "data": _words("I", 1, 2, 3)},
        "prompt_digest": "00" * 32,
        "tokenizer": "tide-tokenizer",
        "chat_template": "tide-template",
        "base_model": "tide-1",
        "output": {"dtype": "u32le", "data": _words("I", 4, 5)},
        "logprobs": {"dtype": "f32le", "data": _words("f", -0.5, float("-inf"))},
        "logprob_kind": "raw",
        "adapters": [{"start": 0, "end": 2, "adapter": "lora-7"}],
        "sampling": {"temperature": 0.7},
    }
    first = _step(
        "refund",
        0,
        asks=f"Hello, my name is Adele Quill, {ADELE}, born on 1990-04-01. Where is order 88?",
        meta={
            "session": "chat-1",
            "time": _clock(0.5),
            "response_id": "resp-1",
            "consent_basis": "contract",
            "jurisdiction": "EU",
            "adapter": "lora-7",
            "tenant": "acme",
        },
        hidden={"reference": "harness-state-1"},
        outcome={
            "results": [{"role": "tool", "tool_call_id": "call-1", "content": json.dumps(found)}],
            "finish_reason": "tool_calls",
            "latency_ms": 12.5,
            "usage": {"input_tokens": 30, "output_tokens": 12},
        },
        rewards=[{"value": 0.25, "name": "format", "source": "rule", "reason": "The call is well-formed."}],
    )
    first["observation"]["tools"] = [_LOOK_UP]
    first["action"] = {"segment": {"role": "assistant", "tool_calls": [call]}, "sampler": sampler}
    second = _step(
        "refund", 1, says="Dear Adele, it is on its way to 12 Harbour Street.", meta={"session": "chat-1", "time": 1e18}
    )
    second["action"]["segment"] |= {"reasoning": "Quill lives there.", "extra": {"citations": [ADELE]}}
    human = _reward("refund-human", {"trajectory": "refund"}, 0.5, name="resolved", reason="Adele was pleased.")
    yield _post(1, first, record_bytes=2_500)
    yield _post(1, first)
    yield _post(2, second, delivered=2)
    yield _post(3, _end("refund", 2, meta={"session": "chat-1"}))
    yield _post(5, human, delivered=2)
    yield _post(6, human)
    yield _post(6, human | {"value": 0.75})
    corrected = human | {"id": "refund-corrected", "value": 1.0, "supersedes": "refund-human", "reason": "On appeal."}
    yield _post(30, corrected)
    late = _reward("refund-late", {"response": "resp-1"}, -1.0, name="complaint", source="human", time=_clock(200))
    yield _post(201, late)
    theirs = _step("refund", 0, asks=f"I am Adele Quill at {ADELE}", says="Hello Adele Quill!", end="terminated")
    yield _post(4, theirs, "globex")
    yield _post(4, _reward("refund-human", {"trajectory": "refund"}, 1.0), "globex")


def _picture() -> Iterator[Act]:
    """Content parts with bytes in them; the answer arrives before the question."""
    parts = [
        {"type": "text", "text": "What does my card 4111 1111 1111 1111 show?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXEL}"}},
    ]
    yield _post(4, _end("picture", 1, says="One pixel."))
    yield _post(5, _step("picture", 0, asks={"role": "user", "content": parts}, says="Let me look."))
    yield _post(6, _reward("picture-seen", {"step": "picture-1"}, 1.0, source="model"))


def _branches() -> Iterator[Act]:
    """A second answer to the same question, an edited context, and a sub-agent."""
    yield _post(5, _step("branches", 0, asks="Call me at 212-555-0142, please.", says="Whom shall I ask for?"))
    yield _post(6, _step("branches", 1, asks="Mrs Vera Stone", says="I call 212-555-0142."))
    fork = _step("branches", 2, asks="Mrs Vera Stone", says="Calling now.", id="branches-fork")
    yield _post(7, fork | {"parent": "branches-0", "branch": "fork"})
    edit = _step("branches", 2, says="Calling again.", id="branches-edit", removed=[0])
    yield _post(8, edit | {"parent": "branches-1", "branch": "edit"})
    helper = _step("branches", 2, asks="Dial 212-555-0142.", says="Done.", id="branches-sub", branch="sub-agent")
    yield _post(8, helper | {"parent": "branches-1"})
    yield _post(9, _end("branches", 3) | {"parent": "branches-edit"})
    yield _post(9, _reward("branches-won", {"step": "branches-fork"}, 1.0, source="environment"))


def _silent() -> Iterator[Act]:
    """Nobody says that it has ended."""
    yield _post(6, _step("silent", 0, asks="Are you there?", says="Yes."))
    yield _post(7, _reward("silent-met", {"trajectory": "silent"}, 1.0))


def _orphan() -> Iterator[Act]:
    """The step between the first and the last never comes."""
    yield _post(7, _step("orphan", 0, asks="Begin.", says="I begin."))
    yield _post(8, _end("orphan", 2, says="I end."))
    yield _post(8, _reward("orphan-met", {"trajectory": "orphan"}, 1.0))


def _ticket() -> Iterator[Act]:
    """The world knows a ticket only, and speaks of it before the step is there."""
    ticket = {"kind": "ticket", "value": "T-1000"}
    yield _post(8, _reward("ticket-closed", {"correlation": ticket}, 1.0, source="environment"))
    step = _step("ticket", 0, asks="Close T-1000.", says="Closed.", end="terminated", meta={"correlations": [ticket]})
    yield _post(9, step)
    yield _post(9, _reward("ticket-unknown", {"correlation": ticket | {"value": "T-1001"}}, 1.0))


def _group() -> Iterator[Act]:
    """Two sessions on one task."""
    for index, value in enumerate((0.0, 1.0)):
        name = f"attempt-{index}"
        group = {"id": "attempts", "size": 2, "index": index, "task": "sum", "environment": "sums", "seed": 7}
        meta = {"session": name, "group": group, "subjects": []}
        yield _post(10, _step(name, 0, asks="2 + 2?", says=str(3 + index), end="terminated", meta=meta))
        yield _post(11 + 50 * index, _reward(f"{name}-checked", {"trajectory": name}, value, source="rule"))


def _mangled() -> Iterator[Act]:
    """Characters that are none."""
    asks = "A lone \udcb2, a NUL \x00 and the letters \\u0000 to \udfffadele.quill@example.com"
    yield _post(11, _step("mangled", 0, asks=asks, says="I see.", end="truncated", meta={"time": "yesterday"}))
    yield _post(12, _reward("mangled-met", {"trajectory": "mangled"}, 1.0, time=_clock(12)))


def _unpaid() -> Iterator[Act]:
    """No reward, and no purpose."""
    step = _step("unpaid", 0, asks="Anything?", says="Nothing.", end="terminated")
    del step["meta"]["purpose"]
    yield _post(12, step)


def _two_people() -> Iterator[Act]:
    """Somebody else is spoken of and is erased later: a hole, and nothing after it is trained."""
    other = {"role": "user", "content": f"Ben is at {BEN}, by the way.", "subjects": [BEN]}
    fact = {"role": "system", "content": "Be brief.", "subjects": []}
    yield _post(13, _step("two-people", 0, asks=fact, says="Ready."))
    yield _post(14, _step("two-people", 1, asks=other, says=f"I write to {BEN}.", end="terminated"))
    yield _post(15, _reward("two-people-met", {"trajectory": "two-people"}, 1.0))
    yield Fact(at_ms=_at(240), kind="erasure", tenant="acme", subject=BEN)
    yield _post(241, _step("too-late", 0, asks=other, says="No."))


def _withdrawn() -> Iterator[Act]:
    """A consent is given, used, and withdrawn."""
    step = _step("withdrawn", 0, asks="Use this.", says="Thank you.", end="terminated", meta={"subjects": [CHO]})
    yield _post(14, step)
    yield _post(15, _reward("withdrawn-met", {"trajectory": "withdrawn"}, 1.0))
    for minute, state in ((16, "given"), (110, "withdrawn")):
        yield Fact(
            at_ms=_at(minute),
            kind="consent",
            tenant="acme",
            subject=CHO,
            purpose="training",
            state=state,  # type: ignore[arg-type]
        )


def _refused() -> Iterator[Act]:
    """What no door takes, and what no stage can read."""
    yield _post(15, _step("refused", 0, asks="Hello.", meta={"tenant": "globex"}))
    yield _post(15, _reward("refused", {"trajectory": "refund"}, float("nan")))
    yield _post(15, _step("refused", 0, asks="Hello.", meta={"subject": ADELE}))
    yield Garbage(at_ms=_at(16), topic=STEPS.name, text="garbage")


def _held() -> Iterator[Act]:
    """A legal hold, set and lifted; a review that approves a picture."""
    yield Fact(at_ms=_at(50), kind="hold", tenant="acme", trajectory="silent", state="set")
    yield Fact(at_ms=_at(120), kind="hold", tenant="acme", trajectory="silent", state="lifted")
    yield Fact(at_ms=_at(130), kind="review", tenant="acme", trajectory="picture", state="approved")
