"""What every test may ask for: the shared broker, and settings with topics of one's own on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ebbtide_platform.settings import Settings
from support.broker import fresh_topics, running_broker
from support.skip_guard import SkipGuard


def pytest_configure(config: pytest.Config) -> None:
    """A skip that nobody has agreed to fails the run."""
    config.pluginmanager.register(SkipGuard(), "skip-guard")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The one real Kafka of this test run, started by the first test that asks."""
    with running_broker(tmp_path_factory.mktemp("broker")) as settings:
        yield settings


@pytest.fixture
def broker_settings(broker: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Settings with an empty data directory and freshly created topics (two partitions, tenant ``acme``)."""
    with fresh_topics(broker, tmp_path / "data", "acme") as settings:
        yield settings
