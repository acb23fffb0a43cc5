"""What may be chosen: the tables of a settings file, its words, and what a project may say."""
