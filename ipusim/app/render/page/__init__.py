"""Runs as one self-contained HTML page: no network, no server, no framework.

``page.html`` is the frame of every page, ``page.css`` its style sheet, and each ``.js`` file one part of its behaviour.
A page that plays an execution adds ``play.css`` and more scripts. Data arrives as JSON and packed columns. Colours of
spans and memory holders come from the tables of looks.
"""
