"""Where the broker comes from: the order of the four ways, and what a person is told when there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.local.jars import KAFKA_VERSION, find_runtime
from ebbtide_platform.settings import Settings

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'


class StandInMachine:
    """A machine that has the named programs, and a Maven that delivers unless it is broken."""

    def __init__(
        self, *programs: str, java: str = JAVA_17, maven_works: bool = True, docker_works: bool = True
    ) -> None:
        self.programs, self.java = programs, java
        self.maven_works, self.docker_works = maven_works, docker_works
        self.ran: list[str] = []

    def find(self, program: str) -> str | None:
        return program if Path(program).name in self.programs else None

    def run(self, argv: Sequence[str], timeout_s: float) -> tuple[int, str]:
        program = Path(argv[0]).name
        self.ran.append(program)
        if program == "java":
            return 0, self.java
        if program == "docker":
            return (0, "27.0") if self.docker_works else (1, "Cannot connect to the Docker daemon")
        if not self.maven_works:
            return 1, "Could not resolve dependencies"
        folder = Path(next(word for word in argv if word.startswith("-DoutputDirectory=")).partition("=")[2])
        _put_kafka(folder)
        return 0, ""


def _put_kafka(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / f"kafka_2.13-{KAFKA_VERSION}.jar").touch()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


def test_kafka_home_comes_first(settings: Settings, tmp_path: Path) -> None:
    _put_kafka(tmp_path / "kafka/libs")
    _put_kafka(settings.cache_dir / f"kafka-{KAFKA_VERSION}")
    machine = StandInMachine("java", "mvn", "docker")
    runtime = find_runtime(replace(settings, kafka_home=str(tmp_path / "kafka")), machine)
    assert (runtime.origin, runtime.classpath) == ("KAFKA_HOME", f"{tmp_path}/kafka/libs/*")


def test_a_kafka_home_without_kafka_is_a_mistake_and_not_passed_over(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="KAFKA_HOME holds no"):
        find_runtime(replace(settings, kafka_home=str(tmp_path)), StandInMachine("java", "mvn"))


def test_cached_jars_come_before_maven(settings: Settings) -> None:
    _put_kafka(settings.cache_dir / f"kafka-{KAFKA_VERSION}")
    machine = StandInMachine("java", "mvn", "docker")
    assert find_runtime(settings, machine).origin == "cache"
    assert machine.ran == ["java"]


def test_maven_fills_the_cache_once(settings: Settings) -> None:
    machine = StandInMachine("java", "mvn", "docker")
    assert [find_runtime(settings, machine).origin for _ in range(2)] == ["maven", "cache"]
    assert machine.ran.count("mvn") == 1
    assert [path.name for path in settings.cache_dir.iterdir()] == [f"kafka-{KAFKA_VERSION}"]


def test_only_looking_does_not_fetch(settings: Settings) -> None:
    machine = StandInMachine("java", "mvn")
    assert find_runtime(settings, machine, fetch=False).origin == "maven"
    assert "mvn" not in machine.ran


def test_docker_is_the_last_way(settings: Settings) -> None:
    runtime = find_runtime(settings, StandInMachine("docker"))
    assert (runtime.origin, runtime.container) == ("docker", True)


def test_a_maven_that_fails_leaves_its_log_and_docker_is_tried(settings: Settings) -> None:
    assert find_runtime(settings, StandInMachine("java", "mvn", "docker", maven_works=False)).origin == "docker"
    assert (settings.cache_dir / "maven.log").read_text() == "Could not resolve dependencies"
    assert not (settings.cache_dir / f"kafka-{KAFKA_VERSION}").exists()


@pytest.mark.parametrize(
    ("machine", "problem"),
    [
        pytest.param(StandInMachine(), "Java is not installed", id="bare machine"),
        pytest.param(StandInMachine("java"), "Maven is not installed", id="no maven"),
        pytest.param(StandInMachine("java", "mvn", maven_works=False), "Maven could not fetch it", id="no network"),
        pytest.param(StandInMachine("java", "mvn", java='java version "1.8.0_401"'), "Java 8 is too old", id="java 8"),
        pytest.param(StandInMachine("java", "docker", docker_works=False), "Docker does not answer", id="docker down"),
    ],
)
def test_without_any_way_the_error_names_all_four(settings: Settings, machine: StandInMachine, problem: str) -> None:
    with pytest.raises(Misconfigured, match="no Apache Kafka") as raised:
        find_runtime(settings, machine)
    assert problem in raised.value.happened
    for way in ("KAFKA_HOME", str(settings.cache_dir), "Maven", "Docker", "--bootstrap-servers"):
        assert way in raised.value.try_this
