"""What one request holds."""
