"""Changed requests for studies: timing-only runs, and times of full pipelines."""
