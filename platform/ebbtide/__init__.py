"""The light SDK: publish what an agent lives through, consume what may be learned from it.

::

    import ebbtide

    with ebbtide.session(agent="support", subject="user-42", purpose="training") as s:
        answer_id = s.record(messages, answer)
        s.tool("refund", {"order": 88}, {"ok": True})
        s.reward(1.0, name="resolved")

    ebbtide.reward(answer_id, 0.0, name="reopened")  # days later, from anywhere

    for sample in ebbtide.curated("acme", follow=True):
        train_on(sample.messages, sample.reward)

Recording never blocks and never raises: without a server it warns once and goes on.
"""

from __future__ import annotations

from ebbtide.client import Client
from ebbtide.configuration import Configuration, read_configuration
from ebbtide.decorator import tool
from ebbtide.errors import EbbtideSDKError, RequestRefused, ServerUnreachable
from ebbtide.session import Session
from ebbtide.surface import (
    acurated,
    aforget,
    areward,
    asession,
    atool,
    averify,
    configure,
    consent,
    curated,
    flush,
    forget,
    reward,
    session,
    verify,
)
from ebbtide.verification import Receipt, Verification
from ebbtide_schemas.events import Group
from ebbtide_schemas.samples import Sample, Withdrawal

__all__ = [
    "Client",
    "Configuration",
    "EbbtideSDKError",
    "Group",
    "Receipt",
    "RequestRefused",
    "Sample",
    "ServerUnreachable",
    "Session",
    "Verification",
    "Withdrawal",
    "acurated",
    "aforget",
    "areward",
    "asession",
    "atool",
    "averify",
    "configure",
    "consent",
    "curated",
    "flush",
    "forget",
    "read_configuration",
    "reward",
    "session",
    "tool",
    "verify",
]
