"""The journal's file: damage costs the records it touches and is noticed; nothing changes before the first append."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from repo_scripts import run_apart
from sointer.blackbox.journal import Journal
from sointer.blackbox.records import FRAME, MAGIC, RecordFile
from sointer.errors import CheckpointError

N_RECORDS = 12


@pytest.fixture
def path(tmp_path):
    file = RecordFile(tmp_path / "records")
    for number in range(N_RECORDS):
        file.append({"number": number}, bytes([number + 1]) * 300)
    file.close()
    return tmp_path / "records"


def read(path):
    file = RecordFile(path)
    found = {record.metadata["number"]: file.body(record) for record in file.records()}
    file.close()
    assert all(body == bytes([number + 1]) * 300 for number, body in found.items())
    return set(found), file.damage


def ends(path):
    file = RecordFile(path)
    found = [0] + [record.start + record.n_bytes for record in file.records()]
    file.close()
    return found


def test_every_flipped_bit_costs_its_record_alone_and_is_noticed(path):
    whole, places = path.read_bytes(), ends(path)
    for place in range(0, len(whole), 7):
        content = bytearray(whole)
        content[place] ^= 1 << (place % 8)
        path.write_bytes(content)
        found, damage = read(path)
        hit = int(np.searchsorted(places, place, side="right")) - 1
        assert found == set(range(N_RECORDS)) - {hit}
        assert [(part.start, part.n_records) for part in damage] == [(places[hit], 1)]


def test_damage_of_several_records_says_how_many(path):
    content, places = bytearray(path.read_bytes()), ends(path)
    content[places[2] + 5 : places[5] - 5] = os.urandom(places[5] - places[2] - 10)
    path.write_bytes(content)
    found, damage = read(path)
    assert found == set(range(N_RECORDS)) - {2, 3, 4}
    assert [tuple(part) for part in damage] == [(places[2], places[5] - places[2], 3)]


def test_what_follows_damage_at_the_end_is_found_too(path):
    content, places = bytearray(path.read_bytes()), ends(path)
    content[places[-2] : places[-2] + FRAME.size] = bytes(FRAME.size)
    path.write_bytes(content)
    file = RecordFile(path)
    assert len(list(file.records())) == N_RECORDS - 1
    file.append({"number": 99}, b"c" * 300)
    file.close()
    file = RecordFile(path)
    assert [record.metadata["number"] for record in file.records()] == [*range(N_RECORDS - 1), 99]
    assert [part.n_records for part in file.damage] == [1]
    file.close()


def test_a_record_cut_off_is_no_damage_and_makes_room_at_the_next_append(path):
    whole, places = path.read_bytes(), ends(path)
    for cut in (places[-2] + 1, places[-2] + FRAME.size - 1, places[-2] + FRAME.size + 1, places[-1] - 1):
        path.write_bytes(whole[:cut])
        assert read(path) == (set(range(N_RECORDS - 1)), [])
        assert path.read_bytes() == whole[:cut]  # looking changes nothing
        file = RecordFile(path)
        list(file.records())
        file.append({"number": N_RECORDS - 1}, bytes([N_RECORDS]) * 300)
        file.close()
        assert path.read_bytes() == whole


def test_a_bad_sector_costs_its_records(path, monkeypatch):
    places, real = ends(path), os.read

    def failing(handle, n_bytes):
        where = os.lseek(handle, 0, os.SEEK_CUR)
        if where < places[4] - 10 and where + n_bytes > places[3] + 10:
            raise OSError(errno.EIO, "Input/output error")
        return real(handle, n_bytes)

    monkeypatch.setattr(os, "read", failing)
    found, damage = read(path)
    assert 3 not in found
    assert found >= set(range(3))
    assert damage


def test_a_file_full_of_beginnings_is_read_once(path, monkeypatch):
    content, places, read_so_far = path.read_bytes(), ends(path), 0
    path.write_bytes(content[: places[2]] + MAGIC * 50_000 + content[places[2] :])
    os_read = os.read

    def counting(handle, n_bytes):
        nonlocal read_so_far
        part = os_read(handle, n_bytes)
        read_so_far += len(part)
        return part

    monkeypatch.setattr(os, "read", counting)
    found, damage = read(path)
    assert read_so_far < 4 * path.stat().st_size
    assert found == set(range(N_RECORDS))
    assert [(one.start, one.n_bytes) for one in damage] == [(places[2], 8 * 50_000)]


@pytest.mark.parametrize("before", [1, 30, 2**20 - 60, 2**20 - 30, 2**20 - 3, 2**20, 2**21 + 17])
def test_what_follows_a_gap_of_any_length_is_found(path, before):
    content, places = path.read_bytes(), ends(path)
    path.write_bytes(content[: places[2]] + bytes(before) + content[places[2] :])
    assert read(path)[0] == set(range(N_RECORDS))


def test_remains_of_a_first_record_are_no_foreign_file(path):
    first = path.read_bytes()[: ends(path)[1]]
    for remains in (bytes(len(first)), bytes(100) + first[100:], first[:100] + bytes(len(first) - 100), first[:5]):
        path.write_bytes(remains)
        file = RecordFile(path)
        assert list(file.records()) == []
        file.append({"number": 0}, bytes([1]) * 300)
        file.close()
        assert read(path)[0] == {0}
    path.write_bytes(b"Dear diary, today I wrote no journal of outputs." * 10)
    with pytest.raises(CheckpointError, match="is no journal"):
        read(path)


def test_nothing_is_made_before_the_first_append(tmp_path):
    file = RecordFile(tmp_path / "new" / "records")
    assert list(file.records()) == []
    file.close()
    assert not (tmp_path / "new").exists()


def test_a_file_that_may_only_be_read_can_be_replayed(path, monkeypatch):
    real = os.open

    def refusing(name, flags, *rest):
        if flags & os.O_RDWR:
            raise PermissionError(errno.EROFS, "Read-only file system")
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", refusing)
    file = RecordFile(path)
    assert len(list(file.records())) == N_RECORDS
    with pytest.raises(CheckpointError, match=r"could not be written.*Read-only file system"):
        file.append({})
    file.close()


def test_a_failed_sync_is_an_error_and_leaves_the_records_before(path, monkeypatch):
    file = RecordFile(path)
    list(file.records())

    def failing(handle):
        raise OSError(errno.EIO, "Input/output error")

    file.append({"number": 99}, bytes([100]) * 300)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(CheckpointError, match="could not be written"):
            file.sync()
    file.close()
    assert read(path) == ({*range(N_RECORDS), 99}, [])


@pytest.mark.parametrize("shape", [[1, 2**33], [float("inf"), 1], [2**40, 1], [1], "x", [0, 1], [-1, 2]])
@pytest.mark.parametrize("dtype", ["O", "<f8", "<U4000000", "V8", "nonsense"])
def test_journals_that_lie_about_their_size_are_refused(shape, dtype, tmp_path):
    file = RecordFile(tmp_path / "journal.bin")
    file.append({"kind": "outputs", "fit": {}, "dtype": dtype, "shape": shape}, bytes(60))
    file.close()
    with pytest.raises(CheckpointError, match="something else"):
        Journal(tmp_path / "journal.bin")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_damaged_journals():
    """A small version of `make faults`."""
    found = run_apart("faults", "decay", part=0, n=60)
    assert found["hostile"] == 60
    assert found["hostile refused"] > 20
    assert [found[f"hostile {what}"] for what in ("over memory", "over time", "other errors")] == [0] * 3
    assert found["damaged"] == 60
    assert found["lost"] > 0
    assert [found[name] for name in ("cost_more", "unnoticed", "wrong", "changed", "refused")] == [0] * 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_power_failures():
    """A small version of `make faults`: everything that was not synced is lost."""
    found = run_apart("faults", "power", part=1, problem="names", n=40)
    assert (found["failures"], found["resumed"], found["identical"]) == (40, 2, 2)
    assert [found[name] for name in ("lost", "wrong", "refused")] == [0] * 3
