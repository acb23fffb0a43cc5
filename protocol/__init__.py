"""Common ground of supervisor and worker: words, grammar, wire.  No I/O, no third party but msgspec."""
