"""SandboxPolicy -> confined process."""
