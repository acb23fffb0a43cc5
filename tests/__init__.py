"""Tests, as the tree is."""
