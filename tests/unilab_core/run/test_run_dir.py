"""Run directories: names, exclusiveness, and reading an earlier run."""

import dataclasses
import json
import os
from datetime import datetime

import pytest

from unilab_core.run.failures import CheckpointError, RunDirError
from unilab_core.run.run_dir import RunPaths, create_run_dir, load_run, newest_run, runs_folder

NOON = datetime(2030, 1, 2, 12, 0, 5)


def with_training(config, **changes):
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **changes))


def test_the_path_holds_algorithm_task_time_and_backend(config, tmp_path):
    run_dir = create_run_dir(config, NOON)
    assert run_dir == tmp_path / "logs" / "sac" / "walk" / "2030-01-02_12-00-05_mujoco"
    assert RunPaths(run_dir).logs.is_dir()
    assert RunPaths(run_dir).checkpoints.is_dir()


def test_a_second_run_in_the_same_second_gets_a_suffix(config):
    first, second = create_run_dir(config, NOON), create_run_dir(config, NOON)
    assert second.name == f"{first.name}-2"


def test_a_colon_in_a_task_name_never_reaches_the_path(config):
    assert runs_folder(with_training(config, task_name="gym:Ant-v5")).name == "gym_Ant-v5"


def test_log_dir_replaces_the_whole_path(config, tmp_path):
    wanted = tmp_path / "elsewhere" / "mine"
    config = with_training(config, log_dir=str(wanted))
    assert create_run_dir(config) == wanted
    assert create_run_dir(config) == wanted.with_name("mine-2")


@pytest.mark.skipif(os.geteuid() != 0, reason="a file in the way works for every user, see below")
def test_proc_cannot_hold_a_run(config):
    with pytest.raises(RunDirError, match="/proc/runs"):
        create_run_dir(with_training(config, log_root="/proc/runs"))


def test_a_file_in_the_way_names_the_path_and_the_reason(config, tmp_path):
    (tmp_path / "blocked").write_text("")
    with pytest.raises(RunDirError) as caught:
        create_run_dir(with_training(config, log_root=str(tmp_path / "blocked")))
    assert str(tmp_path / "blocked") in str(caught.value)
    assert "Not a directory" in str(caught.value)


def test_a_run_reads_back(config):
    run_dir = create_run_dir(config, NOON)
    RunPaths(run_dir).config.write_text(json.dumps({"config": config.to_dict()}))
    assert load_run(run_dir)["config"] == config.to_dict()


def test_what_is_no_run_and_what_is_a_damaged_one_are_different_errors(config, tmp_path):
    with pytest.raises(RunDirError, match="no such run directory"):
        load_run(tmp_path / "absent")
    with pytest.raises(RunDirError, match="not a run directory"):
        load_run(tmp_path)
    run_dir = create_run_dir(config, NOON)
    RunPaths(run_dir).config.write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        load_run(run_dir)
    foreign = {**config.to_dict(), "algo": {"algo": "sac", "other": 1}}
    RunPaths(run_dir).config.write_text(json.dumps({"config": foreign}))
    with pytest.raises(CheckpointError, match="another version"):
        load_run(run_dir)


def test_the_newest_run_is_the_newest_with_a_checkpoint(config):
    old = create_run_dir(config, NOON)
    new = create_run_dir(config, NOON.replace(hour=13))
    folder = runs_folder(config)
    assert newest_run(folder) is None
    (RunPaths(old).checkpoints / "model_1.pt").touch()
    assert newest_run(folder) == old
    (RunPaths(new).checkpoints / "model_1.pt").touch()
    assert newest_run(folder) == new


def test_the_timelines_folder_is_made_only_for_a_timeline(config, tmp_path):
    assert not (create_run_dir(config) / "trace").exists()
    assert (create_run_dir(with_training(config, trace_enabled=True)) / "trace").is_dir()
    elsewhere = str(tmp_path / "traces")
    create_run_dir(with_training(config, trace_enabled=True, trace_output_dir=elsewhere))
    assert (tmp_path / "traces").is_dir()


def test_a_timelines_folder_that_cannot_be_made_leaves_no_run(config, tmp_path):
    (tmp_path / "file").write_text("")
    asked = {"trace_enabled": True, "trace_output_dir": str(tmp_path / "file" / "x")}
    with pytest.raises(RunDirError, match=r"training\.trace_output_dir: cannot write into"):
        create_run_dir(with_training(config, **asked), NOON)
    assert not list(tmp_path.rglob("2030-*"))
