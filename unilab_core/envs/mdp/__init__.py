"""Terms of Markov decision processes, by kind; the configuration names them.

observations.py   (env) -> [E, w]
rewards.py        (env) -> [E], before weight and dt
terminations.py   (env) -> [E] of bool
actions.py        classes: a block of actions -> actuator targets
commands.py       classes: goals and clocks, [E, w]
events.py         (env, ids): changes to the simulation
curricula.py      (env, ids): changes to the task
"""
