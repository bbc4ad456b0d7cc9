"""One manager per kind of term; each asks the configuration for its terms once, at construction.

resolve.py        a term's name in the configuration -> function and checked parameters
action.py         actions -> actuator targets
observation.py    groups of terms -> observation matrices (noise, clip, scale, history)
reward.py         weighted sum, and the mean of each term for the log
termination.py    terminated and truncated, and which term it was
command.py        goals and clocks
event.py          start-up, reset and interval changes to the simulation
curriculum.py     what grows harder
"""
