"""A view turned into text or pixels. Nothing is decided here."""
