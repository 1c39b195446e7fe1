"""Memory line by line: events of the interpreter become bytes on a line."""
