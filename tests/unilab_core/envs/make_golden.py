"""Write golden/go2_joystick_flat.npz: run it only when the task itself is meant to change.

    .venv/bin/python tests/unilab_core/envs/make_golden.py

Every change of these numbers changes what scores mean; say why in the commit.
"""

from pathlib import Path

import numpy as np
import yaml

from unilab_core.config.env import EnvConfig
from unilab_core.envs import make_env

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden" / "go2_joystick_flat.npz"
CONF = HERE.parents[2] / "conf" / "env" / "go2_joystick_flat.yaml"
NUM_ENVS, NUM_STEPS, SEED = 6, 12, 11


def build(**changes):
    config = EnvConfig.from_dict({**yaml.safe_load(CONF.read_text()), **changes})
    return make_env(
        "go2_joystick_flat",
        "mujoco",
        config,
        num_envs=NUM_ENVS,
        seed=SEED,
        num_threads=1,
        spread_episodes=False,
    )


def actions():
    """[T, E, A], rounded so that the file is exact."""
    draw = np.random.default_rng(SEED).uniform(-1.0, 1.0, (NUM_STEPS, NUM_ENVS, 12))
    return np.round(draw, 2).astype(np.float32)


def rollout(physics):
    """What physics makes of the actions: observations and rewards of every step."""
    env = build(physics=physics)
    results = [env.reset().critic_obs.copy()]
    rewards = []
    for step in actions():
        result = env.step(step)
        results.append(result.critic_obs.copy())
        rewards.append(result.reward.copy())
    env.close()
    return np.array(results), np.array(rewards)


def terms():
    """What the terms make of one state: no physics between the stored input and the output."""
    env = build()
    env.reset()
    for step in actions():
        env.step(step)
    env.backend.forward_rows(np.arange(NUM_ENVS))
    state = {
        "qpos": env.backend.qpos.copy(),
        "qvel": env.backend.qvel.copy(),
        "sensordata": env.backend.sensordata.copy(),
        "command": env.commands.values["velocity"].copy(),
        "gait": env.commands.values["gait"].copy(),
        "action": env.actions.action.copy(),
        "previous_action": env.actions.previous_action.copy(),
    }
    outputs = evaluate_terms(env, state)
    env.close()
    return {**state, **outputs}


def evaluate_terms(env, state):
    """Run every term of `env` on a stored state."""
    np.copyto(env.backend.qpos, state["qpos"])
    np.copyto(env.backend.qvel, state["qvel"])
    env.backend.forward_rows(np.arange(NUM_ENVS))
    np.copyto(env.commands.values["velocity"], state["command"])
    np.copyto(env.commands.values["gait"], state["gait"])
    np.copyto(env.actions.action, state["action"])
    np.copyto(env.actions.previous_action, state["previous_action"])
    env.robot.load(env.backend)
    obs = np.zeros((NUM_ENVS, 49), np.float32)
    critic_obs = np.zeros((NUM_ENVS, 52), np.float32)
    reward = np.zeros(NUM_ENVS, np.float32)
    env.observations.compute(env._view, obs, critic_obs)
    env.rewards.compute(env._view, None, reward)
    log = {}
    env.rewards.log(log)
    return {
        "critic_obs": critic_obs,
        "obs": obs,
        "reward": reward,
        "reward_terms": np.array(list(log.values()), np.float32),
    }


def main():
    arrays = {f"terms_{name}": value for name, value in terms().items()}
    for physics in ("fast", "reference"):
        observations, rewards = rollout(physics)
        arrays[f"{physics}_critic_obs"] = observations
        arrays[f"{physics}_reward"] = rewards
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, **arrays)
    print(GOLDEN, GOLDEN.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
