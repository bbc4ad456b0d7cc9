"""The monitor: looks at one job, running or ended, and draws it. Loads no torch, mujoco or warp.

    target  ->  sources  ->  feed (thread)  ->  model (pure fold)  ->  view  ->  app + panels
                                                                        |---->  plain, snapshot

| file | what it holds |
|---|---|
| `__main__.py` | the command line, exit codes |
| `target.py` | what JOB, RUN_DIR or no argument means |
| `sources.py` | a running job's shared memory (read-only), or a finished run's last state |
| `feed.py` | the thread that polls a source, folds and delivers |
| `model.py` | records and board rows -> `View` |
| `view.py` | the immutable picture that every output draws |
| `course.py` | long courses for sparklines, the rhythm of a source (stalls) |
| `timing.py` | the rows of the two time lines |
| `app.py`, `messages.py` | the Textual application |
| `panels/` | one widget per file, each a pure function from a view to lines |
| `strip_pieces.py` | styled pieces of a strip, and lines to draw again |
| `line.py`, `glyphs.py`, `palette.py` | styled lines, characters (UTF-8, ASCII), colours |
| `plain.py` | one line per interval, or the whole view as text |
| `snapshot.py` | `--once --json` |
| `stop.py` | Ctrl-C of the launcher's panel |
"""
