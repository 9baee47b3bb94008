"""Runs as one HTML page that needs nothing else: no network, no server, no framework.

``page.html`` is its frame, ``page.css`` its looks, and the ``.js`` files what happens in it, each one idea. What a
page shows comes in as JSON and as packed columns; how spans and holders look comes from their own tables.
"""
