"""The key store's tables. Every key in them is wrapped; no identity is in them but as a keyed digest.

The suppression list is a schema of its own (in SQLite a file of its own), because it must outlive the keys:
it says who may not come back, and nothing more.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table

metadata = MetaData()

SUPPRESSION = "suppression"

facts = Table(
    "facts",
    metadata,
    Column("name", String, primary_key=True),  # format, fence
    Column("number", BigInteger, nullable=False),
)

tenants = Table(
    "tenants",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("identity_key", LargeBinary, nullable=False),  # under the tenant's KEK, as is the next
    Column("tenant_key", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False, index=True),
    Column("name", String, nullable=False),
    Column("scopes", String, nullable=False),  # separated by blanks
    Column("digest", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger),
)

pages = Table(
    "pages",
    metadata,
    Column("page", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("filled", Integer, nullable=False),  # subjects ever wrapped under it
    Column("state", String, nullable=False),  # open, or dying: its key is about to be destroyed
    Index("pages_with_room", "tenant", "state", "filled"),  # nearly all pages are full
)

subjects = Table(
    "subjects",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("page", String, nullable=False, index=True),
    Column("wrapped", LargeBinary),  # NULL: the tombstone
)

identities = Table(
    "identities",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("subject", String, nullable=False),
    Index("identities_of_a_subject", "tenant", "subject"),
)

contents = Table(
    "contents",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("trajectory", String, primary_key=True),  # empty: the tenant's own
    Column("subjects", String, primary_key=True),  # sorted, separated by blanks
    Column("seal_class", String, primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
)

days = Table(
    "days",
    metadata,
    Column("tenant", String, primary_key=True),  # empty: the deployment's own
    Column("day", String, primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
)

destructions = Table(
    "destructions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),  # of the identity, as the suppression list has it
    Column("subject", String, nullable=False),
    Column("page", String, nullable=False, index=True),
    Column("unreadable_ms", BigInteger, nullable=False),
    Column("irrecoverable_ms", BigInteger),  # NULL: the page key is not destroyed yet
    Column("forget_ms", BigInteger, nullable=False),
)

suppressed = Table(
    "suppressed",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("kind", String, nullable=False),  # identity or subject
    Column("suppressed_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    schema=SUPPRESSION,
)

suppression_key = Table(
    "suppression_key",
    metadata,
    Column("name", String, primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
    schema=SUPPRESSION,
)
