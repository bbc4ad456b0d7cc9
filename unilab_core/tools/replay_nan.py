"""`unilab-eval --replay-nan DUMP`: what the NaN guard saw, without a display.

    1. who: source, environment, step; the first field of the last steps that is not finite
    2. a table of the last steps of the first offending environment
    3. where the dump holds the physics: the last step computed again from its state, by the task's
       own model, so that one sees whether physics or something above it went wrong
    4. with --video, the recorded poses as a film

Randomised masses and frictions are not in the dump: a computed step may then differ a little.
"""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from unilab_core.config.env import EnvConfig
from unilab_core.config.gym_env import is_gym_task
from unilab_core.run.nan_dump import NanDump
from unilab_core.telemetry.plain import sanitize

TABLE_STEPS = 12
WHERE_FIRST = ("qpos", "qvel", "ctrl", "obs", "critic_obs", "action", "reward")
"""Order in which fields of one step are looked at: causes before what follows from them."""


def replay_report(dump: NanDump) -> dict[str, Any]:
    """Everything that is printed, as plain values."""
    meta = dump.meta
    report: dict[str, Any] = {
        "source": str(meta["source"]),
        "kind": str(meta["kind"]),
        "env": int(meta["env"]),
        "step": int(meta["step"]),
        "task": str(meta["task"]),
        "steps": len(dump.steps),
        "envs": [int(env) for env in dump.envs],
        "first_nonfinite": first_nonfinite(dump),
        "rows": [
            _row(dump, k) for k in range(max(0, len(dump.steps) - TABLE_STEPS), len(dump.steps))
        ],
    }
    if _has_physics(dump):
        report["recomputed"] = recompute_last_step(dump)
    return report


def replay_text(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [
        sanitize(
            f"{report['source']} {report['kind']} env {report['env']} step {report['step']} "
            f"({report['task']}; {report['steps']} steps of environments {report['envs']})",
            500,
        ),
        f"first value that is not finite: {sanitize(report['first_nonfinite'] or 'none', 200)}",
        f"last steps of environment {report['envs'][0]}:",
    ]
    columns = list(report["rows"][0])
    lines.append("  " + "".join(f"{name:>14}" for name in columns))
    lines += [
        "  " + "".join(f"{_cell(row[name]):>14}" for name in columns) for row in report["rows"]
    ]
    again = report.get("recomputed")
    if again is not None:
        lines.append(
            "the last step computed again from its state: "
            + (
                f"physics breaks ({sanitize(again['first_nonfinite'], 200)})"
                if again["first_nonfinite"]
                else f"finite, at most {again['max_difference']:.3g} from what was recorded"
                if again["max_difference"] is not None
                else "finite"
            )
        )
    return "\n".join(lines)


def first_nonfinite(dump: NanDump) -> str | None:
    """The earliest field with a value that is not finite, in the first offending environment."""
    for k, step in enumerate(dump.steps):
        for name in WHERE_FIRST:
            values = dump.fields.get(name)
            if values is None:
                continue
            at = _bad_index(values[k, 0])
            if at is not None:
                return f"{_entry(dump, name, at)} in step {step}"
    for name in WHERE_FIRST:
        values = dump.after.get(name)
        if values is not None and (at := _bad_index(values[0])) is not None:
            return f"{_entry(dump, name, at)} after step {dump.steps[-1]}"
    return None


def recompute_last_step(dump: NanDump) -> dict[str, Any]:
    """Physics of the last step again, from the recorded state and the recorded controls.

    Controls are those in force after the action was applied, which the dump keeps as `after_ctrl`.
    """
    config = EnvConfig.from_dict(dump.meta["env_config"])
    model = _model(dump, config, visuals=False)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = dump.fields["qpos"][-1, 0], dump.fields["qvel"][-1, 0]
    data.ctrl[:] = dump.after["ctrl"][0]
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(lambda _text: None)
    mujoco.mj_step(model, data, config.num_substeps)
    for name, values in (("qpos", data.qpos), ("qvel", data.qvel)):
        at = _bad_index(values)
        if at is not None:
            return {"first_nonfinite": f"{name}[{at}]", "max_difference": None}
    recorded = dump.after["qpos"][0]
    ended = bool(dump.fields["terminated"][-1, 0] or dump.fields["truncated"][-1, 0])
    if ended or _bad_index(recorded) is not None:  # the recorded state is another episode's
        return {"first_nonfinite": None, "max_difference": None}
    return {"first_nonfinite": None, "max_difference": float(np.abs(data.qpos - recorded).max())}


def replay_video(dump: NanDump, path: Path) -> int:
    """Film the recorded poses of the first offending environment; the number of frames.

    Raises:
        ValueError: the dump holds no poses that could be drawn.
    """
    import imageio.v2 as imageio

    from unilab_core.tasks.registry import find_task
    from unilab_core.tools.video import Stage

    if not _has_physics(dump):
        raise ValueError(f"--video: a dump of {dump.meta['task']} holds no poses to draw")
    config = EnvConfig.from_dict(dump.meta["env_config"])
    poses, speeds = dump.fields["qpos"][:, 0], dump.fields["qvel"][:, 0]
    sound = [k for k in range(len(poses)) if np.isfinite(poses[k]).all()]
    if not sound:
        raise ValueError("--video: no recorded pose is finite")
    robot = find_task(dump.meta["task"]).robot
    stage = Stage(_model(dump, config, visuals=True), robot.base_body)
    still = np.zeros(3, np.float32)
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    fps = max(1, round(1.0 / config.ctrl_dt))
    try:
        with imageio.get_writer(
            partial, fps=fps, codec="libx264", macro_block_size=16, ffmpeg_log_level="error"
        ) as writer:
            for k in sound:
                measured = np.nan_to_num(speeds[k, :3].astype(np.float32))
                writer.append_data(stage.draw(poses[k : k + 1], still, measured))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
        stage.close()
    return len(sound)


def _model(dump: NanDump, config: EnvConfig, *, visuals: bool) -> mujoco.MjModel:
    from unilab_core.robots.robot import build_model
    from unilab_core.tasks.registry import find_task

    robot = find_task(dump.meta["task"]).robot
    return build_model(robot, config.physics, config.sim_dt, visuals=visuals)


def _has_physics(dump: NanDump) -> bool:
    names = {"qpos", "qvel"}
    known = names <= dump.fields.keys() and {*names, "ctrl"} <= dump.after.keys()
    return known and not is_gym_task(str(dump.meta["task"]))


def _row(dump: NanDump, k: int) -> dict[str, float]:
    row: dict[str, float] = {"step": float(dump.steps[k])}
    for name in ("reward", "terminated", "truncated"):
        row[name] = float(dump.fields[name][k, 0])
    for name in ("action", "obs", "critic_obs", "qvel"):
        values = dump.fields.get(name)
        if values is not None:
            row[f"max|{name}|"] = float(np.abs(values[k, 0]).max())
    if _has_physics(dump):
        row["height m"] = float(dump.fields["qpos"][k, 0, 2])
    return row


def _bad_index(values: NDArray[Any]) -> int | None:
    bad = np.flatnonzero(~np.isfinite(np.atleast_1d(values)))
    return int(bad[0]) if bad.size else None


def _entry(dump: NanDump, name: str, at: int) -> str:
    """`obs[5] (term joint_vel)`, `qvel[3]`, `reward`."""
    if name == "reward":
        return name
    start = 0
    for term, width in dump.meta["terms"].get(name, []):
        if at < start + width:
            return f"{name}[{at}] (term {term})"
        start += width
    return f"{name}[{at}]"


def _cell(value: float) -> str:
    return f"{value:.0f}" if value == round(value, 9) and abs(value) < 1e9 else f"{value:.4g}"
