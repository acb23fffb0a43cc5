"""What a command did to a view of the workspace, and how that comes into the workspace itself."""
