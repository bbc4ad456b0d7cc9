"""The launcher: composes a run, starts and supervises its processes, reports, cleans up.

cli.py            unilab-launch (alias train): arguments, one-line errors, exit codes
arguments.py      the argument parsers
run_command.py    one training run from arguments to exit code
plan.py           plan(config): which processes with which command; no side effects
environment.py    the environment variables that children get
supervisor.py     the state machine: events in, driver calls out
outcome.py        Failure and Outcome: what ended a run, in words
hang.py           who stands still, and for how long
processes.py      real children: spawn, pidfds, exit status, stacks
job_files.py      the job folder, the shared segments and their records, from start to removal
loop.py           poll: turns bells, signals, exits and time into events
console.py        lines for people; the panel process and the terminal it borrows
progress.py       plain progress lines from the learner's ring
ending.py         last_state.json, run_summary.json, the last line
play.py           the video after a completed training
detach.py         --detach
dry_run.py        --dry-run
fault_places.py   where UNILAB_FAULT can strike the launcher
jobs.py           gc, list, stop, stacks

Nothing here imports torch, mujoco or textual.
"""
