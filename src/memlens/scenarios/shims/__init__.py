"""One file a library (or a part of torch); frameworks.py says what a shim is."""
