"""The process the user talks to: REPL, conversation, key, budget, and the only connection to the model."""
