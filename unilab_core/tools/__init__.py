"""Command-line tools beside training.

eval_cli.py        unilab-eval
evaluate.py        the deterministic evaluation
policy_source.py   which policy file
video.py           play_video.mp4
offscreen.py       rendering without a display
bench/             unilab-bench
"""
