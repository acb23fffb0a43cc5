"""Files as the tools reach them: paths, names, encodings, writing, walking, searching."""
