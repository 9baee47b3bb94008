"""A pipeline as data: the program, its operations, the Plan, and the rules that every Plan keeps."""
