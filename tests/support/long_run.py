"""Long runs: figures are kept as they come, so that a run that was ended goes on where it stopped."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / ".ebbtide-long" / "figures.json"
SOURCES = ("schemas", "platform", "governance", "streams", "trainer", "tests")
PAGE = ROOT / "docs" / "benchmarks.md"
_KIB_PER_GIB = 1 << 20


class Figure(msgspec.Struct, frozen=True):
    """One result against its bar, in words."""

    section: str
    says: str
    size: int
    found: str
    bar: str
    met: bool

    @property
    def verdict(self) -> str:
        """As a reader looks for it."""
        return "met" if self.met else "NOT MET"


class _File(msgspec.Struct):
    """What the file holds: the figures of one state of the sources."""

    revision: str
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
    done: list[str] = msgspec.field(default_factory=list)


class Journal:
    """The figures of these sources; those of others are forgotten."""

    def __init__(self, path: Path, revision: str) -> None:
        self._path = path
        self._file = _File(revision)
        if path.exists():
            known = msgspec.json.decode(path.read_bytes(), type=_File)
            if known.revision == revision:
                self._file = known

    @property
    def revision(self) -> str:
        """Which state of the sources the figures are of."""
        return self._file.revision

    @property
    def figures(self) -> Sequence[Figure]:
        """What is known, in the order in which it was found."""
        return tuple(self._file.figures.values())

    def figure(self, key: str, measure: Callable[[], Figure]) -> Figure:
        """The figure under ``key``, measured if it is not known."""
        if key not in self._file.figures:
            self._file.figures[key] = measure()
            self._keep()
        return self._file.figures[key]

    def once(self, key: str, work: Callable[[], object]) -> None:
        """Do a part of a long measurement, if it was not done before."""
        if key not in self._file.done:
            work()
            self._file.done.append(key)
            self._keep()

    def _keep(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self._file)))
        fresh.replace(self._path)


def source_revision() -> str:
    """The commit, and a digest of the sources if they are not the commit's; another revision has other figures."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD").strip()
        if not _git("status", "--porcelain", "--", "*.py"):
            return head
    except (OSError, subprocess.CalledProcessError):
        head = "no commit"
    return f"{head} with changes {_digest()[:8]}"


def _digest() -> str:
    """Of every module under the folders that git would look at."""
    found = hashlib.sha256()
    for path in sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def machine() -> str:
    """Processor, cores, memory, system and Python, in one line."""
    processor = _field("/proc/cpuinfo", "model name") or platform.machine()
    memory = int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / _KIB_PER_GIB
    cores = len(os.sched_getaffinity(0))
    return f"{processor}, {cores} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def page(revision: str, figures: Sequence[Figure], prose: Mapping[str, str]) -> str:
    """docs/benchmarks.md; ``prose`` says what each section is about."""
    missed = sum(not figure.met for figure in figures)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make test-long`; edits are lost. A bar that is not reached says NOT MET.",
        "",
        f"- commit: {revision}",
        f"- machine: {machine()}",
        f"- bars: {len(figures)}, not met: {missed}",
    ]
    for section, about in prose.items():
        rows = [figure for figure in figures if figure.section == section]
        if rows:
            lines += ["", f"## {section}", "", about, "", "| what | N | found | bar | |", "|---|--:|---|---|---|"]
            lines += [
                f"| {figure.says} | {figure.size:,} | {figure.found} | {figure.bar} | {figure.verdict} |"
                for figure in rows
            ]
    return "\n".join(lines) + "\n"


def _git(*arguments: str) -> str:
    # Root may run the tests of a checkout that is another user's.
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _field(path: str, name: str) -> str | None:
    with Path(path).open() as lines:
        found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
        return next(found, None)
