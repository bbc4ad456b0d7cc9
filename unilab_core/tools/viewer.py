"""`unilab-eval --viewer`: watch a policy in a window, in real time, until the window is closed.

The robot follows the schedule of the video, over and over; green is the commanded velocity, blue
the measured one. The physics is the environment's; a second model shows its poses.
"""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

import os
import time
from collections.abc import Mapping

import numpy as np

from unilab_core.config.env import EnvConfig
from unilab_core.envs import make_env
from unilab_core.robots.robot import build_model
from unilab_core.tasks.registry import find_task
from unilab_core.tools.evaluate import PolicyFunction, hold_command
from unilab_core.tools.video import SCHEDULE, draw_velocities

HOLD_STEPS = 150
"""Control steps per command of the schedule."""


class NoDisplayError(RuntimeError):
    """There is no window to be had here; the message says what is missing."""


def require_display(environ: Mapping[str, str] = os.environ) -> None:
    """Raise NoDisplayError where no display is announced."""
    if not environ.get("DISPLAY") and not environ.get("WAYLAND_DISPLAY"):
        raise NoDisplayError(
            "--viewer: this machine has no display (neither DISPLAY nor WAYLAND_DISPLAY is set);"
            " use --video for a film"
        )


def view_robot(
    policy: PolicyFunction, task: str, env_config: EnvConfig, *, physics: str, sim: str = "mujoco"
) -> None:
    """Show one robot until the window is closed.

    Raises:
        NoDisplayError: the display cannot be used.
    """
    import mujoco.viewer

    found = find_task(task)
    judge = found.evaluation
    config = judge.env_config(env_config, physics)
    env = make_env(
        task, sim, config, num_envs=1, seed=judge.seed, num_threads=1, spread_episodes=False
    )
    model = build_model(found.robot, physics, config.sim_dt, visuals=True)
    data = mujoco.MjData(model)
    body = model.body(found.robot.base_body).id
    try:
        window = mujoco.viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False)
    except (mujoco.FatalError, RuntimeError) as error:
        raise NoDisplayError(f"--viewer: the display cannot be used: {error}") from None
    scene = window.user_scn
    assert scene is not None, "a passive viewer has one"
    try:
        window.cam.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        window.cam.trackbodyid, window.cam.distance = body, 1.75
        hold_command(env, judge.command, np.array([SCHEDULE[0]], np.float32))
        result = env.reset()
        step, next_s = 0, time.monotonic()
        while window.is_running():
            if step % HOLD_STEPS == 0:
                wanted = SCHEDULE[step // HOLD_STEPS % len(SCHEDULE)]
                hold_command(env, judge.command, np.array([wanted], np.float32))
            result = env.step(policy(result.obs))
            with window.lock():
                data.qpos[:] = env.backend.qpos[0]
                mujoco.mj_forward(model, data)
                scene.ngeom = 0
                commanded = env.commands.values[judge.command][0]
                draw_velocities(scene, data, body, commanded, env.robot.lin_vel_b[0])
            window.sync()
            step += 1
            next_s = max(next_s + config.ctrl_dt, time.monotonic() - config.ctrl_dt)
            # Real time is the point here: the window shows what the robot would do.
            time.sleep(max(next_s - time.monotonic(), 0.0))
    finally:
        window.close()
        env.close()
