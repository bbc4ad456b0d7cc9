"""The Perfetto timeline of a run (`training.trace_enabled`): recorded, merged, read, measured.

    loops --slices, counters--> TraceRecorder --thread--> <run id>.<role>-<rank>.pftrace
    launcher, at the end:  the parts of all roles  --->   timeline_<run id>.pftrace

| file | content |
|---|---|
| `wire.py` | protocol-buffer fields, written and read |
| `packets.py` | the trace messages that are used, as bytes |
| `recorder.py` | events of one process into its file, streamed, bounded |
| `traced_timer.py` | a phase timer whose phases are also slices |
| `files.py` | names of the files; parts merged into one |
| `reader.py` | a trace file as tracks, slices and counters |
| `figures.py` | Iter Wall and every phase, from the trace alone |

Nothing here runs when tracing is off: the wiring then builds the plain parts.
"""
