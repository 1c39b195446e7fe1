"""Damaged and hostile files and texts against every reader: no code runs, no traceback, within bounds."""
