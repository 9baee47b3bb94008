"""Runs as one HTML page that needs nothing else: no network, no server, no framework.

``page.html`` is the frame of every page, ``page.css`` its looks, and the ``.js`` files what happens in it, each one
idea; a page that plays an execution has ``play.css`` too, and scripts of its own. What a page shows comes in as JSON
and as packed columns; how spans and holders look comes from their own tables.
"""
