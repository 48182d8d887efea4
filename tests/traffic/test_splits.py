"""Uneven all-to-all: split lists, one or both sides, unknown parts, contradictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import InputError
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.records import RankCapture, Record
from commcanary_lab.traffic import build_matrix
from tests.traffic.jobs import Event, row, trace_of

U = -1


def test_one_rank_gives_its_row_and_its_column() -> None:
    """Rank 0 sends 11, 12, 13, 14 floats and receives 11, 10, 12, 13; its own 11 never travel."""
    sent, received = [44, 48, 52, 56], [44, 40, 48, 52]
    m = build_matrix(trace_of([Event("all_to_all_v", (0, 1, 2, 3), 200, observers=(0,), splits=row(200, 184, sent, received))]))
    assert m.dense().tolist() == [[0, 48, 52, 56], [40, 0, 0, 0], [48, 0, 0, 0], [52, 0, 0, 0]]
    assert (m.egress()[0], m.ingress()[0]) == (156, 140)
    assert (m.unattributed_bytes, m.payload_bytes, m.records, m.origin, m.algorithm) == (0, 200, 1, "measured", "splits")


def test_cut_list_is_not_divided() -> None:
    """30 of 40 splits are shown: 1280 bytes of the row go somewhere among ranks 30 to 39."""
    shown = [128] * 30 + [U] * 10
    m = build_matrix(trace_of([Event("all_to_all_v", tuple(range(40)), 5120, observers=(0,), splits=row(5120, 5120, shown, shown))]))
    assert (m.unattributed_bytes, m.unattributed_received_bytes) == (1280, 1280)
    assert m.egress()[0] == 29 * 128
    assert m.value(0, 30) == 0
    assert m.payload_bytes == 5120
    assert any("1.25 KiB of uneven all-to-alls unattributed" in note for note in m.notes)
    assert any("1.25 KiB received in uneven all-to-alls from unknown ranks" in note for note in m.notes)


def test_no_splits_but_totals() -> None:
    m = build_matrix(trace_of([Event("all_to_all_v", (0, 1, 2, 3), 200, observers=(0,), splits=row(200, 184, [U] * 4, [U] * 4))]))
    assert (m.sum_bytes, m.unattributed_bytes, m.unattributed_received_bytes) == (0, 200, 184)


def test_nothing_known_is_said() -> None:
    m = build_matrix(trace_of([Event("all_to_all_v", (0, 1), 9, observers=(0,), splits=row(U, U, [U, U], [U, U]))]))
    assert (m.sum_bytes, m.unattributed_bytes, m.payload_bytes) == (0, 0, 9)
    assert any("1 row of uneven all-to-alls of unknown splits and total" in note for note in m.notes)


def test_receiver_fills_what_the_sender_does_not_know() -> None:
    splits = row(30, 15, [U, U], [U, 10]) + row(10, 25, [10, 0], [25, 0])
    m = build_matrix(trace_of([Event("all_to_all_v", (4, 9), 30, splits=splits)]))
    assert m.dense().tolist() == [[0, 25], [10, 0]]
    assert m.unattributed_bytes == 5  # of 30 sent, 25 arrived at rank 9; the rest is what rank 4 keeps and does not say
    assert m.payload_bytes == 30 + 25


def test_sides_that_contradict_each_other() -> None:
    splits = row(4, 4, [1, 3], [1, 3]) + row(3, 4, [3, 0], [4, 0])
    with pytest.raises(InputError, match=r"event 1: splits: rank 4 says that it sent 3 bytes to rank 9, which says that it received 4"):
        build_matrix(trace_of([Event("all_reduce", (4, 9), 8), Event("all_to_all_v", (4, 9), 4, splits=splits)]))


@pytest.mark.parametrize("splits", [
    row(9, 4, [1, 3], [1, 3]), row(3, 4, [1, 3], [1, 3]), row(3, 4, [U, 4], [1, 3]), row(4, 5, [1, 3], [1, 3]),
])
def test_totals_that_contradict_their_splits(splits: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"rank 4 (sent|received) \d bytes in total but its splits add up to [45]"):
        build_matrix(trace_of([Event("all_to_all_v", (4, 9), 9, observers=(4,), splits=splits)]))


def test_wrong_length() -> None:
    with pytest.raises(InputError, match="the split list has 3 values; 2 reporting ranks of 2 need 12"):
        build_matrix(trace_of([Event("all_to_all_v", (0, 1), 4, splits=(1, 2, 3))]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_mixture_of_sides(data: st.DataObject) -> None:
    """Whatever the sides leave out, each cell counts once and known plus unattributed is what was sent."""
    k = data.draw(st.integers(1, 5))
    members = tuple(sorted(data.draw(st.sets(st.integers(0, 30), min_size=k, max_size=k))))
    expected = np.zeros((k, k))
    events, lost = [], 0
    for _ in range(data.draw(st.integers(1, 3))):
        truth = np.array(data.draw(st.lists(st.integers(0, 99), min_size=k * k, max_size=k * k))).reshape(k, k)
        truth[0, k - 1] += 1  # a size of 0 would be no exchange
        observers = tuple(sorted(data.draw(st.sets(st.sampled_from(range(k)), min_size=1))))
        hidden = np.array(data.draw(st.lists(st.booleans(), min_size=2 * k * k, max_size=2 * k * k))).reshape(2, k, k)
        sent, received = np.where(hidden[0], U, truth), np.where(hidden[1], U, truth)
        splits: tuple[int, ...] = ()
        known = np.zeros((k, k), bool)
        for i in observers:
            splits += row(int(truth[i].sum()), int(truth[:, i].sum()), sent[i].tolist(), received[:, i].tolist())
            known[i] |= ~hidden[0][i]
            known[:, i] |= ~hidden[1][:, i]
        seen_self = np.array([(i in observers and not hidden[0][i, i]) or (i in observers and not hidden[1][i, i]) for i in range(k)])
        known[np.arange(k), np.arange(k)] = seen_self
        expected += np.where(known & ~np.eye(k, dtype=bool), truth, 0)
        lost += int(sum(truth[i][~known[i]].sum() for i in observers)) if k > 1 else 0
        size = int(max(truth.sum(axis=0).max(), truth.sum(axis=1).max()))
        events.append(Event("all_to_all_v", members, size, observers=tuple(members[i] for i in observers), splits=splits))
    m = build_matrix(trace_of(events))
    assert np.array_equal(m.dense(), expected)
    assert m.unattributed_bytes == lost


def test_merged_records() -> None:
    def capture(rank: int, sent: tuple[int, int], received: tuple[int, int]) -> RankCapture:
        record = Record(rank, "all_to_all_v", max(sum(sent), sum(received)), (0, 1), "ep", sequence=0, sent_splits=sent,
                        received_splits=received, sent_bytes=sum(sent), received_bytes=sum(received))
        return RankCapture(rank, [record], f"rank{rank}", "monotonic@host")

    m = build_matrix(merge_captures([capture(0, (1, 7), (1, 5)), capture(1, (5, 2), (7, 2))], source_format="test"))
    assert m.dense().tolist() == [[0, 7], [5, 0]]
    assert (m.payload_bytes, m.records, m.unattributed_bytes) == (8 + 9, 2, 0)


def test_many_events_of_a_large_group() -> None:
    """More split values than one pass takes."""
    k, n = 64, 1200
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 50, (n, k, k))
    events = []
    for t in truth:
        splits = np.concatenate([t.sum(1)[:, None], t.sum(0)[:, None], t, t.T], axis=1).ravel()
        events.append(Event("all_to_all_v", tuple(range(k)), int(max(t.sum(0).max(), t.sum(1).max())), splits=tuple(splits.tolist())))
    m = build_matrix(trace_of(events))
    total = truth.sum(axis=0).astype(float)
    np.fill_diagonal(total, 0)
    assert np.array_equal(m.dense(), total)
