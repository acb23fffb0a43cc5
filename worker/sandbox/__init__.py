"""SandboxPolicy -> confined process; and the end of everything that it started."""
