"""Files are written whole or not at all, and what a kill leaves of them does not stay for ever."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from sointer._support.files import AtomicFile, make_directory, put
from sointer.blackbox.journal import Journal
from sointer.errors import InputError


def drafts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def killed_while_writing(target: Path) -> Path:
    pid = os.fork()
    if pid == 0:
        AtomicFile(target).path.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    return drafts(target.parent)[0]


def make_old(path: Path) -> None:
    os.utime(path, (time.time() - 3600, time.time() - 3600))


def test_a_draft_that_a_kill_left_is_removed_by_the_next_writer(tmp_path):
    target = tmp_path / "why [1].html"
    left = killed_while_writing(target)
    put(target, b"whole")
    assert left.exists()  # it may be a writer's that has just begun
    make_old(left)
    put(target, b"whole again")
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    assert target.read_bytes() == b"whole again"


def test_a_draft_that_is_being_written_stays_however_old(tmp_path):
    target = tmp_path / "a.csv"
    with AtomicFile(target) as slow:
        slow.path.write_text("slow")
        make_old(slow.path)
        put(target, b"quick")
        slow.commit()
    assert target.read_text() == "slow"
    assert not drafts(tmp_path)


def test_drafts_of_other_files_and_links_are_left_alone(tmp_path):
    (tmp_path / "precious").write_text("x")
    (tmp_path / ".a-draft-12345678").symlink_to(tmp_path / "precious")
    (tmp_path / ".a-20240131").write_text("somebody's own")
    make_old(tmp_path / ".a-20240131")
    other = killed_while_writing(tmp_path / "ab")
    for path in (other, tmp_path / "precious"):
        make_old(path)
    put(tmp_path / "a", b"whole")
    assert other.exists()
    assert (tmp_path / ".a-draft-12345678").is_symlink()
    assert (tmp_path / ".a-20240131").exists()
    assert (tmp_path / "precious").exists()


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path):
    put(tmp_path / "a", b"old")
    with AtomicFile(tmp_path / "a") as draft:  # and no commit, as after an error
        draft.path.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    n_open = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(20):
        put(tmp_path / "a", b"again")
    assert not n_open or len(os.listdir("/proc/self/fd")) <= n_open
    with pytest.raises(InputError, match="no ordinary file"):
        put(tmp_path, b"x")


def test_the_names_of_all_new_directories_are_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("sointer._support.files.sync_directory", synced.append)
    make_directory(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    make_directory(tmp_path / "a" / "b")
    assert len(synced) == 3


@pytest.mark.skipif(os.name != "posix", reason="needs a system that syncs directories")
def test_a_journal_in_new_directories_survives_a_power_failure(tmp_path, monkeypatch):
    handles, synced, opened, sync = {}, set(), os.open, os.fsync

    def note(path, *more, **options):
        handle = opened(path, *more, **options)
        handles[handle] = str(path)
        return handle

    monkeypatch.setattr(os, "open", note)
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.add(handles.get(handle)), sync(handle)))
    journal = Journal(tmp_path / "new" / "fit" / "journal.bin")
    journal.begin({})
    journal.close()
    assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "fit")} <= synced
