"""The one real broker of a test run, and a prefix of topics for each test that uses it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient

from ebbtide_platform import topics
from ebbtide_platform.adapters.kafka import client_config, create_topics
from ebbtide_platform.local.broker import Broker
from ebbtide_platform.local.ports import free_ports
from ebbtide_platform.settings import Settings, read_settings

PARTITIONS = 2


@contextmanager
def running_broker(folder: Path) -> Iterator[Settings]:
    """A broker of its own under ``folder``; the settings name it as an outside cluster would be named."""
    port = free_ports(2)
    settings = replace(read_settings(), data_dir=folder, broker_port=port, bootstrap_servers="", topic_prefix="")
    broker = Broker(settings)
    broker.start()
    try:
        yield replace(settings, bootstrap_servers=f"{settings.host}:{port}")
    finally:
        broker.stop()


@contextmanager
def fresh_topics(broker: Settings, data_dir: Path, *tenants: str) -> Iterator[Settings]:
    """Settings with a data directory and a topic prefix of their own; the topics exist, and are deleted at the end."""
    settings = replace(broker, data_dir=data_dir, topic_prefix=f"t{secrets.token_hex(4)}.", partitions=PARTITIONS)
    create_topics(settings, [*topics.SHARED, *map(topics.curated, tenants)])
    try:
        yield settings
    finally:
        admin = AdminClient(client_config(settings))
        mine = [name for name in admin.list_topics(timeout=10).topics if name.startswith(settings.topic_prefix)]
        for deleted in admin.delete_topics(mine, operation_timeout=10).values():
            deleted.result()
