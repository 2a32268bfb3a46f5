"""The command line: what it imports, what it answers, and how it explains a person's mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from importlib.metadata import EntryPoint, entry_points

import pytest

from ebbtide.errors import ServerUnreachable
from ebbtide_platform.cli import main as cli
from ebbtide_platform.cli.command import Command
from ebbtide_platform.errors import EbbtideError, NotFound
from ebbtide_platform.settings import Settings

seen: list[tuple[Namespace, Settings]] = []


def _configure(parser: ArgumentParser) -> None:
    parser.add_subparsers(dest="action").add_parser("act")
    parser.add_argument("--fail", choices=("user", "extra", "file", "sdk", "fault", "interrupt"))


def _run(arguments: Namespace, settings: Settings) -> int:
    seen.append((arguments, settings))
    failures: dict[str, BaseException] = {
        "user": NotFound("no such trajectory", try_this="ebbtide tail"),
        "extra": ModuleNotFoundError("No module named 'faust'", name="faust.app"),
        "file": FileNotFoundError(2, "No such file or directory", "events.jsonl"),
        "sdk": ServerUnreachable("ConnectError"),
        "fault": ZeroDivisionError(),
        "interrupt": KeyboardInterrupt(),
    }
    if arguments.fail:
        raise failures[arguments.fail]
    return 7


command = Command("A command for these tests.", _configure, _run)


@pytest.fixture(autouse=True)
def only_this_command(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("stand-in", "stand_in_command:command", cli.COMMANDS_GROUP)
    monkeypatch.setitem(sys.modules, "stand_in_command", sys.modules[__name__])
    monkeypatch.setattr(cli, "_entry_points", lambda: {"stand-in": point})
    seen.clear()


def test_a_command_gets_its_arguments_and_the_settings_and_gives_the_exit_code() -> None:
    assert cli.main(["--data-dir", "/d", "stand-in", "--bootstrap-servers", "kafka:9092", "--json"]) == 7
    [(arguments, settings)] = seen
    assert arguments.json is True
    assert (str(settings.data_dir), settings.bootstrap_servers) == ("/d", "kafka:9092")


@pytest.mark.parametrize("words", [["--json", "stand-in"], ["stand-in", "--json"], ["stand-in", "act", "--json"]])
def test_common_options_may_stand_before_or_after_the_command(words: list[str]) -> None:
    assert cli.main(words) == 7
    assert seen[0][0].json is True


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        ("user", NotFound.exit_code, ["no such trajectory", "try: ebbtide tail"]),
        ("extra", 6, ["faust, which is not installed", "pip install 'ebbtide[streams]'"]),
        ("file", 6, ["events.jsonl: No such file or directory"]),
        ("sdk", 1, ["no Ebbtide server answers"]),
        ("interrupt", 130, []),
    ],
)
def test_a_mistake_is_explained_without_a_traceback(
    failure: str, code: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["stand-in", "--fail", failure]) == code
    printed = capsys.readouterr()
    assert all(words in printed.err for words in said)
    assert "Traceback" not in printed.err + printed.out


def test_a_script_reads_the_mistake_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stand-in", "--json", "--fail", "user"]) == NotFound.exit_code
    error = json.loads(capsys.readouterr().err)["error"]
    assert error == {"code": "not_found", "message": "no such trajectory", "try": "ebbtide tail"}


def test_a_fault_of_the_program_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        cli.main(["stand-in", "--fail", "fault"])


@pytest.mark.parametrize("extra", ["server", "streams", "trainer"])
def test_a_missing_module_names_the_extra_that_brings_it(extra: str) -> None:
    for module in cli.EXTRAS[extra]:
        explained = cli.explain(ModuleNotFoundError(name=module))
        assert isinstance(explained, EbbtideError)
        assert explained.try_this == f"pip install 'ebbtide[{extra}]'"


def test_an_unknown_command_points_to_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sail"]) == 2
    assert "there is no `ebbtide sail`" in capsys.readouterr().err


def test_without_a_command_the_groups_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    assert all(group in shown for group in [*cli.SUMMARY, "Others", "stand-in"])


def test_every_declared_command_is_in_the_list() -> None:
    declared = {point.name for point in entry_points(group=cli.COMMANDS_GROUP)}
    assert declared == {name for commands in cli.SUMMARY.values() for name in commands}


def test_asking_for_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys; from ebbtide_platform.cli.main import main; main([])\n"
        "sys.exit(','.join(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    loaded = set(done.stderr.strip().split(","))
    assert "ebbtide_platform" in loaded
    assert loaded & {"httpx", "msgspec", "confluent_kafka", "sqlmodel", "fastapi", "faust", "spacy"} == set()
