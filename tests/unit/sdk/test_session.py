"""A session sends only what is new, and says what left the context."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

import ebbtide
from ebbtide.session import Session, open_session
from ebbtide_schemas.events import Event, Reward, Step

SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "Status of order 88?"}
ANSWER = {"role": "assistant", "content": "It is on its way."}
THANKS = {"role": "user", "content": "Thanks."}


class Recording:
    """A session and the events that it sent."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.session: Session = open_session(
            self.lines.append,
            lambda: None,
            agent="support",
            subject="user-42",
            purpose="training",
            session=None,
            trajectory=None,
            model=None,
            group=None,
            labels={},
        )

    @property
    def events(self) -> list[Event]:
        return [msgspec.json.decode(line, type=Event) for line in self.lines]

    @property
    def steps(self) -> list[Step]:
        return [event for event in self.events if isinstance(event, Step)]


@pytest.fixture
def recording() -> Recording:
    return Recording()


def test_a_resent_history_is_recorded_once(recording: Recording) -> None:
    recording.session.record([SYSTEM, QUESTION], ANSWER)
    recording.session.record([SYSTEM, QUESTION, ANSWER, THANKS], "Welcome.")
    first, second = recording.steps
    assert [segment.content for segment in first.observation.segments] == ["Be brief.", "Status of order 88?"]
    assert [segment.content for segment in second.observation.segments] == ["Thanks."]
    assert (second.branch, second.observation.prefix, second.parent) == ("continue", 3, first.id)


def test_a_history_of_n_turns_costs_n_segments_not_n_squared(recording: Recording) -> None:
    messages: list[dict[str, Any]] = []
    for n in range(50):
        messages.append({"role": "user", "content": f"question {n}"})
        recording.session.record(messages, f"answer {n}")
        messages.append({"role": "assistant", "content": f"answer {n}"})
    assert sum(len(step.observation.segments) for step in recording.steps) == 50


def test_an_edited_history_starts_a_branch_and_names_what_left(recording: Recording) -> None:
    recording.session.record([SYSTEM, QUESTION], ANSWER)
    recording.session.record([SYSTEM, {"role": "user", "content": "Status of order 89?"}], "Lost.")
    edit = recording.steps[1]
    assert (edit.branch, edit.observation.prefix, edit.removed) == ("edit", 1, [1, 2])
    assert [segment.content for segment in edit.observation.segments] == ["Status of order 89?"]


def test_asking_the_same_again_is_a_second_sample_of_one_prompt(recording: Recording) -> None:
    recording.session.record([QUESTION], "A")
    recording.session.record([QUESTION], "B")
    again = recording.steps[1]
    assert (again.branch, again.removed, again.observation.segments) == ("edit", [1], [])


def test_a_tool_call_is_a_step_with_its_result(recording: Recording) -> None:
    recording.session.tool("refund", {"order": 88}, {"ok": True})
    (step,) = recording.steps
    assert step.action is not None
    call = step.action.segment.tool_calls[0]
    assert (call.name, call.arguments) == ("refund", '{"order":88}')
    assert step.outcome.results[0].tool_call_id == call.id
    assert step.outcome.results[0].content == '{"ok":true}'


def test_tools_recorded_beside_the_messages_do_not_break_the_history(recording: Recording) -> None:
    recording.session.record([QUESTION], ANSWER)
    recording.session.tool("refund", {"order": 88}, "done")
    recording.session.record([QUESTION, ANSWER, THANKS], "Welcome.")
    last = recording.steps[2]
    assert (last.branch, last.removed, last.observation.prefix) == ("continue", [], 4)
    assert [segment.content for segment in last.observation.segments] == ["Thanks."]


def test_leaving_the_block_ends_the_trajectory(recording: Recording) -> None:
    with recording.session as s:
        s.record([QUESTION], ANSWER)
    assert [step.end for step in recording.steps] == [None, "terminated"]


def test_an_exception_aborts_the_trajectory_and_goes_on_to_the_caller(recording: Recording) -> None:
    with pytest.raises(ZeroDivisionError), recording.session as s:
        s.record([QUESTION], ANSWER)
        raise ZeroDivisionError
    assert recording.steps[-1].end == "aborted"


def test_a_reward_names_the_trajectory(recording: Recording) -> None:
    recording.session.reward(1.0, name="resolved")
    (reward,) = recording.events
    assert isinstance(reward, Reward)
    assert (reward.target.trajectory, reward.value, reward.name) == (recording.session.trajectory, 1.0, "resolved")


def test_a_completion_object_gives_response_id_and_usage(recording: Recording) -> None:
    completion = {
        "id": "chatcmpl-7",
        "choices": [{"message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    recording.session.record([QUESTION], completion)
    (step,) = recording.steps
    assert step.meta.response_id == "chatcmpl-7"
    assert step.outcome.usage is not None
    assert (step.outcome.usage.output_tokens, step.outcome.finish_reason) == (2, "stop")


def test_broken_messages_are_warned_of_without_their_text(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ebbtide"):
        answer_id = recording.session.record(["Ines Varga"], ANSWER)  # type: ignore[list-item]
    assert answer_id
    assert "could not be recorded" in caplog.text
    assert "Varga" not in caplog.text


def test_a_lone_surrogate_reaches_the_door_as_an_escape(recording: Recording) -> None:
    recording.session.record([{"role": "user", "content": "bad \udcb2 half"}], ANSWER)
    assert rb"bad \udcb2 half" in recording.lines[0]


def test_a_decorated_function_reports_to_the_open_session(recording: Recording) -> None:
    @ebbtide.tool
    def refund(order: int) -> dict[str, bool]:
        return {"ok": order == 88}

    @ebbtide.tool
    async def lookup(order: int) -> str:
        return "shipped"

    with recording.session:
        assert refund(88) == {"ok": True}
        assert asyncio.run(lookup(order=88)) == "shipped"
    calls = [step.action.segment.tool_calls[0] for step in recording.steps if step.action]
    assert [(call.name, call.arguments) for call in calls] == [("refund", '{"order":88}'), ("lookup", '{"order":88}')]


def test_a_tool_that_raises_is_recorded_as_an_error(recording: Recording) -> None:
    @ebbtide.tool
    def refund() -> None:
        raise LookupError("Ines Varga has no order")

    with recording.session, pytest.raises(LookupError):
        refund()
    step = recording.steps[0]
    assert (step.outcome.status, step.outcome.error) == ("error", "LookupError")
