"""`--bootstrap-servers` and `--database-url` replace the embedded parts, and two deployments share one cluster."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ebbtide.client import Client
from ebbtide.configuration import Configuration
from ebbtide_platform.settings import Settings
from support.running_platform import Platform, running_platform
from support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.platform]

CURATED_S = 90.0


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A read model that lies elsewhere than the data."""
    return tmp_path / "elsewhere.sqlite"


@pytest.fixture
def beside_a_cluster(broker: Settings, database: Path, tmp_path: Path) -> Iterator[Platform]:
    """A platform that is told of a cluster and a database."""
    with running_platform(
        tmp_path / "data",
        "acme",
        bootstrap_servers=broker.bootstrap_servers,
        database_url=f"sqlite:///{database}",
        topic_prefix="own.",
    ) as platform:
        yield platform


def test_a_cluster_and_a_database_of_ones_own_are_used(beside_a_cluster: Platform, database: Path) -> None:
    platform = beside_a_cluster
    client = Client(Configuration(platform.settings.api_url, platform.key("acme")))
    with closing(client):
        with client.session(agent="support", subject="user-42") as session:
            session.record([{"role": "user", "content": "Where is order 88?"}], "On its way.")
            session.reward(1.0)
        wait_until(lambda: len(list(client.curated("acme"))) == 1, "the sample is curated", CURATED_S)
    assert platform.pid_of("broker") is None
    assert not (platform.settings.data_dir / "kafka").exists()
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM trajectories").fetchone() == (1,)
