"""The demo's workload: three agents in two tenants, with personal data planted where agents really carry it.

Pure and seeded: the same seed gives the same people, words, rewards and disorder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

TENANTS = ("harbour", "lagoon")
"""Airline and bank live with the first, the coding agent with the second, so that isolation has something to show."""

Disorder = Literal["in time", "late", "twice", "before the steps"]

_FIRST = ("Ines", "Jonas", "Mira", "Noah", "Sofia", "Yusuf", "Clara", "Ethan", "Priya", "Tomas", "Hannah", "Diego")
_LAST = (
    "Varga",
    "Keller",
    "Kovacs",
    "Brown",
    "Rossi",
    "Demir",
    "Lindqvist",
    "Walker",
    "Nair",
    "Novak",
    "Meyer",
    "Santos",
)
_STREETS = ("Sunset Drive", "Elm Avenue", "Cedar Street", "Lakeview Road", "Maple Lane", "Harbour Street")
_CITIES = ("Denver", "Phoenix", "Chicago", "Boston", "Seattle", "Austin")


@dataclass(frozen=True)
class Person:
    """An invented person; every value is made up or a public test value."""

    name: str
    email: str
    phone: str
    card: str
    iban: str
    street: str
    born: str
    reference: str

    def planted(self) -> dict[str, str]:
        """The values that must not come out again, by kind."""
        return {
            "name": self.name,
            "e-mail": self.email,
            "phone": self.phone,
            "card": self.card,
            "iban": self.iban,
            "street": self.street,
            "birth date": self.born,
        }


@dataclass(frozen=True)
class Turn:
    """One model call: what the agent had read by then, what it answered, and the tool it called, if any."""

    messages: list[dict[str, Any]]
    answer: dict[str, Any]


@dataclass(frozen=True)
class Reward:
    """A reward and how it misbehaves on its way."""

    value: float
    name: str
    disorder: Disorder = "in time"


@dataclass(frozen=True)
class Conversation:
    """One episode of one agent with one person."""

    tenant: str
    agent: str
    person: Person
    refuses: bool
    """True: the person has refused training before."""
    turns: list[Turn]
    rewards: list[Reward] = field(default_factory=list)
    values: frozenset[tuple[str, str]] = frozenset()
    """(kind, value) of every planted value that really occurs in the turns."""


def generate(conversations: int, seed: int = 7) -> Iterator[Conversation]:
    """Yield ``conversations`` episodes; the agents take turns, and the fifth person refuses training."""
    random = Random(seed)  # noqa: S311  # a reproducible workload, not a secret
    makers = (_airline, _bank, _coding)
    for index in range(conversations):
        person = _person(random, index)
        agent, tenant, dialogue = makers[index % len(makers)](random, person)
        turns = list(_turns(dialogue))
        yield Conversation(
            tenant=tenant,
            agent=agent,
            person=person,
            refuses=index == 4,
            turns=turns,
            rewards=_rewards(random, index),
            values=_occurring(person, dialogue),
        )


def _person(random: Random, index: int) -> Person:
    first, last = _FIRST[index % len(_FIRST)], _LAST[(index // len(_FIRST) + index) % len(_LAST)]
    number = random.randrange(100, 999)
    return Person(
        name=f"{first} {last}",
        email=f"{first}.{last}{number}@example.org".lower(),
        phone=f"+1 202-555-{random.randrange(100, 199):04d}",
        card=random.choice(("4111 1111 1111 1111", "5555 5555 5555 4444", "3782 822463 10005")),
        iban=random.choice(("DE89 3704 0044 0532 0130 00", "GB82 WEST 1234 5698 7654 32")),
        street=f"{number} {random.choice(_STREETS)}",
        born=f"{random.randrange(1950, 2004)}-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}",
        reference=f"customer-{index}",
    )


def _airline(random: Random, person: Person) -> tuple[str, str, list[dict[str, Any]]]:
    booking = {
        "booking": "QX7-331",
        "passenger": person.name,
        "contact": {"mail": person.email, "phone": person.phone},
        "legs": 2,
    }
    return (
        "airline",
        TENANTS[0],
        [
            {"role": "system", "content": "You rebook flights. Be brief."},
            {
                "role": "user",
                "content": f"Hello, my name is {person.name}. I missed my flight, write me at {person.email}.",
            },
            _call("c1", "find_booking", {"passenger": person.name, "mail": person.email}),
            _result("c1", json.dumps(booking)),
            {
                "role": "assistant",
                "content": f"I found booking QX7-331, {person.name.split()[0]}. Shall I take the card you used?",
            },
            {"role": "user", "content": f"Yes, it is {person.card}. Call {person.phone} if it fails."},
            _call("c2", "rebook", {"booking": "QX7-331", "card": person.card, "seats": 1}),
            _result("c2", json.dumps({"ok": True, "sent_to": person.email, "fee": 30})),
            {"role": "assistant", "content": f"Done. The new ticket goes to {person.email}."},
        ],
    )


def _bank(random: Random, person: Person) -> tuple[str, str, list[dict[str, Any]]]:
    # A long result, as banks give them: most of it is nobody's, some lines are about the person.
    lines = [{"id": n, "amount": random.randrange(1, 900), "text": "card payment, grocery"} for n in range(400)]
    statement = {"holder": person.name, "iban": person.iban, "address": person.street, "lines": lines}
    return (
        "bank",
        TENANTS[0],
        [
            {"role": "system", "content": "You explain statements and block cards."},
            {
                "role": "user",
                "content": f"I am {person.name}, born {person.born}, account {person.iban}. What is line 12?",
            },
            _call("b1", "statement", {"iban": person.iban, "born": person.born}),
            _result("b1", json.dumps(statement)),
            {"role": "assistant", "content": "Line 12 is a card payment in a grocery shop."},
            {
                "role": "user",
                "content": f"Then send the statement to {person.street}, {random.choice(_CITIES)}, please.",
            },
            {"role": "assistant", "content": f"It is on its way to {person.street}."},
        ],
    )


def _coding(random: Random, person: Person) -> tuple[str, str, list[dict[str, Any]]]:
    log = "\n".join(f"step {n}: compiled module_{n}.py in {random.randrange(5, 90)} ms" for n in range(300))
    blame = f"{log}\nlast change by {person.name} <{person.email}>\nTypeError: total() missing 1 argument"
    return (
        "coding",
        TENANTS[1],
        [
            {"role": "system", "content": "You fix failing builds."},
            {"role": "user", "content": f"The build is red since this morning. I am {person.name}, ask me anything."},
            _call("k1", "run", {"command": "make build", "author": person.email}),
            _result("k1", blame),
            {
                "role": "assistant",
                "content": "total() was given a new argument in the last change; I pass the default now.",
            },
            _call(
                "k2",
                "commit",
                {"message": "Pass the tax rate to total()", "co_author": f"{person.name} <{person.email}>"},
            ),
            _result("k2", '{"commit": "9f3c2ab", "tests": 118, "failed": 0}'),
            {"role": "assistant", "content": "All 118 tests pass again."},
        ],
    )


def _call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def _result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _turns(dialogue: list[dict[str, Any]]) -> Iterator[Turn]:
    """Every assistant message is one model call over all that stands before it: agents resend their history."""
    for position, message in enumerate(dialogue):
        if message["role"] == "assistant":
            yield Turn(messages=dialogue[:position], answer=message)


def _rewards(random: Random, index: int) -> list[Reward]:
    """Each sixth stays without a reward; the others show every way in which rewards arrive."""
    if index % 6 == 5:
        return []
    first = Reward(
        value=float(random.random() < 0.7),
        name="resolved",
        disorder=("in time", "twice", "before the steps")[index % 3],
    )
    return [first, Reward(value=0.0, name="reopened", disorder="late")] if index % 4 == 1 else [first]


def _occurring(person: Person, dialogue: list[dict[str, Any]]) -> frozenset[tuple[str, str]]:
    text = json.dumps(dialogue, ensure_ascii=False)
    return frozenset((kind, value) for kind, value in person.planted().items() if value in text)
