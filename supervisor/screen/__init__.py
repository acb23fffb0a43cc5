"""The REPL: editor, prompt, view, diff.  The only room that draws on a terminal."""
