"""`ebbtide up`: everything answers, everything ends, and everything is there again."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from ebbtide_platform.cli.doctor import examine
from ebbtide_platform.cli.main import main
from support.running_platform import Platform, running_platform, start
from support.waiting import lives, wait_until

pytestmark = pytest.mark.platform
PARTS = ("broker", "keydoor", "api", "processors", "curator", "projector")


def _pids(platform: Platform) -> list[int]:
    found = {part: platform.pid_of(part) for part in PARTS}
    assert None not in found.values(), found
    return [pid for pid in found.values() if pid is not None]


def test_the_platform_ends_without_orphans_and_comes_back_with_its_tenants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_platform(tmp_path / "data", "acme") as platform:
        settings = platform.settings
        for name, value in settings.environment().items():
            monkeypatch.setenv(name, value)
        assert {check.name: check.found for check in examine(settings) if check.state != "ok"} == {}
        key = platform.key("acme")
        assert stat.S_IMODE((settings.run_dir / "acme.key").stat().st_mode) == 0o600
        assert main(["tenant", "create", "globex", "--json"]) == 0
        assert main(["key", "create", "globex"]) == 0
        assert key not in platform.log.read_text()

        pids = _pids(platform)
        platform.process.kill()
        platform.process.wait()
        wait_until(lambda: not any(map(lives, pids)), "the children of a killed supervisor are gone")

        again = start(settings, platform.options)
        try:
            assert again.key("acme") == key
            capsys.readouterr()
            assert main(["tenant", "list", "--json"]) == 0
            assert json.loads(capsys.readouterr().out) == {"tenants": ["acme", "globex"]}
            pids = _pids(again)
        finally:
            again.stop()
        assert again.process.returncode == 0
        assert [pid for pid in pids if lives(pid)] == []
