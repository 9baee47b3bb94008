"""What is done with a program as a whole: its imports, its file, its profile, its scenario."""
