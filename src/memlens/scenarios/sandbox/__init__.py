"""What a script may touch: files through an overlay, limits on processes, and Landlock where it exists."""
