"""Traffic of real and reported profiles, against the answers that come with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from commcanary_lab.importers import kineto
from commcanary_lab.inspect import ops
from commcanary_lab.trace import Trace
from commcanary_lab.traffic import build_matrix

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def profile(name: str) -> Trace:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the shared data set is not here: {path.name}")
    return kineto.read([path])


def test_members_beyond_the_cut_rank_list() -> None:
    m = build_matrix(profile("cases/P01__rank0.json"))
    assert (m.n, m.payload_bytes, m.records) == (64, 8192, 1)
    assert [(x.src, x.dst, x.size_bytes) for x in m.links()] == [(0, 1, 2 * 63 / 64 * 8192)]


def test_cut_split_list() -> None:
    """960 of 1280 elements can be attributed, 32 of them stay on the rank; the other 320 go to ranks 30 to 39."""
    m = build_matrix(profile("cases/P02__rank0.json"))
    assert (m.payload_bytes, m.unattributed_bytes) == (5120, 1280)
    assert m.egress()[0] == 3840 - 128


def test_row_and_column_of_one_rank() -> None:
    m = build_matrix(profile("cases/P03__rank0.json"))
    assert m.dense()[0].tolist() == [0, 48, 52, 56]
    assert (m.egress()[0], m.ingress()[0]) == (156, 140)


def test_uneven_without_splits_is_not_divided() -> None:
    m = build_matrix(profile("cases/P04__rank0.json"))
    assert (m.links(), m.unattributed_bytes, m.unattributed_received_bytes) == ([], 200, 184)


def test_kernel_of_unknown_size_keeps_its_time() -> None:
    trace = profile("cases/P05__rank0.json")
    assert "1 collective of unknown size: not in the matrix" in build_matrix(trace).notes
    table = ops(trace)
    assert (table.communication_us, table.unsized_count, table.unsized_us) == (70.0, 1, 40.0)
    assert [(r.sized, r.total_bytes) for r in table.rows] == [(False, 0), (True, 4096)]


def test_batched_send_and_recv_of_one_rank() -> None:
    assert build_matrix(profile("cases/P06__rank0.json")).dense().tolist() == [[0, 4096], [4096, 0]]


def test_payload_of_a_real_profile() -> None:
    """The bytes that the file's own metadata add up to (hta_ddp2 in EXPECTED.json)."""
    m = build_matrix(profile("real/kineto/hta_ddp2_rank0_v100_nccl2.17.json.gz"))
    assert (m.payload_bytes, m.records) == (307_323_096, 21)
    # broadcasts without a root are unattributed, all-reduces over two ranks cost B per link
    assert m.unattributed_bytes == 3 * (212_480 + 424)
    assert m.sum_bytes == m.payload_bytes - m.unattributed_bytes
