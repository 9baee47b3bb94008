"""What a dense product takes on the tiles of an IPU: the best split that there is, and what each part of it costs."""
