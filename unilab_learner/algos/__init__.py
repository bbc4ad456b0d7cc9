"""One file per algorithm, no framework inside: sac."""
