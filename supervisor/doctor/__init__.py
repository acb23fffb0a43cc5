"""`agent doctor`: what confines commands on this machine, tried for real."""
