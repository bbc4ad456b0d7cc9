"""The learner process: owns the policy, the optimiser, checkpoints and TensorBoard.

__main__.py            joins the job, imports torch, runs the session
session.py             build, attach, loop, result
fault_places.py        where UNILAB_FAULT can strike this process
wiring.py              each algorithm's loop from the job's segments
learner.py             what every algorithm's learner offers
{sac,flash_sac,ppo,appo}_learner.py   data and figures between the loop and algos/
off_policy_loop.py     SAC, FlashSAC: serve a tick, then update
on_policy_loop.py      PPO: a rollout across the inference slot, then learn
async_loop.py          APPO: finished rollouts while the next are collected
inference_server.py    actions for the collector (SAC, FlashSAC)
noise_repeat.py        exploration noise that is held (FlashSAC)
slot_vec_env.py        the inference slot as rsl-rl-lib's VecEnv (PPO)
rollout_pool.py        staged rollouts (APPO)
replay/                replay buffer and the ingress into it (SAC, FlashSAC)
ending.py              when a session ends
saver.py  checkpoint.py  session_result.py        what is left on disk
device.py              where to compute, and in which precision
algos/  losses/        the algorithms, and the maths they share
"""
