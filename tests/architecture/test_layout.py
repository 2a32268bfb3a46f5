"""The shape of the repository is a promise: a reader guesses the file from the question."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = {
    "platform": {"ebbtide", "ebbtide_platform"},
    "governance": {"ebbtide_governance"},
    "streams": {"ebbtide_streams"},
    "trainer": {"ebbtide_trainer"},
    "schemas": {"ebbtide_schemas"},
}
MAX_LINES = 400
MAX_MODULES = 8
# A package that is one list of like things (stages, commands) may be longer: name it here with its reason.
LONG_FOLDERS = {
    "platform/ebbtide": 10,  # the whole SDK, flat: what a user opens to see how small it is
    "streams/ebbtide_streams": 12,  # one file per stage, and what runs them
    "platform/ebbtide_platform/cli": 13,  # one file per command
    "governance/ebbtide_governance/commands": 9,  # one file per command
}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def _packages() -> list[Path]:
    return [ROOT / root / package for root, packages in SOURCE_ROOTS.items() for package in sorted(packages)]


def _modules() -> list[Path]:
    return [path for package in _packages() for path in package.rglob("*.py")]


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_a_source_root_holds_packages_and_no_module(root: str) -> None:
    """`platform/__init__.py` would shadow the standard library for every process started at the root."""
    assert [path.name for path in (ROOT / root).glob("*.py")] == []
    assert {path.parent.name for path in (ROOT / root).glob("*/__init__.py")} == SOURCE_ROOTS[root]


def test_the_standard_library_platform_answers() -> None:
    assert platform.system()


@pytest.mark.parametrize("package", _packages(), ids=lambda path: path.name)
def test_a_package_is_typed(package: Path) -> None:
    assert (package / "py.typed").exists()


def test_a_module_is_one_concept_under_400_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): n for path in _modules() if (n := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert long == {}


def test_a_folder_has_about_eight_modules() -> None:
    crowded = {}
    for folder in {path.parent for path in _modules()}:
        name = str(folder.relative_to(ROOT))
        count = sum(1 for path in folder.glob("*.py") if path.name != "__init__.py")
        if count > LONG_FOLDERS.get(name, MAX_MODULES):
            crowded[name] = count
    assert crowded == {}


def test_no_module_is_named_for_nothing() -> None:
    assert [path.name for path in _modules() if path.stem in FORBIDDEN_NAMES] == []


def test_only_settings_read_the_environment() -> None:
    """The SDK has one reader of its own, since it must work where nothing else is installed."""
    allowed = {"platform/ebbtide_platform/settings.py", "platform/ebbtide/configuration.py"}
    readers = {
        str(path.relative_to(ROOT))
        for path in _modules()
        if any(word in path.read_text() for word in ("os.environ", "os.getenv", "environ["))
    }
    assert readers - allowed == set()


def test_pickle_is_used_nowhere() -> None:
    assert [str(path) for path in _modules() if "import pickle" in path.read_text()] == []
