"""Ids for the log: UUIDv8 by HMAC, so that a retry has the same id and nobody can guess or link one.

The bytes under the HMAC are each part's length (4 bytes, big-endian) and its UTF-8, one after the other;
the first part says what is named. The id is the first 128 bits of HMAC-SHA-256, with version 8 and the RFC
9562 variant written over bits 48 to 51 and 64 to 65.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
import uuid

KEY_BYTES = 32
"""Of every key that Ebbtide makes, for HMAC-SHA-256 as for AES-256."""
_ID_BYTES = 16


def uuid8(key: bytes, *parts: str) -> str:
    """The UUIDv8 of ``parts`` under ``key``; ("ab", "c") and ("a", "bc") have different ones."""
    return uuid8_of(hmac.digest(key, _joined(parts), hashlib.sha256))


def uuid8_of(digest: bytes) -> str:
    """The first 128 bits of ``digest`` as a UUIDv8."""
    octets = bytearray(digest[:_ID_BYTES])
    octets[6] = octets[6] & 0x0F | 0x80
    octets[8] = octets[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(octets)))


def random_id() -> str:
    """A random UUIDv8, for what must not be derived from anything (a subject's reference)."""
    return uuid8_of(secrets.token_bytes(_ID_BYTES))


def event_id(key: bytes, text: str) -> str:
    """The log's id of a step or reward that its producer calls ``text``."""
    return uuid8(key, "event", text)


def trajectory_id(key: bytes, text: str) -> str:
    """The log's id of a trajectory; it is its own alias."""
    return uuid8(key, "trajectory", text)


def session_id(key: bytes, text: str) -> str:
    """The log's id of a session."""
    return uuid8(key, "session", text)


def group_id(key: bytes, text: str) -> str:
    """The log's id of a group; two tenants' groups never meet."""
    return uuid8(key, "group", text)


def task_id(key: bytes, text: str) -> str:
    """The log's id of a task."""
    return uuid8(key, "task", text)


def alias_id(key: bytes, kind: str, value: str) -> str:
    """The name by which a reward finds its target.

    ``kind`` is ``trajectory`` (whose alias is its own id), ``step``, ``response`` or ``correlation:<kind>``.
    """
    return trajectory_id(key, value) if kind == "trajectory" else uuid8(key, "alias", kind, value)


def sample_id(trajectory: str, first_step: str) -> str:
    """The id of the chain that begins with ``first_step``; both are ids of the log, so no key is needed."""
    return uuid8_of(hashlib.sha256(_joined(("sample", trajectory, first_step))).digest())


def normal_identity(text: str) -> str:
    """The one spelling under which a person's identity is looked up.

    Compatibility forms, case and outer blanks fall together; nothing else does: ``a+work@example.org`` is
    another identity than ``a@example.org``, since joining two people is worse than asking about one twice.
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()


def _joined(parts: tuple[str, ...]) -> bytes:
    # surrogatepass: total over every Python string; the doors replace lone surrogates before they get here.
    octets = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(4) + part for part in octets)
