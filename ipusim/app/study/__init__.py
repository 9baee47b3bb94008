"""Requests with changes that studies try: runs for time alone, and the times of full pipelines."""
