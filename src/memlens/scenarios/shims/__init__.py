"""One file a library (or a part of torch); registry.py explains what a shim is."""
