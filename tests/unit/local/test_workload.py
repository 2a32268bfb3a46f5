"""The demo's workload: the same seed gives the same, and what is planted really stands there."""

from __future__ import annotations

import json
from collections import Counter

from ebbtide_platform.local.workload import TENANTS, Conversation, generate

CONVERSATIONS = 48


def _dialogue(conversation: Conversation) -> str:
    last = conversation.turns[-1]
    return json.dumps([*last.messages, last.answer], ensure_ascii=False)


def test_the_same_seed_gives_the_same_workload_and_another_another() -> None:
    assert list(generate(CONVERSATIONS, 7)) == list(generate(CONVERSATIONS, 7))
    assert list(generate(CONVERSATIONS, 7)) != list(generate(CONVERSATIONS, 8))


def test_more_conversations_begin_with_the_same_ones() -> None:
    assert list(generate(CONVERSATIONS))[:10] == list(generate(10))


def test_three_agents_work_in_two_tenants() -> None:
    homes = {(conversation.agent, conversation.tenant) for conversation in generate(CONVERSATIONS)}
    assert homes == {("airline", TENANTS[0]), ("bank", TENANTS[0]), ("coding", TENANTS[1])}


def test_every_planted_value_occurs_and_every_kind_is_planted() -> None:
    kinds: Counter[str] = Counter()
    for conversation in generate(CONVERSATIONS):
        text = _dialogue(conversation)
        assert conversation.person.name in text
        assert [value for _, value in conversation.values if value not in text] == []
        kinds.update(kind for kind, _ in conversation.values)
    assert set(kinds) == {"name", "e-mail", "phone", "card", "iban", "street", "birth date"}


def test_values_are_planted_in_prose_in_arguments_and_in_results() -> None:
    for conversation in generate(CONVERSATIONS):
        last = conversation.turns[-1]
        parts: dict[str, str] = {"prose": "", "arguments": "", "results": ""}
        for message in (*last.messages, last.answer):
            if message["role"] == "tool":
                parts["results"] += message["content"]
                continue
            parts["prose"] += message["content"] or ""
            parts["arguments"] += "".join(call["function"]["arguments"] for call in message.get("tool_calls", []))
        assert all(any(value in text for _, value in conversation.values) for text in parts.values())


def test_values_are_told_apart_from_person_to_person() -> None:
    people = [conversation.person for conversation in generate(CONVERSATIONS)]
    assert len({person.reference for person in people}) == CONVERSATIONS
    assert len({person.email for person in people}) == CONVERSATIONS


def test_results_are_long_and_agents_resend_their_history() -> None:
    for conversation in generate(CONVERSATIONS):
        lengths = [len(turn.messages) for turn in conversation.turns]
        assert lengths == sorted(set(lengths))
    assert max(len(_dialogue(conversation)) for conversation in generate(3)) > 10_000


def test_rewards_come_in_every_disorder_and_sometimes_not_at_all() -> None:
    conversations = list(generate(CONVERSATIONS))
    disorders = {reward.disorder for conversation in conversations for reward in conversation.rewards}
    assert disorders == {"in time", "late", "twice", "before the steps"}
    assert any(not conversation.rewards for conversation in conversations)


def test_exactly_one_person_refuses() -> None:
    assert sum(conversation.refuses for conversation in generate(CONVERSATIONS)) == 1
