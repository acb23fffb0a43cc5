"""Tests of supervisor/."""
