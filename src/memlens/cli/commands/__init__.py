"""One file a command: validate, call, render."""
