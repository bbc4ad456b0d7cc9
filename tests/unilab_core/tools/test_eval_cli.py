"""unilab-eval on policies with made-up weights: output, exit codes, and which file is played."""

import contextlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from unilab_core.config.compose import compose
from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.policy_file import save_policy
from unilab_core.nets.squashed_gaussian import ActorSpec, SquashedGaussianActor
from unilab_core.nets.torch_file import write_torch_file
from unilab_core.tools import eval_cli, offscreen
from unilab_core.tools.policy_source import find_policy

TASK = "go2_joystick_flat"


def actor(seed):
    torch.manual_seed(seed)
    spec = ActorSpec(
        obs_width=49,
        hidden_dims=(8,),
        activation="silu",
        layer_norm=True,
        log_std_min=-5.0,
        log_std_max=0.0,
        mean_limit=10.0,
        action_low=(-1.0,) * 12,
        action_high=(1.0,) * 12,
    )
    built = SquashedGaussianActor(spec)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return built


def contract(iteration):
    return {
        "task": TASK,
        "sim": "mujoco",
        "algo": "sac",
        "obs_width": 49,
        "action_width": 12,
        "obs_terms": [],
        "env": compose("sac", TASK, "mujoco", []).env.to_dict(),
        "iteration": iteration,
    }


@pytest.fixture
def run_dir(tmp_path):
    """policy.pt of iteration 30, checkpoints 20 and best (the same), one clocked policy."""
    for name in ("checkpoints", "policies"):
        (tmp_path / name).mkdir()
    save_policy(tmp_path / "policy.pt", actor(1), None, contract(30))
    save_policy(tmp_path / "policies" / "policy_00012.50.pt", actor(3), None, contract(10))
    normalizer = ObsNormalizer(49)
    normalizer.update(torch.randn(64, 49))
    content = {
        "iteration": 20,
        "learner": {
            "sac": {"actor": actor(2).state_dict()},
            "normalizers": [normalizer.state_dict(), None],
        },
    }
    for name in ("checkpoint_00000020.pt", "best.pt"):
        write_torch_file(tmp_path / "checkpoints" / name, content)
    return tmp_path


def test_the_newest_policy_is_the_default(run_dir):
    policy, path = find_policy(run_dir, None)
    assert path == run_dir / "policy.pt"
    assert policy.contract["iteration"] == 30
    obs = np.random.default_rng(0).normal(size=(2, 49)).astype(np.float32)
    with torch.no_grad():
        expected = actor(1).eval().act(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(policy.act(obs), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "file", "iteration"),
    [
        ("20", "checkpoints/checkpoint_00000020.pt", 20),
        ("best", "checkpoints/best.pt", 20),
        ("policy_00012.50.pt", "policies/policy_00012.50.pt", 10),
    ],
)
def test_a_checkpoint_is_chosen_by_iteration_or_name(run_dir, name, file, iteration):
    policy, path = find_policy(run_dir, name)
    assert path == run_dir / file
    assert policy.contract["iteration"] == iteration


def test_a_checkpoint_brings_its_weights_and_its_normaliser(run_dir):
    policy, _ = find_policy(run_dir, "20")
    obs = np.random.default_rng(0).normal(size=(2, 49)).astype(np.float32)
    with torch.no_grad():
        raw = actor(2).eval().act(torch.from_numpy(obs)).numpy()
    assert np.abs(policy.act(obs) - raw).max() > 1e-3


@pytest.mark.slow
def test_json_has_the_fields_that_scripts_depend_on(run_dir, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert eval_cli.main([str(run_dir), "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    report = json.loads(lines[0])
    assert list(report) == [
        "task",
        "physics",
        "episodes",
        "error_vel_xy",
        "error_vel_yaw",
        "fall_rate",
        "mean_reward",
        "success",
        "checkpoint",
        "iteration",
    ]
    assert (report["task"], report["physics"], report["episodes"]) == (TASK, "fast", 144)
    assert report["checkpoint"] == str(run_dir / "policy.pt")
    assert report["success"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no_such_run"], 6, "no_such_run: no such run directory or policy file"),
        (["empty"], 6, "nothing was saved yet"),
        (["run", "--checkpoint", "21"], 6, "no checkpoint '21'; there are: best.pt, checkpoint_"),
        (["run/policy.pt", "--checkpoint", "20"], 6, "belongs to a run directory"),
        (["junk.pt"], 5, "junk.pt"),
        (["run", "--checkpoint", "damaged"], 5, "damaged.pt"),
        (["run", "--checkpoint", "foreign"], 5, "not a checkpoint of this run"),
    ],
)
def test_a_mistake_is_one_line_with_its_exit_code(
    run_dir, tmp_path_factory, monkeypatch, capsys, arguments, code, message
):
    folder = tmp_path_factory.mktemp("eval")
    (folder / "empty").mkdir()
    (folder / "run").symlink_to(run_dir)
    (folder / "junk.pt").write_bytes(b"junk")
    (run_dir / "checkpoints" / "damaged.pt").write_bytes(b"junk")
    write_torch_file(run_dir / "checkpoints" / "foreign.pt", {"iteration": 1})
    monkeypatch.chdir(folder)
    assert eval_cli.main(arguments) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("unilab-eval: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_help_needs_neither_torch_nor_mujoco():
    code = (
        "import sys; from unilab_core.tools import eval_cli\n"
        "try: eval_cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'mujoco'} & set(sys.modules), sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_any_way_to_render_the_packages_are_named(run_dir, monkeypatch, capsys):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(offscreen, "_works", lambda name: False)
    assert eval_cli.main([str(run_dir), "--video"]) == 2
    message = capsys.readouterr().err
    assert "libosmesa6" in message
    assert "libegl1" in message
    assert message.count("\n") == 1
    assert "MUJOCO_GL" not in os.environ


def test_the_users_choice_of_renderer_is_kept(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setattr(offscreen, "_works", lambda name: pytest.fail("probed"))
    assert offscreen.prepare_offscreen() == "osmesa"


def test_the_first_way_that_works_is_taken(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.setattr(offscreen, "_works", lambda name: name == "osmesa")
    assert offscreen.prepare_offscreen() == "osmesa"
    assert os.environ["MUJOCO_GL"] == "osmesa"


FILM = """
import sys
from pathlib import Path
from unilab_core.tools.offscreen import OffscreenUnavailableError, prepare_offscreen
try:
    prepare_offscreen()
except OffscreenUnavailableError:
    sys.exit(77)
from unilab_core.config.env import EnvConfig
from unilab_core.tools.policy_source import find_policy
from unilab_core.tools.video import play_video
policy, _ = find_policy(Path(sys.argv[1]), None)
config = EnvConfig.from_dict(policy.contract["env"])
play_video(policy.act, policy.contract["task"], config, Path(sys.argv[2]), num_steps=6,
           num_envs=3)
"""


@pytest.mark.slow
def test_a_film_is_written_whole(run_dir):
    target = run_dir / "play_video.mp4"
    arguments = [sys.executable, "-c", FILM, str(run_dir), str(target)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("no offscreen rendering on this machine")
    assert done.returncode == 0, done.stderr
    assert target.read_bytes()[4:8] == b"ftyp"
    assert [path.name for path in run_dir.glob(".*")] == []


def test_the_viewer_needs_a_display_and_says_so(run_dir, monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert eval_cli.main([str(run_dir), "--viewer"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--viewer: this machine has no display" in error


def test_the_viewer_excludes_other_outputs(run_dir, capsys):
    with pytest.raises(SystemExit) as caught:
        eval_cli.main([str(run_dir), "--viewer", "--json"])
    assert caught.value.code == 2


def test_the_viewer_shows_the_robot_until_the_window_is_closed(run_dir, monkeypatch):
    import mujoco
    import mujoco.viewer

    shown = []

    class Window:
        def __init__(self, model, data, **_ui):
            self.data = data
            self.cam = mujoco.MjvCamera()
            self.user_scn = mujoco.MjvScene(model, 10)
            self.closed = False

        def is_running(self):
            return len(shown) < 5

        def lock(self):
            return contextlib.nullcontext()

        def sync(self):
            shown.append((self.data.qpos.copy(), self.user_scn.ngeom))

        def close(self):
            self.closed = True

    windows = []
    monkeypatch.setattr(
        mujoco.viewer, "launch_passive",
        lambda model, data, **ui: windows.append(Window(model, data, **ui)) or windows[-1],
    )  # fmt: skip
    monkeypatch.setenv("DISPLAY", ":99")
    assert eval_cli.main([str(run_dir), "--viewer"]) == 0
    assert len(shown) == 5
    assert windows[0].closed
    assert not np.array_equal(shown[0][0], shown[4][0])  # it moves
    assert all(ngeom >= 1 for _, ngeom in shown)  # the commanded velocity, drawn anew each time


def test_a_display_that_cannot_be_used_is_one_line(run_dir, monkeypatch, capsys):
    import mujoco
    import mujoco.viewer

    def refuse(*_args, **_ui):
        raise mujoco.FatalError("could not initialize GLFW")

    monkeypatch.setattr(mujoco.viewer, "launch_passive", refuse)
    monkeypatch.setenv("DISPLAY", ":99")
    assert eval_cli.main([str(run_dir), "--viewer"]) == 2
    assert "the display cannot be used: could not initialize GLFW" in capsys.readouterr().err


def test_the_policy_is_exported_for_other_runtimes(run_dir, tmp_path, capsys):
    pytest.importorskip("onnx")
    target = tmp_path / "elsewhere.onnx"
    assert eval_cli.main([str(run_dir), "--export-onnx", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["onnx"] == str(target)
    assert target.stat().st_size > 1000
    missing = tmp_path / "no" / "folder.onnx"
    assert eval_cli.main([str(run_dir), "--export-onnx", str(missing)]) == 2
    assert "--export-onnx: cannot write" in capsys.readouterr().err
