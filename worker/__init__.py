"""The confined side: processes that execute tools."""
