"""Where a person looks; the only package that prints."""
