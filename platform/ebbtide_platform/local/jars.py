"""Where the embedded broker's program comes from: KAFKA_HOME, the cache, Maven (once), or Docker.

``python -m ebbtide_platform.local.jars`` fills the cache, so that nothing is fetched when the platform runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ebbtide_platform.errors import EbbtideError, Misconfigured
from ebbtide_platform.settings import Settings, read_settings

KAFKA_VERSION = "4.3.0"
# slf4j-api 1.7 comes with Kafka; without this binding the broker's own log goes nowhere.
LOG4J_VERSION = "2.25.4"
MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_S = 600.0
DOCKER_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
OLDEST_JAVA = 17
CORE_JAR = "kafka_2.13-*.jar"

FOUR_WAYS = (
    "one of: set KAFKA_HOME to an unpacked Apache Kafka 4.x with Java 17 or newer; "
    "copy its libs/*.jar into {cache}; install Java 17 and Maven (apt install openjdk-17-jre-headless maven); "
    "install Docker. Or use a Kafka that runs already: --bootstrap-servers HOST:PORT"
)

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ebbtide</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>{LOG4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True)
class Runtime:
    """How to run a Java class of Kafka; ``container`` says that the program lives in a Docker container."""

    origin: str
    java: str
    classpath: str
    container: bool = False


class Machine(Protocol):
    """What is asked of the machine, so that a test can answer."""

    def find(self, program: str) -> str | None:
        """The path of a program on the PATH."""

    def run(self, argv: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Exit code and everything printed."""


class ThisMachine:
    """The machine that this runs on."""

    def find(self, program: str) -> str | None:
        """The path of a program on the PATH, or of an executable file."""
        return shutil.which(program)

    def run(self, argv: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Exit code and everything printed; 124 when it took too long."""
        try:
            done = subprocess.run(  # noqa: S603 - an argument list made here, no shell
                list(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return 124, f"no end after {timeout_s:.0f} s"
        return done.returncode, done.stdout + done.stderr


def cached_jars(settings: Settings) -> Path:
    """The folder of the cached jars, whether or not it is there."""
    return settings.cache_dir / f"kafka-{KAFKA_VERSION}"


def find_runtime(settings: Settings, machine: Machine | None = None, *, fetch: bool = True) -> Runtime:
    """The first of the four ways that this machine offers; without ``fetch`` Maven is found and not asked yet.

    Raises:
        Misconfigured: none does, or KAFKA_HOME holds no Kafka; names the four ways.
    """
    machine = ThisMachine() if machine is None else machine
    java, java_problem = find_java(settings, machine)
    if settings.kafka_home:
        libs = Path(settings.kafka_home) / "libs"
        if not any(libs.glob(CORE_JAR)):
            raise Misconfigured(f"KAFKA_HOME holds no libs/{CORE_JAR}", try_this="unset it, or name a Kafka 4.x")
        if java is None:
            raise Misconfigured(java_problem, try_this=_four_ways(settings))
        return Runtime("KAFKA_HOME", java, f"{libs}/*")
    jars = cached_jars(settings)
    if java is not None and any(jars.glob(CORE_JAR)):
        return Runtime("cache", java, f"{jars}/*")
    problem = java_problem
    maven = machine.find("mvn")
    if java is not None:
        problem = "Maven is not installed" if maven is None else _resolve(settings, machine, maven) if fetch else ""
        if not problem:
            return Runtime("maven", java, f"{jars}/*")
    docker = machine.find("docker")
    if docker is not None and machine.run([docker, "version", "--format", "{{.Server.Version}}"], 10.0)[0] == 0:
        return Runtime("docker", docker, "/opt/kafka/libs/*", container=True)
    raise Misconfigured(
        f"no Apache Kafka for the embedded broker: {problem}, and Docker does not answer", try_this=_four_ways(settings)
    )


def _four_ways(settings: Settings) -> str:
    return FOUR_WAYS.format(cache=cached_jars(settings))


def find_java(settings: Settings, machine: Machine) -> tuple[str | None, str]:
    """The java that is new enough, or what is wrong with the one there is."""
    java = machine.find(str(Path(settings.java_home) / "bin/java") if settings.java_home else "java")
    if java is None:
        return None, "JAVA_HOME holds no bin/java" if settings.java_home else "Java is not installed"
    _, text = machine.run([java, "-version"], 20.0)
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    # Up to Java 8 versions were written 1.8.
    major = 0 if found is None else int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < OLDEST_JAVA:
        return None, f"Java {major or '(unknown version)'} is too old, {OLDEST_JAVA} is needed"
    return java, ""


def _resolve(settings: Settings, machine: Machine, maven: str) -> str:
    """Let Maven fill the cache; what went wrong, or nothing. Two at once are harmless: the first rename stays."""
    jars, log = cached_jars(settings), settings.cache_dir / "maven.log"
    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=settings.cache_dir, prefix=".kafka-") as folder:
        pom, fresh = Path(folder) / "pom.xml", Path(folder) / "jars"
        pom.write_text(POM, encoding="utf-8")
        argv = [maven, "-q", "-B", "-f", str(pom), MAVEN_GOAL, "-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
        code, text = machine.run(argv, FETCH_S)
        if code != 0 or not any(fresh.glob(CORE_JAR)):
            log.write_text(text, encoding="utf-8")
            return f"Maven could not fetch it (exit code {code}, see {log})"
        try:
            fresh.rename(jars)
        except OSError:
            if not any(jars.glob(CORE_JAR)):
                return f"{jars} is in the way and holds no Kafka"
    return ""


def main() -> int:
    """Fetch what the embedded broker needs, if anything is missing; say where it comes from."""
    machine = ThisMachine()
    try:
        settings = read_settings()
        if settings.bootstrap_servers:
            return 0
        runtime = find_runtime(settings, machine)
        if runtime.container and machine.run([runtime.java, "image", "inspect", DOCKER_IMAGE], FETCH_S)[0] != 0:
            if machine.run([runtime.java, "pull", DOCKER_IMAGE], FETCH_S)[0] != 0:
                raise Misconfigured(f"Docker cannot pull {DOCKER_IMAGE}", try_this=_four_ways(settings))
            print(f"fetched {DOCKER_IMAGE}")  # noqa: T201 - a command of the Makefile
    except EbbtideError as error:
        print(error.diagnostics(), file=sys.stderr)  # noqa: T201
        return error.exit_code
    if runtime.origin == "maven":
        print(f"fetched Apache Kafka {KAFKA_VERSION} into {cached_jars(settings)}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
