"""Where the bytes went: peaks, holders, growth, fragmentation and causes, from any record. No torch."""
