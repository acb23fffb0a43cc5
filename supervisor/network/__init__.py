"""The only ways out of a sandbox: a list of hosts, who connects by it, and the proxy that commands find."""
