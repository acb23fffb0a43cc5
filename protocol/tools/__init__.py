"""One file per tool: the Struct of its arguments and the description that the model reads."""
