"""The wheel as a stranger gets it: built from this checkout, in a virtual environment with its base dependencies only.

Nothing is fetched. A wheel is a zip file, and what it needs is installed here already, in the locked version:
so installing is unpacking the one and copying the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from shutil import copyfile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
BUILD_S, RUN_S = 120.0, 60.0


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built by the locked hatchling."""
    command = [sys.executable, "-P", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=BUILD_S)
    (wheel,) = folder.glob("*.whl")
    return wheel


class BareEnvironment:
    """A fresh virtual environment with ``wheel`` and what it requires without any extra."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        (self._site,) = folder.glob("lib/python*/site-packages")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self._site)
        self.installed = {"ebbtide"}
        (metadata,) = self._site.glob("ebbtide-*.dist-info")
        self._install_requirements(PathDistribution(metadata))

    def _install_requirements(self, of: Distribution) -> None:
        for line in of.requires or []:
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if not wanted or name in self.installed:
                continue
            found = distribution(name)
            assert requirement.specifier.contains(found.version), f"{requirement} is not met by {found.version}"
            self.installed.add(name)
            self._copy(found)
            self._install_requirements(found)

    def _copy(self, found: Distribution) -> None:
        for file in found.files or []:
            if ".." not in file.parts and file.suffix != ".pyc":
                target = self._site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                copyfile(str(file.locate()), target)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run its Python, which sees this environment's packages and nothing else."""
        known = {"PATH": os.environ["PATH"], "HOME": str(self._site), **environment}
        command = [str(self.python), "-W", "error", *words]
        return subprocess.run(
            command, env=known, cwd=self._site.parent, capture_output=True, text=True, timeout=RUN_S, check=False
        )
