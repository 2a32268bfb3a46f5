"""The embedded broker: one real Apache Kafka node (KRaft, combined roles), its data under the data directory."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ebbtide_platform.adapters.kafka import client_config
from ebbtide_platform.errors import Misconfigured, Unavailable
from ebbtide_platform.local import tether
from ebbtide_platform.local.jars import DOCKER_IMAGE, Runtime, find_runtime
from ebbtide_platform.local.ports import answers, is_free
from ebbtide_platform.settings import Settings

HEAP = ("-Xms64m", "-Xmx320m", "-XX:+UseSerialGC")
"""Some thousand partitions fit; the serial collector and the first compiler tier start quickest and take least."""
FORMAT_S = 60.0
READY_S = 60.0
STOP_S = 20.0
RELEASE_S = 3.0
PROBE_S = 1.0

# One node, few partitions inside: an embedded broker starts and recovers in seconds.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
# After a kill -9 the node may register again only when its old session is over: 9 s by default.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# Index files are mapped whole: the default of 10 MB each is meant for segments a hundred times busier.
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=2
controlled.shutdown.enable=true
"""

# Warnings and errors to a bounded file; errors also to the supervisor's log. Values of records are never logged.
LOG4J = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders>
    <RollingFile name="file" fileName="{log}" filePattern="{log}.%i">
      <PatternLayout pattern="%d{{ISO8601}} %p %c{{1}} %m%n"/>
      <Policies><SizeBasedTriggeringPolicy size="4 MB"/></Policies>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
    <Console name="errors" target="SYSTEM_ERR"><PatternLayout pattern="%p %c{{1}} %m%n%throwable{{short}}"/></Console>
  </Appenders>
  <Loggers>
    <Root level="WARN">
      <AppenderRef ref="file"/>
      <AppenderRef ref="errors" level="ERROR"/>
    </Root>
  </Loggers>
</Configuration>
"""


def server_properties(settings: Settings, data: Path) -> str:
    """The node's configuration; the controller listens on the port after the broker's."""
    return PROPERTIES.format(
        host=settings.host, port=settings.broker_port, controller=settings.broker_port + 1, data=data
    )


class Broker:
    """The node of one data directory. `prepare` and `command` let a supervisor run it, `start` and `stop` a test."""

    def __init__(self, settings: Settings, runtime: Runtime | None = None) -> None:
        self._settings = settings
        self._runtime = runtime
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = settings.data_dir / "kafka"

    @property
    def log_file(self) -> Path:
        """Where the broker writes its own log."""
        return self.folder / "log" / "broker.log"

    @property
    def death_signal(self) -> str:
        """What the kernel sends when the parent dies: Kafka bears KILL, a container ends with its client's TERM."""
        return "TERM" if self._found().container else "KILL"

    def prepare(self, *, release_s: float = RELEASE_S) -> None:
        """Write the configuration and format the storage; harmless when repeated.

        A taken port is waited for ``release_s`` seconds.

        Raises:
            Misconfigured: there is no Kafka to run, a port is taken, or the storage cannot be formatted.
        """
        host, port = self._settings.host, self._settings.broker_port
        # A broker whose supervisor was killed a moment ago is about to give its ports back.
        deadline = time.monotonic() + release_s
        while (taken := next((each for each in (port, port + 1) if not is_free(host, each)), None)) is not None:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise Misconfigured(
                f"port {taken} of {host}, which the embedded broker needs, is taken",
                try_this="end the other program, or set EBBTIDE_BROKER_PORT (it and the next one must be free)",
            )
        data = self.folder / "data"
        for folder in (data, self.log_file.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file("server.properties").write_text(server_properties(self._settings, data), encoding="utf-8")
        self._file("log4j2.xml").write_text(LOG4J.format(log=self.log_file), encoding="utf-8")
        if not (data / "meta.properties").exists():
            self._format()

    def command(self) -> tuple[str, ...]:
        """The program and its arguments, in the foreground."""
        return self._java("kafka.Kafka", str(self._file("server.properties")))

    def is_ready(self) -> bool:
        """Whether the broker of this data directory takes requests."""
        if not answers(self._settings.host, self._settings.broker_port):
            return False
        admin = AdminClient(client_config(self._settings))
        try:
            return len(admin.list_topics(timeout=PROBE_S).brokers) > 0
        except KafkaException:
            return False

    def start(self, *, timeout_s: float = READY_S) -> None:
        """Start as a child that dies with this process (with the calling thread), and wait until it is ready.

        Raises:
            Misconfigured: see `prepare`.
            Unavailable: it ended, or was not ready in time; names its log file.
        """
        self.prepare()
        self._process = subprocess.Popen(  # noqa: S603 - an argument list made here, no shell
            tethered(self.command(), self.death_signal), stdin=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Unavailable("the embedded broker did not start", try_this=f"read {self.log_file}")
            time.sleep(0.05)

    def stop(self, *, timeout_s: float = STOP_S) -> None:
        """End it, cleanly if it does so in time. Nothing to do if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End it as kill -9 does, for tests of what survives."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _file(self, name: str) -> Path:
        return self.folder / name

    def _found(self) -> Runtime:
        if self._runtime is None:
            self._runtime = find_runtime(self._settings)
        return self._runtime

    def _java(self, main: str, *arguments: str) -> tuple[str, ...]:
        runtime = self._found()
        options = (
            *HEAP,
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._file('log4j2.xml')}",
            "-cp",
            runtime.classpath,
            main,
            *arguments,
        )
        if not runtime.container:
            return (runtime.java, *options)
        # The host's network and the same path inside, so that one configuration fits both.
        return (
            *(runtime.java, "run", "--rm", "--init", "--network", "host"),
            *("--user", f"{os.getuid()}:{os.getgid()}", "--volume", f"{self.folder}:{self.folder}"),
            *("--entrypoint", "java", DOCKER_IMAGE, *options),
        )

    def _format(self) -> None:
        # A cluster id is a UUID in URL-safe base64; one that begins with "-" reads as an option.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)
        config = str(self._file("server.properties"))
        argv = self._java("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster, "-c", config)
        done = subprocess.run(  # noqa: S603 - an argument list made here, no shell
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=FORMAT_S, check=False
        )
        if done.returncode != 0:
            log = self.log_file.with_name("format.log")
            log.write_bytes(done.stdout + done.stderr)
            raise Misconfigured("the embedded broker's storage cannot be formatted", try_this=f"read {log}")


def tethered(argv: tuple[str, ...], death_signal: str = "KILL") -> list[str]:
    """The same program, killed by the kernel when the thread that starts it dies."""
    return [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), f"SIG{death_signal}", *argv]
