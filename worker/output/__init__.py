"""What commands print: from raw bytes to the text that the model gets."""
