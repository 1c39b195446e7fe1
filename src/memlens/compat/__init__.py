"""The names of other tools, so that code which imports them only changes the import."""
