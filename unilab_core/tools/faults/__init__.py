"""What a job does on a bad day: `unilab-bench faults`, `nemesis` and `cycles`.

arguments.py   the arguments of the three
tiny_job.py    the smallest real job of each algorithm, in a registry of its own
cases.py       the sweep: phases x roles x actions, and what has to happen
watch.py       one case: start, follow the board, bounded end
audit.py       what a run may leave behind: nothing
side_by_side.py  some jobs at a time, all ended when the sweep is stopped
sweep.py       faults: all cases, two at a time, and the table
nemesis.py     random kills and stops at random moments, each followed by a normal start
cycles.py      one launcher process, many runs: does anything grow
"""
