"""``unilab-soak``: run a command for long, watch what it uses, and judge how it ended.

cli.py        arguments, exit code
monitor.py    the loop: start, sample, time limits, stop, residues
sampling.py   processes, descriptors, threads, memory, GPU, files
liveness.py   does the job move: heartbeat board, or growing files
rules.py      what a run must fulfil to pass
artifact.py   the JSON file, written after every sample
"""
