"""Pages of the web as text: what is asked, how the answer is read, and what HTML says."""
