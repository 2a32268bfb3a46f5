"""From a file or the SDK to a consumer, and back out again: what a user of the command line and of Python sees."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ebbtide
from ebbtide.client import Client
from ebbtide_platform.settings import child_environment
from ebbtide_schemas.samples import Sample, Withdrawal
from support.atdp import step
from support.reading import await_record, await_sample, next_of
from support.running_platform import Platform

pytestmark = pytest.mark.platform

Command = Callable[..., Any]
FOLLOW_S = 90.0
QUESTION = {"role": "user", "content": "I am Mira Kovacs, where is order 88?"}
ANSWER = {"role": "assistant", "content": "It left the warehouse this morning."}


def _write(file: Path, lines: Iterable[object]) -> Path:
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    return file


def _chat(agent: str, **members: Any) -> dict[str, Any]:
    return {"messages": [QUESTION, ANSWER], "agent": agent, "subject": f"of-{agent}", "reward": 1.0} | members


def _texts(sample: Sample) -> list[object]:
    return [message.content for message in sample.messages]


def _record(client: Client, agent: str, *, subject: str | None = None) -> str:
    """A short rewarded session; returns the answer's id."""
    with client.session(agent=agent, subject=subject or f"of-{agent}") as session:
        answer = session.record([QUESTION], ANSWER)
        session.reward(1.0, name="resolved")
    assert client.flush(FOLLOW_S)
    return answer


# --- publishing a file -----------------------------------------------------------------------------------------


def test_a_chat_transcript_becomes_a_readable_sample(ebbtide_command: Command, client: Client, tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": '{"who": "Mira Kovacs"}'}}
    messages = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": '{"holder": "Mira Kovacs", "mail": "mira.kovacs@example.org"}',
        },
        ANSWER,
    ]
    file = _write(tmp_path / "chats.jsonl", [_chat("from-chat", messages=messages)])
    done = ebbtide_command("publish", file, "--tenant", "acme")
    assert (done.code, done.out) == (0, "1 line, 2 events: 2 accepted, 0 known already, 0 refused\n")

    sample = await_sample(client, "from-chat")
    said, called, answered, last = sample.messages
    assert said.content == "I am [PERSON_1], where is order 88?"
    assert json.loads(called.tool_calls[0].arguments) == {"who": "[PERSON_1]"}
    assert isinstance(answered.content, str)
    assert json.loads(answered.content) == {"holder": "[PERSON_1]", "mail": "[EMAIL_1]"}
    assert (last.content, last.trained, sample.reward) == (ANSWER["content"], True, 1.0)


def test_atdp_events_are_published_as_they_are(ebbtide_command: Command, client: Client, tmp_path: Path) -> None:
    event = step(
        id="atdp-step",
        trajectory="atdp-trajectory",
        meta={"agent": "from-atdp", "subjects": ["of-atdp"], "purpose": "training"},
        action={"segment": ANSWER},
        rewards=[{"value": 0.5}],
        end="terminated",
    )
    done = ebbtide_command("publish", _write(tmp_path / "events.jsonl", [event]), "--tenant", "acme", "--json")
    assert (done.code, json.loads(done.out)["accepted"]) == (0, 1)
    sample = await_sample(client, "from-atdp")
    assert _texts(sample) == ["Where is order 88?", ANSWER["content"]]
    assert (sample.reward, sample.end) == (0.5, "terminated")


def test_a_dialogue_displayed_as_text_is_read_turn_by_turn(
    ebbtide_command: Command, client: Client, tmp_path: Path
) -> None:
    display = (
        "user: Hi, I am Jonas Keller.\nI moved.\nassistant: What is your new address?\nuser: 12 Elm Avenue, Denver\n"
        'assistant: None\ntool: {"user": "Jonas Keller", "saved": true}\nassistant: It is saved.\nuser: Thanks!'
    )
    file = _write(tmp_path / "displayed.jsonl", [{"messages_display": display}])
    done = ebbtide_command("publish", file, "--tenant", "acme", "--agent", "from-display", "--reward", "1")
    assert done.code == 0
    sample = await_sample(client, "from-display")
    roles = ["user", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert [message.role for message in sample.messages] == roles
    assert sample.messages[0].content == "Hi, I am [PERSON_1].\nI moved."
    assert json.loads(str(sample.messages[4].content)) == {"user": "[PERSON_1]", "saved": True}


def test_bad_lines_are_named_and_the_rest_is_taken(ebbtide_command: Command, client: Client, tmp_path: Path) -> None:
    lines = [
        _chat("among-bad-lines"),
        '{"messages": [',
        "",
        {"messages": "not a list"},
        step(specversion="atdp/9"),
        '{"type":"reward","specversion":"atdp/1","id":"r-nan","target":{"step":"s-1"},"value":NaN}',
        {"hello": "world"},
    ]
    file = _write(tmp_path / "mixed.jsonl", lines)
    done = ebbtide_command("publish", file, "--tenant", "acme")
    assert done.code == 1
    named = [line.split(": ", 2) for line in done.err.splitlines() if line.startswith("line ")]
    assert [where for where, _, _ in named] == ["line 2", "line 4", "line 5", "line 6", "line 7"]
    assert [field for _, field, _ in named] == ["$", "messages", "specversion", "value", "hello"]
    assert all(rule for _, _, rule in named)
    assert done.out == "6 lines, 4 events: 1 accepted, 0 known already, 5 refused\n"
    assert await_sample(client, "among-bad-lines").reward == 1.0

    report = json.loads(ebbtide_command("publish", file, "--tenant", "acme", "--json").out)
    assert [set(error) for error in report["errors"]] == [{"line", "code", "field", "rule"}] * 5


def test_publishing_a_file_twice_changes_nothing(ebbtide_command: Command, client: Client, tmp_path: Path) -> None:
    file = _write(tmp_path / "twice.jsonl", [_chat("twice"), _chat("twice", session="another")])
    assert ebbtide_command("publish", file, "--tenant", "acme").code == 0
    again = ebbtide_command("publish", file, "--tenant", "acme")
    assert (again.code, again.out) == (0, "2 lines, 2 events: 0 accepted, 2 known already, 0 refused\n")
    await_sample(client, "twice")
    _record(client, "behind-twice")
    await_sample(client, "behind-twice")
    samples = [record for record in client.curated("acme") if isinstance(record, Sample) and record.agent == "twice"]
    assert sorted(sample.revision for sample in samples) == [0, 0]


@pytest.mark.parametrize("words", [("no-such-file",), ("-", "--tenant", "nobody")], ids=["file", "tenant"])
def test_a_mistake_of_publish_is_explained(ebbtide_command: Command, words: tuple[str, ...]) -> None:
    done = ebbtide_command("publish", *words, *(() if "--tenant" in words else ("--tenant", "acme")))
    assert done.code != 0
    assert done.err.startswith("ebbtide: ")
    assert "Traceback" not in done.err


# --- rewards ---------------------------------------------------------------------------------------------------


def test_a_reward_finds_its_target_by_answer_response_and_correlation(ebbtide_command: Command, client: Client) -> None:
    with client.session(agent="rewarded", subject="of-rewarded", correlations={"ticket": "T-88"}) as session:
        completion = {"id": "resp-88", "choices": [{"message": ANSWER, "finish_reason": "stop"}]}
        answer = session.record([QUESTION], completion)
    assert client.flush(FOLLOW_S)
    by_answer = ebbtide_command("reward", answer, "0.25", "--name", "by-answer", "--tenant", "acme")
    by_response = ebbtide_command("reward", "0.5", "--response", "resp-88", "--name", "by-response", "--tenant", "acme")
    words = ("reward", "0.75", "--correlation", "ticket=T-88", "--name", "by-ticket", "--tenant", "acme", "--json")
    by_ticket = ebbtide_command(*words)
    assert [done.code for done in (by_answer, by_response, by_ticket)] == [0, 0, 0]
    assert set(json.loads(by_ticket.out)) == {"id"}
    sample = await_sample(client, "rewarded", rewards=3)
    found = {reward.name: reward.value for reward in sample.rewards}
    assert found == {"by-answer": 0.25, "by-response": 0.5, "by-ticket": 0.75}


def test_a_reward_without_one_target_is_explained(ebbtide_command: Command) -> None:
    assert "exactly one" in ebbtide_command("reward", "1.0", "--tenant", "acme").err
    assert "KIND=VALUE" in ebbtide_command("reward", "1.0", "--correlation", "ticket", "--tenant", "acme").err


# --- consuming -------------------------------------------------------------------------------------------------


def test_consume_prints_json_and_resumes_from_a_cursor_file(
    ebbtide_command: Command, client: Client, tmp_path: Path
) -> None:
    _record(client, "consumed")
    first = await_sample(client, "consumed")
    cursor = tmp_path / "cursor"
    read = ebbtide_command("consume", "acme", "--json", "--cursor-file", cursor)
    samples = [msgspec.json.decode(line, type=Sample) for line in read.out.splitlines()]
    assert first.id in {sample.id for sample in samples}
    assert read.err == ""
    assert ebbtide_command("consume", "acme", "--json", "--cursor-file", cursor).out == ""

    _record(client, "consumed-later")
    later = await_sample(client, "consumed-later")
    read = ebbtide_command("consume", "acme", "--cursor-file", cursor)
    assert later.id in read.out
    assert first.id not in read.out
    assert "I am [PERSON_1], where is order 88?" in read.out


def test_a_follower_waits_for_as_many_records_as_it_was_asked_for(
    platform: Platform, ebbtide_command: Command, client: Client, tmp_path: Path
) -> None:
    _record(client, "followed")
    await_sample(client, "followed")
    cursor = tmp_path / "cursor"
    assert ebbtide_command("consume", "acme", "--cursor-file", cursor).code == 0
    words = ["consume", "acme", "--follow", "--limit", "1", "--json", "--cursor-file", str(cursor)]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ebbtide_platform.cli.main", *words],
        env=child_environment(platform.settings),
        stdout=subprocess.PIPE,
    ) as follower:
        try:
            _record(client, "followed-live")
            printed, _ = follower.communicate(timeout=FOLLOW_S)
        finally:
            follower.kill()
    (line,) = printed.splitlines()
    assert json.loads(line)["agent"] == "followed-live"
    assert follower.returncode == 0


# --- taking back -----------------------------------------------------------------------------------------------


def test_a_forgotten_person_leaves_a_receipt_and_the_follower_a_withdrawal(client: Client, tmp_path: Path) -> None:
    _record(client, "forgetful", subject="user-forgotten")
    sample = await_sample(client, "forgetful")
    follower = client.curated("acme", follow=True, cursor=sample.cursor, withdrawals=True)
    receipt = client.forget("user-forgotten")
    withdrawn = next_of(follower, lambda record: record.id == sample.id)
    assert isinstance(withdrawn, Withdrawal)
    assert withdrawn.reasons == ["subject_erased"]
    assert sample.id not in {record.id for record in client.curated("acme")}

    file = tmp_path / "receipt.json"
    file.write_bytes(msgspec.json.encode(receipt))
    assert ebbtide.verify(file).ok
    assert ebbtide.verify(receipt, public_key=receipt.public_key).ok
    changed = msgspec.structs.replace(receipt, irrecoverable_ms=receipt.irrecoverable_ms - 1)
    assert ebbtide.verify(changed).checks["signature"] is False
    assert not ebbtide.verify(changed).ok


def test_withdrawn_consent_withdraws_the_sample(client: Client) -> None:
    _record(client, "unwilling", subject="user-unwilling")
    sample = await_sample(client, "unwilling")
    client.consent("user-unwilling", "withdrawn", purpose="training")
    withdrawn = await_record(client, Withdrawal, lambda record: record.id == sample.id)
    assert withdrawn.reasons == ["consent_withdrawn"]

    client.consent("user-unwilling", "given", purpose="training")
    assert await_sample(client, "unwilling").id == sample.id
