"""The model's door: requests out, replies in, dialects and errors."""
