"""One suite for every stage store: SQLite's and the one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ebbtide_platform.adapters.stage.memory import MemoryStageStore
from ebbtide_platform.adapters.stage.sqlite import SCAN_PAGE, SqliteStageStore
from ebbtide_platform.errors import Unavailable
from ebbtide_platform.ports import OutRecord, StageStore

RECORD = OutRecord("ebbtide.routed.v1", b"key", b"value", (("ce_id", b"e"),), partition=1)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StageStore]:
    made: StageStore = MemoryStageStore() if request.param == "memory" else SqliteStageStore(tmp_path / "s.sqlite")
    yield made
    made.close()


def _keys(store: StageStore, prefix: bytes = b"", **options: object) -> list[bytes]:
    with store.transaction({}) as tx:
        return [key for key, _ in tx.scan(prefix, **options)]  # type: ignore[arg-type]


def _put(store: StageStore, *keys: bytes) -> None:
    with store.transaction({}) as tx:
        for key in keys:
            tx.put(key, b"v")


def test_a_new_store_knows_nothing(store: StageStore) -> None:
    assert (store.offsets(), store.pending(), _keys(store)) == ({}, [], [])


def test_state_offsets_and_outputs_are_committed_together(store: StageStore) -> None:
    with store.transaction({"steps": 3}) as tx:
        tx.put(b"a", b"1")
        tx.emit(RECORD)
    with store.transaction({"ticks": 5}) as tx:
        assert tx.get(b"a") == b"1"
    assert store.offsets() == {"steps": 3, "ticks": 5}
    assert [record for _, record in store.pending()] == [RECORD]


def test_of_a_transaction_that_raises_nothing_is_left(store: StageStore) -> None:
    _put(store, b"before")
    with pytest.raises(ZeroDivisionError), store.transaction({"steps": 3}) as tx:
        tx.put(b"a", b"1")
        tx.delete(b"before")
        tx.emit(RECORD)
        raise ZeroDivisionError
    assert (store.offsets(), store.pending(), _keys(store)) == ({}, [], [b"before"])


def test_a_savepoint_that_raises_undoes_itself_and_nothing_before_it(store: StageStore) -> None:
    with store.transaction({"steps": 2}) as tx:
        tx.put(b"a", b"1")
        tx.emit(RECORD)
        with pytest.raises(ZeroDivisionError), tx.savepoint():
            tx.put(b"a", b"2")
            tx.put(b"b", b"2")
            tx.emit(RECORD)
            raise ZeroDivisionError
        with tx.savepoint():
            tx.put(b"c", b"3")
    with store.transaction({}) as tx:
        assert [tx.get(key) for key in (b"a", b"b", b"c")] == [b"1", None, b"3"]
    assert len(store.pending()) == 1


def test_what_a_transaction_wrote_it_also_reads(store: StageStore) -> None:
    with store.transaction({}) as tx:
        tx.put(b"a", b"1")
        tx.put(b"a", b"2")
        tx.put(b"b", b"1")
        tx.delete(b"b")
        tx.delete(b"never there")
        assert (tx.get(b"a"), tx.get(b"b"), list(tx.scan(b""))) == (b"2", None, [(b"a", b"2")])


def test_a_scan_goes_by_prefix_start_and_limit_in_order_of_keys(store: StageStore) -> None:
    _put(store, b"p\xff", b"p1", b"o", b"p", b"q", b"p0")
    assert _keys(store, b"p") == [b"p", b"p0", b"p1", b"p\xff"]
    assert _keys(store, b"p", start=b"p1") == [b"p1", b"p\xff"]
    assert _keys(store, b"p", limit=2) == [b"p", b"p0"]
    assert _keys(store, b"p", start=b"q") == []
    assert _keys(store, b"p", limit=0) == []


@pytest.mark.parametrize("rows", [SCAN_PAGE - 1, SCAN_PAGE, 2 * SCAN_PAGE + 1])
def test_a_scan_is_whole_whatever_its_length(store: StageStore, rows: int) -> None:
    keys = [b"k%05d" % number for number in range(rows)]
    _put(store, *keys)
    assert _keys(store, b"k") == keys


def test_what_a_scan_has_given_may_be_deleted_while_it_goes_on(store: StageStore) -> None:
    keys = [b"k%05d" % number for number in range(SCAN_PAGE + 10)]
    _put(store, *keys)
    with store.transaction({}) as tx:
        for key, _ in tx.scan(b"k"):
            tx.delete(key)
    assert _keys(store) == []


def test_a_scan_gives_each_key_once_though_it_is_written_over_and_behind(store: StageStore) -> None:
    keys = [b"k%05d" % number for number in range(SCAN_PAGE + 10)]
    _put(store, *keys)
    found = []
    with store.transaction({}) as tx:
        for key, _ in tx.scan(b"k"):
            found.append(key)
            tx.put(key, b"again")
            tx.put(b"k-" + key, b"behind")
        assert {value for _, value in tx.scan(b"k0")} == {b"again"}
    assert found == keys


def test_outputs_stay_pending_in_order_until_they_are_delivered(store: StageStore) -> None:
    records = [OutRecord("t", b"k", b"%d" % number) for number in range(3)]
    for record in records:
        with store.transaction({}) as tx:
            tx.emit(record)
    pending = store.pending()
    assert [record for _, record in pending] == records
    store.delivered(pending[1][0])
    assert [record for _, record in store.pending()] == records[2:]


def test_a_number_is_never_given_twice(store: StageStore) -> None:
    with store.transaction({}) as tx:
        tx.emit(RECORD)
    ((first, _),) = store.pending()
    store.delivered(first)
    with store.transaction({}) as tx:
        tx.emit(RECORD)
    assert store.pending()[0][0] > first


def test_the_file_keeps_all_of_it(tmp_path: Path) -> None:
    store = SqliteStageStore(tmp_path / "s.sqlite")
    with store.transaction({"steps": 7}) as tx:
        tx.put(b"a", b"1")
        tx.emit(RECORD)
    store.close()
    again = SqliteStageStore(tmp_path / "s.sqlite")
    assert (again.offsets(), [record for _, record in again.pending()]) == ({"steps": 7}, [RECORD])
    assert _keys(again) == [b"a"]
    again.close()


def test_a_file_has_one_owner_at_a_time(tmp_path: Path) -> None:
    store = SqliteStageStore(tmp_path / "s.sqlite")
    with pytest.raises(Unavailable, match="owned by another process"):
        SqliteStageStore(tmp_path / "s.sqlite")
    store.close()
    SqliteStageStore(tmp_path / "s.sqlite").close()


def test_an_owner_whose_lock_was_taken_away_cannot_commit(tmp_path: Path) -> None:
    """As on a file system that forgets locks: the epoch in the file says who came last."""
    old = SqliteStageStore(tmp_path / "s.sqlite")
    (tmp_path / "s.lock").unlink()
    new = SqliteStageStore(tmp_path / "s.sqlite")
    with pytest.raises(Unavailable, match="newer owner"), old.transaction({"steps": 9}):
        pass
    with new.transaction({"steps": 1}):
        pass
    assert new.offsets() == {"steps": 1}
    old.close()
    new.close()
