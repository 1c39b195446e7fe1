"""Host memory of this process and of others, from /proc or psutil."""
