"""Checkpoints: the last two and the best, whole or refused, nothing non-finite."""

import os

import pytest
import torch

from unilab_core.nets.torch_file import write_torch_file
from unilab_core.run.failures import CheckpointError, NonFiniteError
from unilab_learner.checkpoint import CheckpointStore


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def save(store, iteration, mean_return=None, value=None):
    content = {"learner": {"weights": torch.full((50,), float(value or iteration))}}
    return store.save(content, iteration=iteration, mean_return=mean_return)


def value_of(content):
    return content["learner"]["weights"][0].item()


def test_the_newest_two_and_the_best_are_kept(tmp_path):
    store = CheckpointStore(tmp_path)
    for iteration, mean_return in ((1, 5.0), (2, 9.0), (3, 7.0), (4, 8.0)):
        save(store, iteration, mean_return)
    assert names(tmp_path) == ["best.pt", "checkpoint_00000003.pt", "checkpoint_00000004.pt"]
    assert value_of(store.load("best.pt")) == 2.0
    assert value_of(store.load(-1)) == 4.0
    assert value_of(store.load(3)) == 3.0
    assert store.best_return == 9.0


def test_without_a_return_nothing_is_called_best(tmp_path):
    save(CheckpointStore(tmp_path), 1)
    assert names(tmp_path) == ["checkpoint_00000001.pt"]


def test_iterations_beyond_the_padding_of_old_names_still_sort(tmp_path):
    store = CheckpointStore(tmp_path)
    for iteration in (999, 10_000, 100_000):
        save(store, iteration)
    assert store.load(-1)["iteration"] == 100_000


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_newest_is_named_and_the_older_one_used(tmp_path, caplog, damage):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    newest = save(store, 2)
    raw = newest.read_bytes()
    middle = len(raw) // 2
    newest.write_bytes(
        {
            "truncated": raw[:middle],
            "flipped": raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :],
            "empty": b"",
        }[damage]
    )
    assert store.load(-1)["iteration"] == 1
    assert "checkpoint_00000002.pt" in caplog.text


def test_a_damaged_one_that_was_asked_for_is_an_error(tmp_path):
    store = CheckpointStore(tmp_path)
    path = save(store, 2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"checkpoint_00000002\.pt"):
        store.load(2)


def test_when_all_are_damaged_that_is_an_error_with_exit_code_5(tmp_path):
    path = save(CheckpointStore(tmp_path), 1)
    path.write_bytes(b"x" * 500)
    with pytest.raises(CheckpointError) as caught:
        CheckpointStore(tmp_path).load(-1)
    assert caught.value.exit_code == 5


def test_foreign_files_and_other_versions_are_passed_over_by_name(tmp_path):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    write_torch_file(tmp_path / "checkpoint_00000002.pt", {"format": "unilab-policy"})
    other = {"format": "unilab-checkpoint", "version": 99}
    write_torch_file(tmp_path / "checkpoint_00000003.pt", other)
    (tmp_path / "checkpoint_00000004.pt").write_bytes(b"PK not ours")
    (tmp_path / "checkpoint_00000005.pt").mkdir()
    assert store.load(-1)["iteration"] == 1
    assert store.skipped == [
        "skipped checkpoint_00000005.pt: cannot be read: Is a directory",
        "skipped checkpoint_00000004.pt: truncated, or not a file of this project",
        "skipped checkpoint_00000003.pt: version 99, expected 1",
        "skipped checkpoint_00000002.pt: not a checkpoint of this project",
    ]


def test_the_best_is_the_last_resort(tmp_path):
    store = CheckpointStore(tmp_path)
    for iteration, mean_return in ((1, 9.0), (2, 3.0), (3, 3.0)):
        save(store, iteration, mean_return)
    for path in tmp_path.glob("checkpoint_*.pt"):
        path.write_bytes(b"")
    assert store.load(-1)["iteration"] == 1
    assert len(store.skipped) == 2


def test_when_nothing_can_be_used_every_reason_is_in_the_error(tmp_path):
    store = CheckpointStore(tmp_path)
    save(store, 1).write_bytes(b"x")
    write_torch_file(
        tmp_path / "checkpoint_00000002.pt", {"format": "unilab-checkpoint", "version": 99}
    )
    with pytest.raises(CheckpointError, match=r"none of 2 .*version 99, expected 1.*truncated"):
        store.load(-1)


def test_another_version_that_was_asked_for_is_refused(tmp_path):
    write_torch_file(
        tmp_path / "checkpoint_00000002.pt", {"format": "unilab-checkpoint", "version": 99}
    )
    with pytest.raises(CheckpointError, match="version 99, expected 1"):
        CheckpointStore(tmp_path).load(2)


@pytest.mark.parametrize("selector", [7, "best.pt", "../x.pt"])
def test_what_is_not_there_is_an_error(tmp_path, selector):
    with pytest.raises(CheckpointError):
        CheckpointStore(tmp_path).load(selector)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_non_finite_tensor_is_never_written_over_a_good_file(tmp_path, bad):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    weights = torch.ones(5)
    weights[3] = bad
    with pytest.raises(NonFiniteError, match=r"learner\.layers\[0\]"):
        store.save({"learner": {"layers": [weights]}}, iteration=2, mean_return=1.0)
    assert names(tmp_path) == ["checkpoint_00000001.pt"]


@pytest.mark.parametrize("failing", ["fsync", "link", "open"])
def test_a_save_that_fails_at_any_step_leaves_the_old_files(tmp_path, monkeypatch, failing):
    store = CheckpointStore(tmp_path)
    save(store, 1, 3.0)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(OSError, match="No space"):
            save(store, 2, 4.0)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_process_killed_while_saving_leaves_a_loadable_checkpoint(tmp_path):
    """Kill at sync, naming and the exchange of best.pt in the second save: one stays loadable."""
    save(CheckpointStore(tmp_path), 1)
    calls = ("fsync", "link", "replace")
    for name in calls:
        pid = os.fork()
        if pid == 0:
            die = lambda *_args, **_kwargs: os._exit(7)  # noqa: E731
            if name == "replace":
                type(tmp_path).replace = die
            else:
                setattr(os, name, die)
            save(CheckpointStore(tmp_path), 2, 1.0)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        store = CheckpointStore(tmp_path)
        loaded = store.load(-1)["iteration"]
        assert loaded == (2 if name == "replace" else 1)
        assert [n for n in names(tmp_path) if n.startswith("checkpoint")]
