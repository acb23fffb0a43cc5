"""What tools may touch: from the user's settings and grants to a SandboxPolicy."""
