"""Worker processes: start, hand out calls, cancel, reap."""
