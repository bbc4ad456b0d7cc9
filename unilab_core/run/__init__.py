"""What every process of a run shares: its directory, its exit codes, its failures, its start.

exit_codes.py   ExitCode, the one list of exit codes
failures.py     exceptions with an exit code, and exit_code_of()
whole_file.py   files that appear when they are complete
json_files.py   the same for JSON
run_dir.py      RunPaths, create_run_dir, the configuration of an earlier run
threads.py      CPU threads of each role
job_segments.py  the shared segments: planned by the launcher, attached to by children
child.py        child_session: what each child's __main__ does before and after its own work
faults.py       UNILAB_FAULT: which deliberate fault is asked for, and which there are
fault_point.py  Place and arm: a fault wrapped around the methods where it strikes
fault_child.py  the same at the start of a child process
last_state.py   last_state.json: what monitors show after the end
"""
