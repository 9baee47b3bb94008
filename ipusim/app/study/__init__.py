"""Changed requests for studies: runs for time alone, and times of full pipelines."""
