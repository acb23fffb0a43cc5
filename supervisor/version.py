"""The version, alone in its file so that `agent --version` imports nothing else."""

VERSION = "0.1.0"
