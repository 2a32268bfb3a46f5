"""What the commands of the read model say, on a terminal and to a script."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from ebbtide.configuration import Configuration
from ebbtide_governance.commands import lag, status, tail, why
from ebbtide_governance.tables.reading import ReadModel
from ebbtide_governance.tables.views import TrajectoryView
from ebbtide_governance.web.asking import add_reach_options, ask, reach
from ebbtide_platform import topics
from ebbtide_platform.cli.connection import Connection
from ebbtide_platform.errors import EbbtideError, Forbidden, Misconfigured, NotFound, Unauthenticated, Unavailable
from ebbtide_platform.ports import InRecord
from ebbtide_platform.settings import Settings
from support.governed_log import all_records, governed_log
from support.read_model import fill, fresh_read_model


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Engine]]:
    folder = tmp_path_factory.mktemp("commands")
    with fresh_read_model(folder) as engine:
        fill(governed_log(), engine)
        yield Settings(data_dir=folder), engine


def _arguments(*given: str, **more: Any) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_reach_options(parser)
    return argparse.Namespace(**vars(parser.parse_args(given)), **more)


def _api(answer: httpx.Response) -> Connection:
    connection = Connection(Configuration(url="http://api", api_key="k"))
    connection.http.close()
    connection.http = httpx.Client(base_url="http://api", transport=httpx.MockTransport(lambda _: answer))
    return connection


def test_status_tells_what_came_in_what_became_of_it_and_what_waits(filled: tuple[Settings, Engine]) -> None:
    shown = "\n".join(status.render(status.read_status(filled[0], lambda *_: {"settle": 3, "projector": 0})))
    for words in (
        "9 trajectories, 12 steps, 5 segments",
        "2 eligible, 2 rejected, 2 held, 2 open, 1 quarantined",
        "rejected: consent_withdrawn 1, purpose_missing 1, unrewarded 1",
        "3 seen, 2 routed, 1 wait for their target",
        "acme: 1 live, 1 withdrawn, globex: 1 live, 0 withdrawn",
        "redaction_failed 1, undecodable 1",
        "projector 0, settle 3",
        "ebbtide.steps.v1[0]@70",
    ):
        assert words in shown
    assert "BALANCE" not in shown


def test_status_reads_this_machines_database_when_no_key_is_named(
    filled: tuple[Settings, Engine], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EBBTIDE_API_KEY", raising=False)
    monkeypatch.setattr(lag, "REACH_S", 0.05)
    nowhere = replace(filled[0], bootstrap_servers="127.0.0.1:1")
    assert status.run(_arguments(json=True), nowhere) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["tenant"], shown["balanced"], shown["account"]["trajectories_in"]) == (None, True, 9)


def test_a_broker_that_is_away_leaves_the_lag_out_and_the_rest_in(filled: tuple[Settings, Engine]) -> None:
    def away(*_: object) -> dict[str, int]:
        raise Unavailable("no broker")

    assert status.read_status(filled[0], away).lag is None


def test_where_nothing_has_run_status_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no read model here") as refused:
        status.read_status(Settings(data_dir=tmp_path))
    assert "EBBTIDE_API_KEY" in refused.value.try_this


def test_why_prints_each_reason_and_what_would_change_it(
    filled: tuple[Settings, Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert why.run(_arguments("--local", id="unpaid", json=False), filled[0]) == 0
    shown = capsys.readouterr().out
    view = ReadModel(filled[1]).why("acme", "unpaid")
    assert view is not None
    for reason in view.decisions[0].reasons:
        assert f"{reason.code}: {reason.text}" in shown
        assert reason.remedy in shown
    assert "REJECTED" in shown
    assert "what would change it: " in shown


@pytest.mark.parametrize("trajectory", ["good", "refused", "open", "broken", "mended", "grouped-a"])
def test_why_has_words_for_every_state(filled: tuple[Settings, Engine], trajectory: str) -> None:
    view = ReadModel(filled[1]).why("acme", trajectory)
    assert view is not None
    shown = why.render(view)
    assert view.state.upper() in shown[0]
    assert shown[-1] == f"what would change it: {view.next}"
    assert view.next


def test_why_writes_one_json_value_for_a_script(
    filled: tuple[Settings, Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert why.run(_arguments("--local", id="refused", json=True), filled[0]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [decision["verdict"] for decision in shown["decisions"]] == ["rejected", "eligible"]


def test_why_of_an_unknown_id_says_that_own_ids_need_a_key(filled: tuple[Settings, Engine]) -> None:
    with pytest.raises(NotFound) as refused:
        why.run(_arguments("--local", id="nobodys", json=False), filled[0])
    assert "API key" in refused.value.try_this


def test_a_key_file_that_is_not_there_is_an_error_and_no_reason_to_read_the_database(tmp_path: Path) -> None:
    arguments = _arguments("--api-key-file", str(tmp_path / "none"))
    with pytest.raises(Misconfigured, match="key file"), reach(arguments, Settings(data_dir=tmp_path)):
        pass


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(401), Unauthenticated),
        (httpx.Response(403), Forbidden),
        (httpx.Response(404), NotFound),
        (httpx.Response(503), Unavailable),
        (httpx.Response(200, content=b"<html>"), Unavailable),
    ],
    ids=["unknown-key", "wrong-scope", "missing", "down", "something-else-listens"],
)
def test_refusals_of_the_api_become_errors_that_say_what_to_try(
    answer: httpx.Response, error: type[EbbtideError]
) -> None:
    with _api(answer) as connection, pytest.raises(error):
        ask(connection, "/v1/trajectories/x", TrajectoryView, missing="no such trajectory")


def test_lag_is_counted_per_stage_and_for_the_projector() -> None:
    steps, routed, findings = topics.STEPS.name, topics.ROUTED.name, topics.FINDINGS.name
    curated = topics.curated("acme").name
    ends = {(steps, 0): 10, (steps, 1): 5, (routed, 0): 4, (findings, 0): 6, (curated, 0): 3, (topics.FACTS.name, 0): 9}
    acknowledged = {(steps, 0): 7, (steps, 1): 5, (findings, 0): 6}
    projected = {place: end - 1 for place, end in ends.items()}
    assert lag.lag_by_stage(ends, acknowledged, projected) == {"redact": 3, "settle": 4, "projector": 6}


def test_tail_shows_every_kind_of_record_with_its_tenant_and_ids() -> None:
    lines = [tail.line(tail.describe(record)) for record in all_records(governed_log())]
    shown = "\n".join(lines)
    for words in (
        "step 0 good-s0",
        "2 findings in 1 segments of good-s0",
        "reward resolved=1 rw-1",
        "revision 1, 1 chains, ended terminated",
        "revision 0 rejected: unrewarded, purpose_missing",
        "sample sample-good revision 1",
        "withdrawn sample-refused: consent_withdrawn",
        "member of g-2: eligible",
        "group g-1 short, 2 of 2",
        "consent withdrawn",
        "quarantined by redact: redaction_failed (ebbtide.steps.v1[0]@70)",
        "undecodable",
    ):
        assert words in shown


def test_tail_says_unreadable_and_nothing_of_what_could_not_be_read() -> None:
    seen = tail.describe(InRecord(topics.STEPS.name, 0, 3, b"k", b"Ada Lovelace", timestamp_ms=0))
    assert (seen["kind"], seen["detail"]) == ("unreadable", "undecodable")
    assert "Ada" not in tail.line(seen)
