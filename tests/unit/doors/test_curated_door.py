"""What a consumer reads: its own tenant's samples, newest first of none other, up to a cut and from any record on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import msgspec
import pytest

from ebbtide_platform import codec
from ebbtide_platform.doors.curated import PAGE_RECORDS, CuratedDoor, Page, encode_cursor
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.topics import curated
from ebbtide_schemas.records import (
    CuratedRecord,
    GroupRef,
    WithdrawalRecord,
)
from ebbtide_schemas.samples import Curated, Sample, Withdrawal
from support.curated import curated_sample
from support.doors import StandingDoors, standing_doors

WAIT_S = 10.0
_decoder: msgspec.json.Decoder[Curated] = msgspec.json.Decoder(Curated)


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[StandingDoors]:
    with standing_doors(tmp_path) as standing:
        yield standing


def _withdrawal(name: str, tenant: str = "acme") -> WithdrawalRecord:
    return WithdrawalRecord(
        sample=name, tenant=tenant, trajectory=f"t-{name}", revision=0, facts_offset=1, reasons=("consent_withdrawn",)
    )


def _put(
    doors: StandingDoors, *records: CuratedRecord | WithdrawalRecord, tenant: str = "acme", partition: int = 0
) -> None:
    doors.log.write(
        [OutRecord(curated(tenant).name, b"key", codec.encode(record), partition=partition) for record in records]
    )


def _read(answer: httpx.Response) -> list[Curated]:
    assert answer.status_code == 200, answer.text
    return [_decoder.decode(line) for line in answer.content.splitlines()]


def _ids(answer: httpx.Response) -> list[str]:
    return [record.id for record in _read(answer)]


def test_a_sample_comes_out_readable_with_its_rewards(doors: StandingDoors) -> None:
    _put(doors, curated_sample(doors.door, doors.sealer, "a"))
    (sample,) = _read(doors.get("/v1/curated"))
    assert isinstance(sample, Sample)
    assert [(message.role, message.content, message.trained) for message in sample.messages] == [
        ("user", "a hi", False),
        ("assistant", "a hello", True),
        ("user", "a bye", False),
        ("assistant", "a so long", True),
    ]
    assert (sample.reward, sample.holes, sample.group, sample.tokens) == (1.0, 0, None, None)


def test_a_consumer_resumes_behind_any_record(doors: StandingDoors) -> None:
    for partition in (0, 1):
        _put(
            doors,
            *(curated_sample(doors.door, doors.sealer, f"{partition}-{number}") for number in range(3)),
            partition=partition,
        )
    whole = _read(doors.get("/v1/curated"))
    assert len(whole) == 6
    for position, record in enumerate(whole):
        rest = doors.get(f"/v1/curated?cursor={record.cursor}")
        assert sorted(_ids(rest)) == sorted(one.id for one in whole[position + 1 :])


def test_pages_add_up_to_the_whole(doors: StandingDoors) -> None:
    for partition in (0, 1):
        _put(
            doors,
            *(curated_sample(doors.door, doors.sealer, f"{partition}-{number}") for number in range(5)),
            partition=partition,
        )
    read, cursor, at_end = list[str](), "", "false"
    while at_end == "false":
        answer = doors.get(f"/v1/curated?limit=3&cursor={cursor}")
        read += _ids(answer)
        cursor, at_end = answer.headers["x-ebbtide-cursor"], answer.headers["x-ebbtide-at-end"]
    assert sorted(read) == sorted({f"{partition}-{number}" for partition in (0, 1) for number in range(5)})
    assert len(read) <= PAGE_RECORDS


def test_reading_up_to_a_cut_leaves_out_what_came_after_it(doors: StandingDoors) -> None:
    _put(doors, curated_sample(doors.door, doors.sealer, "a"))
    cut = doors.get("/v1/curated/cut").headers["x-ebbtide-cursor"]
    _put(doors, curated_sample(doors.door, doors.sealer, "b"))
    _put(doors, curated_sample(doors.door, doors.sealer, "c"), partition=1)
    answer = doors.get(f"/v1/curated?until={cut}")
    assert (_ids(answer), answer.headers["x-ebbtide-at-end"]) == (["a"], "true")
    rest = doors.get(f"/v1/curated?cursor={answer.headers['x-ebbtide-cursor']}")
    assert sorted(_ids(rest)) == ["b", "c"]


def test_a_superseded_sample_is_left_out_and_a_withdrawal_told(doors: StandingDoors) -> None:
    _put(
        doors,
        curated_sample(doors.door, doors.sealer, "a"),
        curated_sample(doors.door, doors.sealer, "b"),
        curated_sample(doors.door, doors.sealer, "a", 1),
        _withdrawal("b"),
    )
    first, second = _read(doors.get("/v1/curated"))
    assert isinstance(first, Sample)
    assert (first.id, first.revision) == ("a", 1)
    assert isinstance(second, Withdrawal)
    assert (second.id, second.reasons) == ("b", ["consent_withdrawn"])


def test_what_the_read_model_knows_of_later_pages_counts(doors: StandingDoors) -> None:
    _put(doors, curated_sample(doors.door, doors.sealer, "a"), curated_sample(doors.door, doors.sealer, "b"))
    doors.index.offsets = {"a": 7, "b": 1}
    assert _ids(doors.get("/v1/curated?limit=1")) == ["b"]


def test_a_read_model_that_lags_behind_hides_nothing_newer(doors: StandingDoors) -> None:
    _put(
        doors,
        curated_sample(doors.door, doors.sealer, "a"),
        _withdrawal("a"),
        curated_sample(doors.door, doors.sealer, "a"),
    )
    doors.index.offsets = {"a": 1}
    assert [type(record) for record in _read(doors.get("/v1/curated"))] == [Withdrawal, Sample]


def test_an_erased_segment_is_a_hole_and_nothing_after_it_is_trained(
    doors: StandingDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ebbtide_platform.sealing.sealer.FENCE_EVERY_S", 0.0)
    _put(doors, curated_sample(doors.door, doors.sealer, "a"))
    doors.door.destroy_subject("acme", "u-2")
    (sample,) = _read(doors.get("/v1/curated"))
    assert isinstance(sample, Sample)
    assert [(message.content, message.hole, message.trained) for message in sample.messages] == [
        ("a hi", False, False),
        ("a hello", False, True),
        (None, True, False),
        ("a so long", False, False),
    ]
    assert sample.holes == 1


def test_what_is_damaged_or_not_ones_own_is_left_out_and_the_rest_comes(doors: StandingDoors) -> None:
    whole = curated_sample(doors.door, doors.sealer, "whole")
    flipped = msgspec.structs.replace(whole.sealed[0], data=bytes(len(whole.sealed[0].data)))
    foreign = curated_sample(doors.door, doors.sealer, "foreign", tenant="globex")
    _put(
        doors,
        msgspec.structs.replace(
            curated_sample(doors.door, doors.sealer, "damaged"), sealed=(flipped, *whole.sealed[1:]), chain=whole.chain
        ),
        foreign,
        msgspec.structs.replace(whole, sample="smuggled", sealed=foreign.sealed, chain=foreign.chain),
        curated_sample(doors.door, doors.sealer, "raw", seal_class="raw"),
        whole,
    )
    doors.log.write([OutRecord(curated("acme").name, b"key", b"no record", partition=0)])
    assert _ids(doors.get("/v1/curated")) == ["whole"]


def test_a_sample_names_the_state_of_its_group(doors: StandingDoors) -> None:
    group = GroupRef(id="g-1", size=4, index=2, task="task")
    _put(
        doors,
        curated_sample(doors.door, doors.sealer, "a", group=group),
        curated_sample(doors.door, doors.sealer, "b", group=msgspec.structs.replace(group, id="g-2")),
    )
    doors.index.groups = {"g-1": "short"}
    states = [
        record.group.state for record in _read(doors.get("/v1/curated")) if isinstance(record, Sample) and record.group
    ]
    assert states == ["short", "open"]


def test_waiting_ends_when_something_comes(doors: StandingDoors) -> None:
    cursor = doors.get("/v1/curated").headers["x-ebbtide-cursor"]
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(doors.get(f"/v1/curated?cursor={cursor}&wait_s={WAIT_S}")))
    waiting.start()
    _put(doors, curated_sample(doors.door, doors.sealer, "a"))
    waiting.join(2 * WAIT_S)
    assert _ids(answers[0]) == ["a"]


def test_waiting_in_vain_gives_an_empty_page_and_the_same_cursor(doors: StandingDoors) -> None:
    cursor = doors.get("/v1/curated").headers["x-ebbtide-cursor"]
    answer = doors.get(f"/v1/curated?cursor={cursor}&wait_s=0.01")
    assert (_read(answer), answer.headers["x-ebbtide-cursor"]) == ([], cursor)


def test_a_key_that_is_revoked_while_it_waits_reads_nothing(
    doors: StandingDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ebbtide_platform.doors.auth.REMEMBERED_S", 0.0)
    _put(doors, curated_sample(doors.door, doors.sealer, "a"))
    newest = doors.index.newest_offsets

    def revoke_meanwhile(tenant: str, samples: Sequence[str]) -> dict[str, int]:
        doors.door.revoke_api_key("acme", doors.keys["acme"].split("_")[1])
        return newest(tenant, samples)

    monkeypatch.setattr(doors.index, "newest_offsets", revoke_meanwhile)
    answer = doors.get("/v1/curated")
    assert answer.status_code == 401
    assert "hello" not in answer.text


def test_one_tenant_never_reads_anothers_topic(doors: StandingDoors) -> None:
    _put(doors, curated_sample(doors.door, doors.sealer, "theirs", tenant="globex"), tenant="globex")
    assert _ids(doors.get("/v1/curated")) == []
    assert _ids(doors.get("/v1/curated", "globex")) == ["theirs"]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "AAAA",
        encode_cursor("globex", {0: 0}),
        encode_cursor("acme", {0: -1}),
        encode_cursor("acme", {0: 99}),
        encode_cursor("acme", {99: 1}),
    ],
)
def test_a_cursor_that_was_not_given_for_this_tenant_is_refused(doors: StandingDoors, cursor: str) -> None:
    answer = doors.get(f"/v1/curated?cursor={cursor}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "cursor")


def test_parameters_out_of_bounds_are_refused_by_name(doors: StandingDoors) -> None:
    for query, field in (("limit=0", "limit"), ("limit=many", "limit"), ("wait_s=1e9", "wait_s")):
        answer = doors.get(f"/v1/curated?{query}")
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
        assert "many" not in answer.text


def test_whoever_waits_is_answered_when_the_door_closes(doors: StandingDoors) -> None:
    door = CuratedDoor(doors.log.follow, doors.sealer, doors.index)
    pages: list[Page] = []
    waiting = threading.Thread(target=lambda: pages.append(door.page("acme", "", "", 1, WAIT_S)))
    waiting.start()
    door.close()
    waiting.join(2 * WAIT_S)
    assert [page.lines for page in pages] == [[]]
