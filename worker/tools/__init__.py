"""One file per tool: the function for the Struct of the same name in protocol/tools/."""
