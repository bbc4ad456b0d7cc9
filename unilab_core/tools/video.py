"""play_video.mp4: robots follow a schedule of commands, seen by a camera that goes with the first.

Two arrows float above the first robot: green is the commanded velocity, blue the measured one. The
physics is that of the environment; a second model with visual geoms only draws its poses.
"""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

from pathlib import Path

import imageio.v2 as imageio
import mujoco
import numpy as np

from unilab_core.config.env import EnvConfig
from unilab_core.contracts import FloatArray
from unilab_core.envs import make_env
from unilab_core.envs.manager_based import ManagerBasedEnv
from unilab_core.robots.robot import build_model
from unilab_core.tasks.registry import find_task
from unilab_core.tools.evaluate import PolicyFunction, hold_command

WIDTH, HEIGHT = 960, 544
STEPS_PER_FRAME = 2
SCENE_GEOMS = 1000

# (x m/s, y m/s, yaw rad/s), each held for an equal part of the video.
SCHEDULE = (
    (0.6, 0.0, 0.0),
    (1.0, 0.0, 0.0),
    (0.6, 0.0, 0.8),
    (0.0, 0.4, 0.0),
    (-0.6, 0.0, 0.0),
)
_COMMAND_RGBA = (0.25, 0.85, 0.40, 0.9)
_MEASURED_RGBA = (0.25, 0.55, 1.00, 0.9)
_ARROW_HEIGHT_M = 0.24
_ARROW_M_PER_MPS = 0.45
_CAMERA_LAG = 0.06
_SPACING_M = 1.0
"""Between the places of two robots; each has its own physics, so they may overlap, not touch."""


def play_video(
    policy: PolicyFunction,
    task: str,
    env_config: EnvConfig,
    path: Path,
    *,
    physics: str = "fast",
    sim: str = "mujoco",
    num_steps: int = 500,
    num_envs: int = 1,
) -> None:
    """Let the policy walk `num_steps` control steps and write the film of `num_envs` robots."""
    found = find_task(task)
    judge = found.evaluation
    config = judge.env_config(env_config, physics)
    env = make_env(
        task, sim, config, num_envs=num_envs, seed=judge.seed, num_threads=1, spread_episodes=False
    )
    stage = Stage(
        build_model(found.robot, physics, config.sim_dt, visuals=True),
        found.robot.base_body,
        num_envs,
    )
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    fps = round(1.0 / (config.ctrl_dt * STEPS_PER_FRAME))
    writer = imageio.get_writer(
        partial, fps=fps, codec="libx264", quality=8, macro_block_size=16, ffmpeg_log_level="error"
    )
    try:
        with writer:
            _play(env, policy, judge.command, stage, writer, num_steps)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
        stage.close()
        env.close()


def _play(
    env: ManagerBasedEnv,
    policy: PolicyFunction,
    command: str,
    stage: "Stage",
    writer: "imageio.core.format.Format.Writer",  # pyright: ignore[reportAttributeAccessIssue]
    num_steps: int,
) -> None:
    part = max(1, -(-num_steps // len(SCHEDULE)))
    hold_command(env, command, _everyone(env, 0))
    result = env.reset()
    for step in range(num_steps):
        if step % part == 0:
            hold_command(env, command, _everyone(env, step // part))
        result = env.step(policy(result.obs))
        if step % STEPS_PER_FRAME == 0:
            wanted = env.commands.values[command][0]
            writer.append_data(stage.draw(env.backend.qpos, wanted, env.robot.lin_vel_b[0]))


def _everyone(env: ManagerBasedEnv, part: int) -> FloatArray:
    """The command of one part of the schedule for every robot, [E, 3]."""
    return np.tile(np.array([SCHEDULE[part]], np.float32), (env.spec.num_envs, 1))


class Stage:
    """Scene, camera and renderer."""

    def __init__(self, model: mujoco.MjModel, body: str, num_robots: int = 1) -> None:
        model.vis.global_.offwidth, model.vis.global_.offheight = WIDTH, HEIGHT
        self._model, self._data = model, mujoco.MjData(model)
        self._body = model.body(body).id
        self._renderer = mujoco.Renderer(
            model, height=HEIGHT, width=WIDTH, max_geom=SCENE_GEOMS + num_robots * model.ngeom
        )
        self._others = mujoco.MjData(model)
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._places = _grid(num_robots)
        self._camera = mujoco.MjvCamera()
        self._camera.distance = 1.75 + 0.5 * (np.sqrt(num_robots) - 1.0)
        self._camera.elevation, self._camera.azimuth = -16.0, 140.0
        self._target: np.ndarray | None = None

    def draw(self, qpos: np.ndarray, wanted: FloatArray, measured: FloatArray) -> np.ndarray:
        """One frame, [HEIGHT, WIDTH, 3] bytes, of robots at qpos[E, Q].

        Each robot has a world of its own; the film sets them up beside each other.
        """
        self._data.qpos[:] = qpos[0]
        mujoco.mj_forward(self._model, self._data)
        base = self._data.xpos[self._body].copy()
        self._follow(base)
        self._renderer.update_scene(self._data, self._camera)
        for place, position in zip(self._places[1:], qpos[1:], strict=True):
            self._others.qpos[:] = position
            self._others.qpos[:2] += place
            mujoco.mj_forward(self._model, self._others)
            mujoco.mjv_addGeoms(
                self._model,
                self._others,
                self._option,
                self._perturb,
                mujoco.mjtCatBit.mjCAT_DYNAMIC,
                self._renderer.scene,
            )
        draw_velocities(self._renderer.scene, self._data, self._body, wanted, measured)
        return self._renderer.render()

    def close(self) -> None:
        """Free the OpenGL context."""
        self._renderer.close()

    def _follow(self, base: np.ndarray) -> None:
        """Look at the robot with a little lag, so that its own motion stays visible."""
        look = np.array([base[0], base[1], 0.26])
        self._target = look if self._target is None else self._target
        self._target += _CAMERA_LAG * (look - self._target)
        if np.linalg.norm(look - self._target) > 0.6:  # a new episode started elsewhere
            self._target = look
        self._camera.lookat[:] = self._target


def _grid(count: int) -> np.ndarray:
    """Places [count, 2] in m around the first, which has the middle: near ones first."""
    reach = int(np.ceil(np.sqrt(count))) // 2 + 1
    steps = np.arange(-reach, reach + 1)
    cells = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    nearest = np.argsort(np.abs(cells).max(axis=1) + 0.01 * np.hypot(*cells.T), kind="stable")
    return cells[nearest[:count]] * _SPACING_M


def draw_velocities(
    scene: mujoco.MjvScene,
    data: mujoco.MjData,
    body: int,
    wanted: FloatArray,
    measured: FloatArray,
) -> None:
    """Two arrows above a body: its commanded and its measured planar velocity."""
    rotation = data.xmat[body].reshape(3, 3)
    heading = float(np.arctan2(rotation[1, 0], rotation[0, 0]))
    tail = data.xpos[body] + np.array([0.0, 0.0, _ARROW_HEIGHT_M])
    _arrow(scene, tail, heading, wanted, _COMMAND_RGBA)
    _arrow(scene, tail + np.array([0.0, 0.0, 0.04]), heading, measured, _MEASURED_RGBA)


def _arrow(
    scene: mujoco.MjvScene,
    tail: np.ndarray,
    heading: float,
    velocity: FloatArray,
    rgba: tuple[float, float, float, float],
) -> None:
    """A planar velocity of the base frame as an arrow in the world."""
    x, y = float(velocity[0]), float(velocity[1])
    if np.hypot(x, y) < 0.05 or scene.ngeom >= scene.maxgeom:
        return
    cos, sin = np.cos(heading), np.sin(heading)
    step = _ARROW_M_PER_MPS * np.array([cos * x - sin * y, sin * x + cos * y, 0.0])
    geom = scene.geoms[scene.ngeom]
    mujoco.mjv_initGeom(
        geom,
        mujoco.mjtGeom.mjGEOM_ARROW,
        np.zeros(3),
        np.zeros(3),
        np.zeros(9),
        np.array(rgba, np.float32),
    )
    mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_ARROW, 0.012, tail, tail + step)
    scene.ngeom += 1
