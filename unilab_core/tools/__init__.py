"""Command-line tools beside training.

eval_cli.py        unilab-eval
evaluate.py        the deterministic evaluation
gym_evaluate.py    the same for gym: tasks
policy_source.py   which policy file
video.py           play_video.mp4
offscreen.py       rendering without a display
bench/             unilab-bench
faults/            its commands faults, nemesis and cycles
"""
