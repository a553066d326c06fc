"""The index of a batch, byte for byte."""

from __future__ import annotations

import struct

import pytest

import sheaf
from fakemount import index_bytes
from sheaf._index import Index, Row

ROWS = [(0, 5, 0xFFFF_FFFF_FFFF_FFFF, 0, 0), (5, 0, 0, 1, 2), (5, 1 << 40, 7, 0, 0)]


def test_rows() -> None:
    index = Index(index_bytes(ROWS))
    assert len(index) == 3
    assert list(index) == [Row(*row) for row in ROWS]
    assert index[2] == Row(*ROWS[2])
    for i in (-1, 3):
        with pytest.raises(IndexError):
            index[i]


def test_the_bytes_themselves() -> None:
    text = (
        "5348454146495831 40000000 20000000 0100000000000000" + "00" * 40 + "0807060504030201 1000000000000000"
        "efcdab8967452301 01000000 02000000"
    )
    index = Index(bytes.fromhex(text))
    assert list(index) == [Row(0x0102030405060708, 16, 0x0123456789ABCDEF, 1, 2)]


def test_longer_headers_and_rows_of_a_later_version() -> None:
    head = b"SHEAFIX1" + struct.pack("<IIQ", 128, 48, 2) + bytes(128 - 24)
    rows = b"".join(struct.pack("<QQQII", *row) + bytes(16) for row in ROWS[:2])
    index = Index(head + rows)
    assert list(index) == [Row(*row) for row in ROWS[:2]]
    assert index[1] == Row(*ROWS[1])


def test_every_cut_is_seen() -> None:
    whole = index_bytes(ROWS)
    for n in range(len(whole)):
        with pytest.raises(sheaf.ProtocolError):
            Index(whole[:n])
    with pytest.raises(sheaf.ProtocolError):
        Index(whole + b"\0")


@pytest.mark.parametrize(
    "bad",
    [
        b"SHEAFIX2" + index_bytes(ROWS)[8:],
        index_bytes(ROWS, n=1 << 60),
        b"SHEAFIX1" + struct.pack("<IIQ", 0, 32, 0) + bytes(40),
        b"SHEAFIX1" + struct.pack("<IIQ", 64, 0, 0) + bytes(40),
    ],
)
def test_what_is_no_index(bad: bytes) -> None:
    with pytest.raises(sheaf.ProtocolError):
        Index(bad)
