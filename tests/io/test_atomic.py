"""Files and folders appear complete or not at all."""

from pathlib import Path

import pytest

from warpfactor.errors import FileError
from warpfactor.io import atomic_folder, atomic_path, check_folder, check_free

FAILURES = [KeyboardInterrupt, RuntimeError, OSError(28, "No space left on device")]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_failed_write_leaves_nothing(kind: str, failure: type[BaseException] | OSError, tmp_path: Path) -> None:
    expected = FileError if isinstance(failure, OSError) else failure
    goal = tmp_path / "new" / "goal.txt"
    with pytest.raises(expected), atomic_path(goal) if kind == "file" else atomic_folder(goal) as temporary:
        (temporary if kind == "file" else temporary / "part").write_text("half")
        assert not goal.exists()
        raise failure
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_at_the_end_of_the_block(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a" / "b" / "file.nii.gz") as temporary:
        temporary.write_text("whole")
        assert temporary.name.endswith("file.nii.gz")
    assert (tmp_path / "a" / "b" / "file.nii.gz").read_text(encoding="utf-8") == "whole"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file.nii.gz"]


def test_a_folder_that_is_replaced_keeps_the_files_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    folder.mkdir()
    for name in ("mine.txt", "old.txt", "theirs.txt"):
        (folder / name).write_text("before")
    with pytest.raises(FileError, match="not empty"):
        check_folder(folder, force=False)
    with atomic_folder(folder, force=True, own=("old.txt", "mine.txt")) as place:
        (place / "mine.txt").write_text("after")
    content = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert content == {"mine.txt": "after", "theirs.txt": "before"}
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_what_cannot_be_written_is_refused_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"exists already; remove it, .* \(force=True\)"):
        check_free(tmp_path / "file", force=False)
    check_free(tmp_path / "file", force=True)
    with pytest.raises(FileError, match="is a folder; give the name of a file"):
        check_free(tmp_path, force=True)
    with pytest.raises(FileError, match=r"cannot be created, because .* is a file"):
        check_free(tmp_path / "file" / "below", force=True)
    with pytest.raises(FileError, match="is a file; give the name of a folder"):
        check_folder(tmp_path / "file", force=True)
    with (
        pytest.raises(FileError, match=r"MB are needed; free some space"),
        atomic_path(tmp_path / "x", need_bytes=1 << 60),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_room_for_a_lock_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that has no room is not a file system without locks: another process may hold one."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("warpfactor.io.claims.os.open", full)
        with pytest.raises(FileError, match="No space left on device"), atomic_folder(tmp_path / "goal"):
            pytest.fail("the block was entered")
    assert list(tmp_path.iterdir()) == []
